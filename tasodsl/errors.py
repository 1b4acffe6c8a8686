"""Failures that are the user's to mend, with the message to show.

Everything that a person can cause (a missing file, a broken model, a rule with an error, a full disk) is raised as a
`UserError`; the command line prints its message and ends with its exit code. Any other exception is our own fault.
"""

from __future__ import annotations


class UserError(Exception):
    """A job that cannot be done, said so that its reader can mend the cause."""

    exit_code = 1


class UsageError(UserError):
    """A request that makes no sense as it stands (an unknown dimension, a number out of range)."""

    exit_code = 2
