"""tasodsl: graph substitutions for ONNX models, said once as text, proved, and used to make models faster.

The Python interface is `load_onnx`, `optimize` and `export_onnx` (see `tasodsl.api`); the command line is `tasodsl`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasodsl.api import Model, Report, UserError, export_onnx, load_onnx, optimize

__all__ = ["Model", "Report", "UserError", "export_onnx", "load_onnx", "optimize"]


def __getattr__(name: str) -> object:
    """The interface is imported when first used: it needs onnx and the runtime, which are slow to import."""
    if name in __all__:
        return getattr(import_module("tasodsl.api"), name)
    raise AttributeError(f"module 'tasodsl' has no attribute {name!r}")
