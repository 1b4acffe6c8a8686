"""Element types by name: ONNX's numbers, our names, numpy's types.

Our names are numpy's where numpy (or ml_dtypes) has the type, and "string" for text.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import ml_dtypes
import numpy as np
import onnx

DTYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {
        onnx.TensorProto.FLOAT: "float32",
        onnx.TensorProto.UINT8: "uint8",
        onnx.TensorProto.INT8: "int8",
        onnx.TensorProto.UINT16: "uint16",
        onnx.TensorProto.INT16: "int16",
        onnx.TensorProto.INT32: "int32",
        onnx.TensorProto.INT64: "int64",
        onnx.TensorProto.STRING: "string",
        onnx.TensorProto.BOOL: "bool",
        onnx.TensorProto.FLOAT16: "float16",
        onnx.TensorProto.DOUBLE: "float64",
        onnx.TensorProto.UINT32: "uint32",
        onnx.TensorProto.UINT64: "uint64",
        onnx.TensorProto.COMPLEX64: "complex64",
        onnx.TensorProto.COMPLEX128: "complex128",
        onnx.TensorProto.BFLOAT16: "bfloat16",
        onnx.TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
        onnx.TensorProto.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
        onnx.TensorProto.FLOAT8E5M2: "float8_e5m2",
        onnx.TensorProto.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
        onnx.TensorProto.UINT4: "uint4",
        onnx.TensorProto.INT4: "int4",
        onnx.TensorProto.FLOAT4E2M1: "float4_e2m1fn",
    }
)

DTYPE_NUMBERS: Mapping[str, int] = MappingProxyType({name: number for number, name in DTYPE_NAMES.items()})

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy type of elements called `name` ("string" is numpy's object)."""
    if name == "string":
        return np.dtype(object)
    special = getattr(ml_dtypes, name, None)
    return np.dtype(name) if special is None else np.dtype(special)


def bit_width(name: str) -> int:
    """How many bits an element takes in a file; text counts as its reference."""
    return 4 if name in ("int4", "uint4", "float4_e2m1fn") else numpy_dtype(name).itemsize * 8
