"""Attribute values: of the kind, length and choice that the operator declares."""

from __future__ import annotations

from itertools import pairwise

from tasodsl import syntax as s
from tasodsl.check_expr import check_expr, literal
from tasodsl.check_types import Kind, Scope, attr_kind
from tasodsl.diagnostics import Findings, did_you_mean

DTYPES = frozenset(
    {"float16", "bfloat16", "float32", "float64", "bool", "int8", "int16", "int32", "int64"}
    | {"uint8", "uint16", "uint32", "uint64"}
)
"""Names that a `dtype` attribute may hold."""


def check_attr_value(attr: s.AttrDecl, value: s.Expr, scope: Scope, out: Findings) -> None:
    """Checks a value against an attribute's type."""
    kind, wanted = check_expr(value, scope, out), attr_kind(attr.type)
    if not kind.may_be(wanted):
        label = str(kind)
        if wanted.name == "bool" and kind.name == "int":
            out.error("E0215", f"`{attr.name}` is true or false", value.span, label, "write `true` or `false`")
            return
        element = kind.element
        if kind.name == wanted.name == "list" and (
            kind.length == wanted.length or None in (kind.length, wanted.length)
        ):
            label = f"holds {element}"
        out.error("E0215", f"`{attr.name}` is {_described(attr.type, wanted)}, this is {kind}", value.span, label)
        return
    _structural(attr, value, out)


def _described(type_: s.AttrType, wanted: Kind) -> str:
    match type_.kind:
        case "axis":
            return "an axis (a whole number)"
        case "axes":
            return "a list of axes"
        case "perm":
            return "a permutation"
        case _:
            if wanted.name != "list":
                return str(wanted)
            elements = "whole numbers" if type_.kind == "int" else "numbers"
            return f"a list of {wanted.length} {elements}" if wanted.length is not None else f"a list of {elements}"


def _structural(attr: s.AttrDecl, value: s.Expr, out: Findings) -> None:
    """What a literal value must satisfy beyond its kind."""
    match attr.type.kind:
        case "choice":
            if isinstance(value, s.Str) and value.value not in attr.type.choices:
                choices = ", ".join(f'"{c}"' for c in attr.type.choices)
                help = did_you_mean(value.value, attr.type.choices, f"one of {choices}")
                out.error("E0215", f'`{attr.name}` is never "{value.value}"', value.span, "no such choice", help)
        case "dtype":
            if isinstance(value, s.Str) and value.value not in DTYPES:
                help = did_you_mean(value.value, DTYPES)
                out.error("E0215", f'there is no dtype "{value.value}"', value.span, "unknown", help)
        case "perm" | "axes":
            entries = (
                [literal(i) for i in value.items if not isinstance(i, s.Splice)]
                if isinstance(value, s.ListExpr)
                else []
            )
            known = [i for i in entries if i is not None]
            if not isinstance(value, s.ListExpr) or len(known) != len(value.items):
                return
            if attr.type.kind == "perm" and sorted(known) != list(range(len(known))):
                message = f"a permutation of {len(known)} holds each of 0 to {len(known) - 1} once"
                out.error("E0215", message, value.span, "not a permutation")
            elif attr.type.kind == "axes" and any(a >= b for a, b in pairwise(known) if (a < 0) == (b < 0)):
                out.error("E0215", "axes are written in increasing order, each once", value.span, "not increasing")
        case _:
            pass
