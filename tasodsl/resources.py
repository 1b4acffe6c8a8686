"""Where the grammar and the shipped rules lie.

In a wheel they are packed inside the package (`pyproject.toml`, force-include); in a checkout, and in an editable
install of one, they lie beside it.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def grammar_path() -> Path:
    """The grammar of the `.taso` language."""
    return _resource("_grammar", "grammar") / "taso.lark"


def rules_path() -> Path:
    """The folder of rules that ship with tasodsl."""
    return _resource("_rules", "rules")


def _resource(packed: str, beside: str) -> Path:
    inside = _PACKAGE / packed
    return inside if inside.is_dir() else _PACKAGE.parent / beside
