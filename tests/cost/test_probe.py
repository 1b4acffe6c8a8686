"""Which kernels the runtime has."""

from __future__ import annotations

import pytest

from tasodsl.cost.probe import has_kernel


@pytest.mark.parametrize(
    ("op_type", "opset"),
    [
        ("Conv", 11),
        ("MatMul", 13),
        ("Where", 16),
        ("Resize", 13),
        ("Resize", 10),
        ("Clip", 6),
        ("Concat", 13),
        ("Split", 18),
        ("Gather", 13),
        ("MaxPool", 12),
        ("LayerNormalization", 17),
        ("Pad", 18),
        ("PRelu", 16),
        ("Max", 13),
    ],
)
def test_common_kernels_exist_for_float32(op_type: str, opset: int) -> None:
    assert has_kernel("", op_type, opset, "float32")


def test_what_is_missing_is_found_missing() -> None:
    assert not has_kernel("", "Conv", 21, "float64")
    assert not has_kernel("", "Gelu", 21, "float64")
    assert not has_kernel("", "Gelu", 17, "float32")
    assert not has_kernel("", "NoSuchOperator", 21, "float32")
    assert not has_kernel("my.domain", "Conv", 1, "float32")
    assert not has_kernel("", "Relu", 21, "no such type")
    assert not has_kernel("", "Relu", 21, "bool")
