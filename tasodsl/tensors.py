"""Reading and contracting arrays whose axes are numbered from the right.

Axis 0 is an array's last one, whatever its rank, as in numpy's broadcasting. An array has size 1 along an axis that its
entries do not depend on, or lacks it. Nothing here makes a temporary of more than a given number of entries: `TooLarge`
says what it would have been.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class TooLarge(Exception):
    """A temporary of this shape exceeds the limit: ask for a part of the result."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(f"a temporary of shape {shape}")
        self.shape = shape


def axis_range(start: int, stop: int, axis: int) -> Array:
    """The integers from `start` up to `stop` along one axis."""
    return np.arange(start, stop).reshape((stop - start,) + (1,) * axis)


def bounded(shape: tuple[int, ...], limit: float) -> None:
    if math.prod(shape) > limit:
        raise TooLarge(shape)


def wide(x: Any) -> Any:
    """Floating point as float64; anything else as it is."""
    dtype = getattr(x, "dtype", None)
    return np.asarray(x, np.float64) if dtype is not None and dtype != np.float64 and _is_floating(dtype) else x


def _is_floating(dtype: np.dtype[Any]) -> bool:
    # The small float types of ml_dtypes are void types to numpy.
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def axes_of(x: Array) -> list[tuple[int, int]]:
    """The axes along which `x` has another size than 1, leftmost first, with their sizes."""
    return [(x.ndim - 1 - k, n) for k, n in enumerate(x.shape) if n != 1]


def shaped(x: Array, axes: Sequence[int]) -> Array:
    """`x`, whose dimensions are these axes in falling order, with size 1 along all the others."""
    shape = [1] * (max(axes, default=-1) + 1)
    for axis, n in zip(axes, x.shape, strict=True):
        shape[len(shape) - 1 - axis] = n
    return x.reshape(shape)


def independent(x: Array) -> Array:
    """`x` with size 1 along each axis where all its entries are equal."""
    for k, n in enumerate(x.shape):
        if n > 1:
            first = x.take([0], k)
            if (x == first).all():
                x = first
    return x


def gather(tensor: Array, indices: Sequence[Array], limit: float) -> Array:
    """`tensor[indices]` with in-bounds indices, laid out along the axes that the indices depend on."""
    indices = [independent(i) for i in indices]
    axes = [axis for i in indices for axis, _ in axes_of(i)]
    if len(set(axes)) == len(axes):
        return _orthogonal(tensor, indices, axes, limit)
    bounded(np.broadcast_shapes(*(i.shape for i in indices)), limit)
    return tensor[tuple(indices)]


def _orthogonal(tensor: Array, indices: Sequence[Array], axes: Sequence[int], limit: float) -> Array:
    """The same where no two indices depend on one axis: dimension by dimension, the ones that shrink first."""
    flat = [i.reshape(-1) for i in indices]
    out = tensor
    for d in sorted(range(tensor.ndim), key=lambda d: len(flat[d]) / tensor.shape[d]):
        places = flat[d]
        plain = _progression(places)
        if plain is not None:
            out = out[(slice(None),) * d + (plain,)]
            continue
        if out.size // out.shape[d] * len(places) > limit:
            raise TooLarge(np.broadcast_shapes(*(i.shape for i in indices)))
        out = np.take(out, places, axis=d)
    sizes = [n for i in indices for _, n in axes_of(i)]
    order = sorted(range(len(axes)), key=lambda k: -axes[k])
    return shaped(out.reshape(sizes).transpose(order), [axes[k] for k in order])


def _progression(places: Array) -> slice | None:
    """The slice that takes these places, if there is one: views cost nothing."""
    if len(places) == 0:
        return slice(0, 0)
    first, last = int(places[0]), int(places[-1])
    step = int(places[1]) - first if len(places) > 1 else 1
    if step < 1 or not (places == np.arange(first, first + step * len(places), step)).all():
        return None
    return slice(first, last + 1, step)


def contract(factors: Sequence[Array], sizes: Sequence[int], depth: int, limit: float) -> Any:
    """The sum of the product of `factors` over the axes `depth`, `depth + 1`, … of these sizes."""
    if 0 in sizes:
        return 0
    found = [axes_of(f) for f in factors]
    present = sorted({axis for axes in found for axis, _ in axes}, reverse=True)
    # A term that does not depend on an axis occurs once for each place on it.
    times = math.prod(n for k, n in enumerate(sizes) if depth + k not in present)
    outer = [axis for axis in present if axis < depth]
    if len(factors) == 1:
        (one,) = factors
        total = _plain_sum(one, depth)
    else:
        shape = np.broadcast_shapes(*(f.shape for f in factors))
        bounded(shape[len(shape) - depth :] if depth < len(shape) else shape, limit)
        label = {axis: k for k, axis in enumerate(present)}
        operands: list[Any] = []
        for f, axes in zip(factors, found, strict=True):
            operands.extend([wide(f).reshape([n for _, n in axes]), [label[axis] for axis, _ in axes]])
        total = shaped(np.asarray(np.einsum(*operands, [label[axis] for axis in outer], optimize=True)), outer)
    return total if times == 1 else total * times


def _plain_sum(x: Array, depth: int) -> Array:
    dtype = np.float64 if _is_floating(x.dtype) else None
    return np.asarray(x.sum(axis=tuple(range(x.ndim - depth)), dtype=dtype)) if x.ndim > depth else wide(x)


def extreme(x: Array, depth: int, kind: str) -> Array:
    """The greatest (`max`) or least entry over the axes from `depth` on."""
    if x.ndim <= depth:
        return x
    axes = tuple(range(x.ndim - depth))
    return np.asarray(x.max(axis=axes) if kind == "max" else x.min(axis=axes))
