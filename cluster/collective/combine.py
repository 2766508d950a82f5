"""Combine arrays element by element, in the order given, in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...strategies.errors import CollectiveError
from ...strategies.types import BFLOAT16, is_float, is_low

BLOCK = 1 << 19  # bytes: two such blocks stay in a core's cache between their sum and its copies

_COMBINE: dict[str, Any] = {
    "sum": np.add,
    "mean": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def check_op(op: str, dtype: np.dtype) -> None:
    """Refuse a way to combine that is not known, or that has no meaning for elements of this type."""
    if op not in _COMBINE:
        raise CollectiveError(f"collective op {op!r} is not one of {', '.join(_COMBINE)}.")
    if dtype.kind in "iu" or is_float(dtype):
        return
    if dtype.kind != "b" or op not in ("min", "max"):
        ops = "min and max" if dtype.kind == "b" else "no collective op"
        raise CollectiveError(f"collective op {op!r}: {ops} can combine elements of {dtype}.")


def flat(array: np.ndarray) -> np.ndarray:
    """Return ``array`` as one row over the same memory.

    Raises:
        CollectiveError: it is not contiguous, so that a row would be a copy, or holds no numbers.
    """
    if not array.flags.c_contiguous:
        raise CollectiveError("a collective needs a contiguous array; use numpy.ascontiguousarray.")
    row = array.reshape(-1)
    if row.dtype.kind not in "iub" and not is_float(row.dtype):
        raise CollectiveError(f"a collective cannot take elements of {array.dtype}.")
    return row


def plain(row: np.ndarray) -> np.ndarray:
    """Return a row as numbers that NumPy copies fast (bfloat16: as uint16)."""
    return row.view(np.uint16) if row.dtype == BFLOAT16 else row


def describe(row: np.ndarray) -> str:
    """Return the type and number of a row's elements, as messages have them."""
    return f"{row.dtype}[{row.size}]"


def combine(parts: Sequence[np.ndarray], op: str, out: np.ndarray, divisor: int = 1) -> None:
    """Combine rows in their order into ``out``, and divide (a mean is a sum otherwise).

    float16 and bfloat16 are combined in float32 and rounded once, to the nearest even.
    ``out`` may be one of the first two; see :func:`combine_apart`.
    """
    if is_low(out.dtype):
        wide = parts[0].astype(np.float32)
        for part in parts[1:]:
            _COMBINE[op](wide, part.astype(np.float32), out=wide)
        if divisor > 1:
            np.divide(wide, np.float32(divisor), out=wide)
        out[...] = wide
        return
    join: Callable[..., Any] = _COMBINE[op]
    if len(parts) == 1:
        out[...] = parts[0]
    else:
        join(parts[0], parts[1], out=out)
    for part in parts[2:]:
        join(out, part, out=out)
    if divisor > 1:
        np.divide(out, divisor, out=out, casting="unsafe")


def bound_combine(
    parts: Sequence[np.ndarray], op: str, out: np.ndarray
) -> list[Callable[[], object]]:
    """Return the calls that do :func:`combine` on these arrays."""
    if is_low(out.dtype) or len(parts) == 1:
        return [partial(combine, parts, op, out)]
    first, second, *rest = parts
    join: Callable[..., Any] = _COMBINE[op]
    return [partial(join, first, second, out), *(partial(join, out, part, out) for part in rest)]


def combine_apart(parts: Sequence[np.ndarray], op: str, out: np.ndarray, divisor: int = 1) -> None:
    """Combine rows in their order into ``out``, which may be any of them, block by block."""
    aliased = any(out is part for part in parts[2:]) or len(parts) > 2
    for block in blocks(out.size, out.itemsize):
        pieces = [part[block] for part in parts]
        total = np.empty_like(out[block]) if aliased else out[block]
        combine(pieces, op, total, divisor)
        if aliased:
            plain(out[block])[...] = plain(total)


def combine_everywhere(parts: Sequence[np.ndarray], op: str, chunk: slice, divisor: int) -> None:
    """Combine a chunk of all rows and write it to each of them, block by block."""
    for block in blocks(chunk.stop - chunk.start, parts[0].itemsize, chunk.start):
        pieces = [part[block] for part in parts]
        combine(pieces, op, pieces[0], divisor)
        first = plain(pieces[0])
        for piece in pieces[1:]:
            plain(piece)[...] = first


def blocks(count: int, itemsize: int, begin: int = 0) -> Iterator[slice]:
    """Yield slices of at most BLOCK bytes that cover ``count`` elements from ``begin`` on."""
    step = max(BLOCK // itemsize, 1)
    for at in range(begin, begin + count, step):
        yield slice(at, min(at + step, begin + count))


def share(count: int, itemsize: int, rank: int, size: int) -> slice:
    """Return the rank's part of ``count`` elements; parts of many begin at pages, so none is written by two."""
    each = -(-count // size)
    if each * itemsize > 1 << 14:
        page = max(4096 // itemsize, 1)
        each = -(-each // page) * page
    return slice(min(rank * each, count), min((rank + 1) * each, count))
