"""Verdicts as text: what failed, where in the source, and the counterexample's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasodsl.cli.emit import to_json as diagnostic_json
from tasodsl.diagnostics import Diagnostic
from tasodsl.prove.verdict import Counterexample, Verdict
from tasodsl.render import render

CODES = {"refuted": "E0501", "unknown": "E0502", "vacuous": "E0503", "contradiction": "E0504"}
EXAMPLE = "E0505"
SHOWN_ENTRIES = 64
"""Of a tensor that is larger only the shape is shown."""


def diagnostics(verdict: Verdict) -> list[Diagnostic]:
    """What is wrong with a rule, for its author; nothing when it holds."""
    out = [Diagnostic(EXAMPLE, f"{verdict.name}: {why}", span) for span, why in verdict.faults]
    code = CODES.get(verdict.status)
    if code is None or verdict.span is None:
        return out
    words = {
        "refuted": f"`{verdict.name}` is wrong: {verdict.why}",
        "unknown": f"`{verdict.name}` is not proved, and no counterexample was found",
        "vacuous": f"`{verdict.name}` can never apply: {verdict.why}",
        "contradiction": f"`{verdict.name}` shows a fault in tasodsl: {verdict.why}",
    }
    label = verdict.why if verdict.status == "unknown" else ""
    return [Diagnostic(code, words[verdict.status], verdict.span, label), *out]


def explain(verdict: Verdict, color: bool = False) -> str:
    """The diagnostics of a verdict, and its counterexample below them."""
    text = "".join(render(d, color) for d in diagnostics(verdict))
    return text if verdict.counterexample is None else text + counterexample_text(verdict.counterexample)


def counterexample_text(c: Counterexample) -> str:
    """The instance as lines `name = value`, and what the two sides make of it."""
    lines = ["  with"]
    lines.extend(f"    {name} = {value}" for name, value in c.settings)
    lines.extend(f"    {name} = {tensor_text(array)}" for name, array in c.operands)
    lines.append("  the match side gives")
    lines.extend(f"    {name} = {tensor_text(array)}" for name, array in c.left)
    if c.right:
        lines.append("  the rewrite side gives")
        lines.extend(f"    {name} = {tensor_text(array)}" for name, array in c.right)
    lines.append(f"  {c.runtime}")
    return "\n".join(lines) + "\n"


def tensor_text(array: NDArray[Any]) -> str:
    """The entries as nested lists; the shape where that does not show it, or where they are many."""
    if array.size > SHOWN_ENTRIES:
        return f"a tensor of shape {list(array.shape)}"
    if array.size == 0:
        return f"an empty tensor of shape {list(array.shape)}"
    return _nested(array)


def _nested(array: NDArray[Any]) -> str:
    if array.ndim == 0:
        return number_text(array[()])
    return "[" + ", ".join(_nested(part) for part in array) + "]"


def number_text(x: Any) -> str:
    """A number without digits that say nothing."""
    if isinstance(x, bool | np.bool_):
        return "true" if x else "false"
    value = float(x)
    return str(int(value)) if value == int(value if np.isfinite(value) else 0) else f"{value:.6g}"


def to_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data."""
    out: dict[str, Any] = {
        "name": verdict.name,
        "kind": verdict.kind,
        "status": verdict.status,
        "engine": verdict.engine,
        "scope": None if verdict.scope is None else asdict(verdict.scope),
        "seconds": round(verdict.seconds, 3),
        "locked": verdict.locked,
        "why": verdict.why,
        "findings": [diagnostic_json(d) for d in diagnostics(verdict)],
        "counterexample": None,
    }
    c = verdict.counterexample
    if c is not None:
        out["counterexample"] = {
            "settings": dict(c.settings),
            "operands": _tensors(c.operands),
            "match": _tensors(c.left),
            "rewrite": _tensors(c.right),
            "runtime": c.runtime,
            "confirmed": c.confirmed,
        }
    return out


def _tensors(named: Sequence[tuple[str, NDArray[Any]]]) -> dict[str, Any]:
    """Shapes and entries; numbers that JSON has not are strings."""
    return {name: {"shape": list(a.shape), "entries": [_plain(x) for x in a.reshape(-1)]} for name, a in named}


def _plain(x: Any) -> Any:
    value = x.item()
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
