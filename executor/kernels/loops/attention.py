"""Attention with compiled loops over rows of scores: one call for mask, maximum, exp and sum of a block."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ops.operands import Array
from ...codegen.text_loops import bind_text, named
from ..array.attention import Attention, register
from ..registry import Step, kernel
from .elementwise import in_float32
from .random import CompiledDropout

# A float's bits, read as an integer and its lower 31 bits turned round if it is negative, order as floats do:
# the greatest of integers is found by whole vectors, that of floats, which may be nan, is not.
_ROWS = """
    for b in range(B):
        for h in range(H):
            for t in range(T):
                row = ((b * H + h) * T + t) * S
                at = b * total_b + h * total_h + t * total_t
                m = b * mask_b + h * mask_h + t * mask_t
                {body}
"""
_SOFTEN = """
                best = np.int32(-2147483648)
                for s in range(S):
                    v = load(scores, row + s){mask}
                    store(scores, row + s, v)
                    k = ordered(v)
                    best = select(k > best, k, best)
                top = unordered(best)
                total = np.float32(0.0)
                for s in range(S):
                    e = decay_(load(scores, row + s) - top)
                    store(scores, row + s, e)
                    total = plus(total, e)
                tops[at] = top
                totals[at] = total
"""
_AGAIN = """
                top = tops[at]
                part = np.float32(1.0) / totals[at]
                for s in range(S):
                    v = load(scores, row + s){mask}
                    store(scores, row + s, decay_(v - top) * part)
"""
_SLOPE = """
                share = totals[at]
                for s in range(S):
                    d = load(scores, row + s) - share
                    store(scores, row + s, d * load(mask, m + s))
"""
MASKS = {  # what is added to a score of key s
    "none": "",
    "one": " + mask[m]",
    "row": " + load(mask, m + s)",
    "apart": " + load(mask, m + s * mask_s)",
}


def _launch(body: str, scores: Array, mask: Any, top: Any, total: Any) -> Step:
    """Return the call of a loop over the rows of ``scores``, which lie together; Mask may be broadcast."""
    text = _ROWS.format(body=body.format(mask=MASKS[mask_kind(mask)]).strip())
    arrays = {"scores": scores, "mask": mask, "tops": top, "totals": total}
    numbers = {**sizes_of(scores), **steps_of("total", total), **steps_of("mask", mask)}
    return bind_text(text, arrays, **numbers)


def mask_kind(mask: Any) -> str:
    """Return how the elements of a mask's row lie: a key of :data:`MASKS`."""
    if mask is None:
        return "none"
    return "one" if mask.shape[3] == 1 else "row" if mask.strides[3] == mask.itemsize else "apart"


def address(array: Array) -> int:
    """Return where an array lies; 0 for none."""
    return 0 if array is None else int(array.ctypes.data)


def steps_between(array: Array) -> list[int]:
    """Return how far apart elements lie along four dimensions, in elements; 0 where there is one or none."""
    if array is None:
        return [0] * 4
    pairs = zip(array.shape, array.strides, strict=True)
    return [0 if size == 1 else stride // array.itemsize for size, stride in pairs]


def sizes_of(scores: Array) -> dict[str, int]:
    """Return the sizes of [B, H, T, S] by name."""
    return named("B H T S", scores.shape)


def steps_of(name: str, array: Array) -> dict[str, int]:
    """Return :func:`steps_between` for a text: ``name_b``, ``name_h``, ``name_t`` and ``name_s``."""
    return {f"{name}_{d}": step for d, step in zip("bhts", steps_between(array), strict=True)}


def soften(scores: Array, mask: Any, top: Any, total: Any) -> Step:
    """Return the call for exp(scores + mask - top), in place, with top and total of each row."""
    return _launch(_SOFTEN, scores, mask, top, total)


class NativeAttention(Attention):
    """Attention whose rows are computed by compiled loops."""

    drops = CompiledDropout

    def soften(self, scores: Array, mask: Any, top: Any, total: Any) -> list[Step]:
        return [soften(scores, mask, top, total)]

    def soften_again(self, scores: Array, mask: Any, top: Any, total: Any) -> list[Step]:
        return [_launch(_AGAIN, scores, mask, top, total)]

    def slope(self, weights: Array, d_weights: Array, share: Any) -> list[Step]:
        return [_launch(_SLOPE, d_weights, weights, share, share)]


register(partial(kernel, on=("llvm",), takes=in_float32), NativeAttention)
