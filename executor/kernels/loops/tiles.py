"""Compiled loops between the products of attention: rows laid side by side, weights again, slopes.

Arrays are [B, H, rows, elements]; "near" are those whose elements lie without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ...codegen.native import launch
from ...codegen.scalar_math import definitions
from ..registry import Step
from .attention import MASKS, address, mask_kind, steps_between

Copy = tuple[Any, Any, float]  # from where, to where, multiplied by what

_COPY = """
def run(words):
    for n in range(words[0]):
        k = 1 + 16 * n
        x, y, factor, D = f32(words[k]), f32(words[k + 1]), unbits(np.int32(words[k + 2])), words[k + 6]
        near, far = words[k + 10], words[k + 14]
        for b in range(words[k + 3]):
            for t in range(words[k + 5]):
                for h in range(words[k + 4]):
                    i = b * words[k + 7] + h * words[k + 8] + t * words[k + 9]
                    j = b * words[k + 11] + h * words[k + 12] + t * words[k + 13]
                    {scale}
                    for d in range(D):
                        store(y, j + d{far}, load(x, i + d{near}, 0, 2) * scale, 1, 2)
"""
_DIVIDED = """scale = factor / f32(words[17])[b * words[18] + h * words[19] + t * words[20]]"""
_SHARES = """
def run(words):
    d_out, out, tops, totals = f32(words[0]), f32(words[1]), f32(words[2]), f32(words[3])
    near, top, part, share = f32(words[4]), f32(words[5]), f32(words[6]), f32(words[7])
    H, T, D = words[9], words[10], words[11]
    d_step, o_step = words[15], words[19]
    for b in range(words[8]):
        for h in range(H):
            for t in range(T):
                r = (b * H + h) * T + t
                i = b * words[12] + h * words[13] + t * words[14]
                j = b * words[16] + h * words[17] + t * words[18]
                k = b * words[20] + h * words[21] + t * words[22]
                total = np.float32(0.0)
                for d in range(D):
                    slope = load(d_out, i + d{d_step}, 0, 3)
                    store(near, r * D + d, slope, 2, 3)
                    total = plus(total, slope * load(out, j + d{o_step}, 1, 3))
                top[r] = tops[k]
                part[r] = np.float32(1.0) / totals[k]
                share[r] = total
"""
_SLOPES = """
def run(words):
    scores, slopes, mask, marks = f32(words[0]), f32(words[1]), f32(words[2]), i8(words[3])
    tops, parts, shares = f32(words[4]), f32(words[5]), f32(words[6])
    H, T, S, factor, apart = words[8], words[9], words[10], unbits(np.int32(words[11])), words[15]
    for b in range(words[7]):
        for h in range(H):
            for t in range(T):
                r = (b * H + h) * T + t
                row = r * S
                m = b * words[12] + h * words[13] + t * words[14]
                c = b * words[16] + h * words[17] + t * words[18]
                top, part, share = tops[r], parts[r], shares[r]
                {fetch}
                for s in range(S):
                    weight = decay_(load(scores, row + s, 0, 4){mask} - top) * part
                    kept = weight * factor
                    slope = load(slopes, row + s, 1, 4) * factor
                    {drop}
                    store(slopes, row + s, weight * (slope - share), 1, 4)
                    store(scores, row + s, kept, 0, 4)
"""
# Rows of a mask are far apart, so the processor does not foresee that the next one is wanted.
_FETCH = """
                for s in range(0, S, 16):
                    ahead(mask, m + words[14] + s)
"""
_DROP = """
                    dropped = load(marks, c + s, 3, 4) != 0
                    kept = select(dropped, np.float32(0.0), kept)
                    slope = select(dropped, np.float32(0.0), slope)
"""


def copies(pairs: Sequence[Copy]) -> Step:
    """Return one call that makes several copies, each with a factor."""
    words = [len(pairs)]
    for x, y, factor in pairs:
        words += [address(x), address(y), _bits(factor), *x.shape]
        words += [*steps_between(x), *steps_between(y), 0]
    return _copy("scale = factor", words, pairs)


def divided(near: Any, target: Array, factor: float, total: Any) -> Step:
    """Return the call for target = near * factor / total, with one total for each row."""
    words = [1, address(near), address(target), _bits(factor), *near.shape]
    words += [*steps_between(near), *steps_between(target), 0, address(total)]
    words += steps_between(total)[:3]
    return _copy(_DIVIDED, words, [(near, target, factor)], total)


def shares(reads: Sequence[Any], near: Any, columns: Sequence[Any]) -> Step:
    """Return the call that lays side by side what the slopes of a block's rows are computed from.

    ``reads`` are the gradient of Out, Out, and each row's top and total; written are the gradient, and in
    columns top, 1 / total, and sum(d_out * out), which is sum(d_weights * weights).
    """
    d_out, out, _, total = reads
    words = [address(a) for a in (*reads, near, *columns)]
    words += [*d_out.shape, *steps_between(d_out), *steps_between(out), *steps_between(total)]
    steps = {"d_step": "" if _lies_close(d_out) else " * d_step"}
    steps["o_step"] = "" if _lies_close(out) else " * o_step"
    return launch(_SHARES.format(**steps), words, reads, near, columns)


def slopes(
    scores: Array, d_weights: Array, mask: Any, mark: Any, columns: Sequence[Any], factor: float
) -> Step:
    """Return the call that turns scores into weights as dropout left them, and d_weights into d_scores."""
    words = [address(a) for a in (scores, d_weights, mask, mark, *columns)]
    words += [*scores.shape, _bits(factor), *steps_between(mask), *steps_between(mark)]
    added = MASKS[mask_kind(mask)].replace("1, 2)", "2, 4)")
    drop = "" if mark is None else _DROP.strip()
    fetch = _FETCH.strip() if mask_kind(mask) == "row" else ""
    text = _SLOPES.format(mask=added, drop=drop, fetch=fetch)
    return launch(f"{definitions(text)}\n{text}", words, scores, d_weights, mask, mark, columns)


def _copy(scale: str, words: list[int], pairs: Sequence[Copy], *alive: Any) -> Step:
    far = all(_lies_close(target) for _, target, _ in pairs)
    near = all(_lies_close(source) for source, _, _ in pairs)
    steps = {"near": "" if near else " * near", "far": "" if far else " * far"}
    return launch(_COPY.format(scale=scale, **steps), words, pairs, *alive)


def _lies_close(array: Array) -> bool:
    return bool(array.shape[3] == 1 or array.strides[3] == array.itemsize)


def _bits(factor: float) -> int:
    return int(np.float32(factor).view(np.int32))
