"""Arithmetic on symbolic dimensions agrees with arithmetic on numbers, and never guesses."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tasodsl.graph.dims import (
    Dim,
    SymDim,
    Undecided,
    difference_sign,
    less_equal,
    same,
    substitute,
    symbol,
    symbols,
)

NAMES = ["n", "m"]
Made = tuple[Dim, str]


def combined(children: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    def combine(parts: tuple[Made, Made, str]) -> Made:
        (a, x), (b, y), op = parts
        try:
            result = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b}[op]()
        except (Undecided, ZeroDivisionError):
            return a, x
        return result, f"({x} {op} {y})"

    return st.tuples(children, children, st.sampled_from(["+", "-", "*", "//"])).map(combine)


leaves = st.one_of(
    st.integers(-3, 9).map(lambda n: (n, str(n))),
    st.sampled_from(NAMES).map(lambda n: (symbol(n), n)),
)
made = st.recursive(leaves, combined, max_leaves=6)
sizes = st.fixed_dictionaries({n: st.integers(0, 7) for n in NAMES})


@given(made, sizes)
def test_substituting_is_evaluating(pair: Made, values: dict[str, int]) -> None:
    dim, text = pair
    try:
        want = eval(text, {}, dict(values))
    except ZeroDivisionError:
        return
    try:
        assert substitute(dim, values) == want
    except Undecided:
        pytest.fail(f"{text} has a value")


@given(made, made, sizes)
def test_decided_comparisons_hold(p: Made, q: Made, values: dict[str, int]) -> None:
    (a, _), (b, _) = p, q
    try:
        x, y = substitute(a, values), substitute(b, values)
    except Undecided:
        assume(False)
        return
    assert isinstance(x, int)
    assert isinstance(y, int)
    if same(a, b):
        assert x == y
    with contextlib.suppress(Undecided):
        assert difference_sign(a, b) == (x > y) - (x < y)
    with contextlib.suppress(Undecided):
        assert less_equal(a, b) == (x <= y)


@given(made)
def test_symbols_are_those_left(pair: Made) -> None:
    dim, _ = pair
    for name in symbols(dim):
        assert isinstance(dim, SymDim)
        assert name in NAMES


def test_equal_forms_are_equal() -> None:
    n, m = symbol("n"), symbol("m")
    assert same((n + 1) * (m - 1), n * m - n + m - 1)
    assert same((4 * n + 6) // 2, 2 * n + 3)
    assert same((n - 1) // 2 + 1, (n + 1) // 2)
    assert not same(n, m)
    assert str(2 * n + 1) == "2*n + 1"


def test_what_is_not_known_is_not_decided() -> None:
    n, m = symbol("n"), symbol("m")
    for question in (lambda: difference_sign(n, m), lambda: difference_sign(n, 1), lambda: n // n, lambda: n // 0):
        with pytest.raises(Undecided):
            question()
    assert difference_sign(n + 1, 0) == 1
    assert less_equal(0, n)
