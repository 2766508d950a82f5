"""Compiled loops between the products of attention: rows laid side by side, weights again, slopes.

Arrays are [B, H, rows, elements]; "near" are those whose elements lie without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ...codegen.native import launch
from ...codegen.text_loops import bind_text, named
from ..registry import Step
from .attention import MASKS, address, mask_kind, sizes_of, steps_between, steps_of

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
                        store(y, j + d{far}, load(x, i + d{near}) * scale)
"""
_DIVIDED = """scale = factor / f32(words[17])[b * words[18] + h * words[19] + t * words[20]]"""
_SHARES = """
    for b in range(B):
        for h in range(H):
            for t in range(T):
                r = (b * H + h) * T + t
                i = b * d_b + h * d_h + t * d_t
                j = b * out_b + h * out_h + t * out_t
                k = b * total_b + h * total_h + t * total_t
                total = np.float32(0.0)
                for d in range(S):
                    slope = load(d_out, i + d{d_step})
                    store(near, r * S + d, slope)
                    total = plus(total, slope * load(out, j + d{out_step}))
                top[r] = tops[k]
                part[r] = np.float32(1.0) / totals[k]
                share[r] = total
"""
_SLOPES = """
    factor = unbits(np.int32(factor_bits))
    for b in range(B):
        for h in range(H):
            for t in range(T):
                r = (b * H + h) * T + t
                row = r * S
                m = b * mask_b + h * mask_h + t * mask_t
                c = b * marks_b + h * marks_h + t * marks_t
                top, part, share = tops[r], parts[r], shares[r]
                {fetch}
                for s in range(S):
                    weight = decay_(load(scores, row + s){mask} - top) * part
                    kept = weight * factor
                    slope = load(slopes, row + s) * factor
                    {drop}
                    store(slopes, row + s, weight * (slope - share))
                    store(scores, row + s, kept)
"""
# Rows of a mask are far apart, so the processor does not foresee that the next one is wanted.
_FETCH = """
                for s in range(0, S, 16):
                    ahead(mask, m + mask_t + s)
"""
_DROP = """
                    dropped = load(marks, c + s) != 0
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
    arrays = named("d_out out tops totals near top part share", (*reads, near, *columns))
    numbers = {**steps_of("d", d_out), **steps_of("out", out), **steps_of("total", total)}
    steps = {"d_step": "" if _lies_close(d_out) else " * d_s"}
    steps["out_step"] = "" if _lies_close(out) else " * out_s"
    return bind_text(_SHARES.format(**steps), arrays, **sizes_of(d_out), **numbers)


def slopes(
    scores: Array, d_weights: Array, mask: Any, mark: Any, columns: Sequence[Any], factor: float
) -> Step:
    """Return the call that turns scores into weights as dropout left them, and d_weights into d_scores."""
    arrays = named("scores slopes mask marks", (scores, d_weights, mask, mark))
    arrays |= named("tops parts shares", columns)
    numbers = {**sizes_of(scores), **steps_of("mask", mask), **steps_of("marks", mark)}
    drop = "" if mark is None else _DROP.strip()
    fetch = _FETCH.strip() if mask_kind(mask) == "row" else ""
    text = _SLOPES.format(mask=MASKS[mask_kind(mask)], drop=drop, fetch=fetch)
    return bind_text(text, arrays, **numbers, factor_bits=_bits(factor))


def _copy(scale: str, words: list[int], pairs: Sequence[Copy], *alive: Any) -> Step:
    far = all(_lies_close(target) for _, target, _ in pairs)
    near = all(_lies_close(source) for source, _, _ in pairs)
    steps = {"near": "" if near else " * near", "far": "" if far else " * far"}
    return launch(_COPY.format(scale=scale, **steps), words, pairs, *alive)


def _lies_close(array: Array) -> bool:
    return bool(array.shape[3] == 1 or array.strides[3] == array.itemsize)


def _bits(factor: float) -> int:
    return int(np.float32(factor).view(np.int32))
