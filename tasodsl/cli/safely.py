"""Running a command so that it ends with a clear message and the right exit code, whatever happens.

0: done. 1: the job failed. 2: wrong usage. 130: interrupted. 141: whoever read our output has gone.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import typer

from tasodsl.errors import UserError

INTERRUPTED = 130
READER_GONE = 141


def run_safely(job: Callable[[], int]) -> NoReturn:
    """Run `job` and leave the command with the exit code it returns, or with that of its failure."""
    raise typer.Exit(exit_code_of(job))


def exit_code_of(job: Callable[[], int]) -> int:
    """The exit code of `job`; its failures are told on stderr."""
    try:
        code = job()
        sys.stdout.flush()
    except UserError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was written", INTERRUPTED)
    except BrokenPipeError:
        # The interpreter flushes once more when it exits, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except MemoryError:
        return _fail("not enough memory", 1)
    except OSError as error:
        return _fail(_system_error(error), 1)
    except Exception as error:  # noqa: BLE001  (the one place where a fault of our own is caught)
        return _fail(_internal_error(error), 1)
    return code


def _fail(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def _system_error(error: OSError) -> str:
    reason = error.strerror or str(error)
    place = f"{error.filename}: " if error.filename is not None else ""
    if error.errno == errno.ENOSPC:
        return f"{place}the disk is full; nothing was written"
    return f"{place}{reason}"


def _internal_error(error: Exception) -> str:
    """What a person needs to report a fault of ours. TASODSL_DEBUG=1 in the environment shows where it came from."""
    if os.environ.get("TASODSL_DEBUG") == "1":
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    text = (str(error).strip().splitlines() or [""])[0][:200]
    return (
        f"internal error: {type(error).__name__}{place}: {text}\n"
        "  This is a fault in tasodsl; nothing was written. Please report it with the model or rule at hand, and\n"
        "  with what this command prints when TASODSL_DEBUG=1 is set."
    )
