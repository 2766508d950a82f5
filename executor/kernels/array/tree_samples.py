"""Nodes of a tree, drawn layer by layer. They are drawn on the host, and copied. Legend: N items."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from ....graph.ops.tree_samples import TdmSampler
from ....strategies.errors import InvalidValue
from ...device.device import Device
from ..registry import Step, kernel
from .draw import of_samples
from .time_steps import on_host

_PART = 4  # of a layer of less than so many times as many nodes as are asked for, all are put in an order


def _width(count: int, size: int) -> int:
    """Return how many words an item takes at a time to draw ``count`` of ``size`` nodes."""
    if count * _PART > size:
        return size
    return 2 * count + _PART if count else 0


def _first(places: Any, allowed: Any, count: int) -> Any:
    """Tell which of each row's places are the first ``count`` different ones that are allowed."""
    order = np.argsort(places, axis=1, kind="stable")
    by_place = np.take_along_axis(places, order, 1)
    is_new = np.ones(places.shape, bool)
    is_new[:, 1:] = by_place[:, 1:] != by_place[:, :-1]
    fits = np.empty_like(is_new)
    np.put_along_axis(fits, order, is_new, 1)
    fits &= allowed
    return fits & (np.cumsum(fits, 1) <= count)


def others(words: Callable[[int], Any], mine: Any, nodes: Any, count: int) -> Any:
    """Return ``count`` different nodes of a layer for each row, none of them its own, in random order.

    Nodes are tried in a random order, and the first that fit are taken. ``words(k)`` returns the 32-bit words
    of k draws, [N, k * width]: that each names a node, or of one draw, one for each node, by which all are put
    in an order.

    Raises:
        InvalidValue: a layer has too few nodes beside a row's own.
    """
    rows, size, draws = len(mine), len(nodes), 1
    result = np.zeros((rows, count), nodes.dtype)
    left = np.flatnonzero(mine)
    while left.size and count:
        drawn = words(draws)[left]
        if _width(count, size) == size:
            places = np.argsort(drawn, axis=1, kind="stable")
        else:
            places = (drawn.astype(np.uint64) * np.uint64(size) >> np.uint64(32)).astype(np.int64)
        selection = _first(places, nodes[places] != mine[left, None], count)
        enough = selection.sum(1) == count
        result[left[enough]] = nodes[places[enough][selection[enough]].reshape(-1, count)]
        left, draws = left[~enough], 2 * draws
        for row in left[:1]:
            beside = int(np.count_nonzero(nodes != mine[row]))
            if beside < count:
                raise InvalidValue(
                    f"tdm_sampler: a layer has {beside} nodes beside {int(mine[row])}, and {count} are asked "
                    "for: a node must not stand in its layer twice"
                )
    return result


@kernel("tdm_sampler")
def tdm_sampler(dev: Device, a: TdmSampler) -> Step:
    """A layer in which an item has no node (0) gives zeros, and its mask is 0."""
    counts, layers = list(a.neg_samples_num_list), list(pairwise(a.layer_offset_lod))
    stream, rows = of_samples(dev, a.seed), a.out.shape[0]
    widths = [_width(n, end - begin) for n, (begin, end) in zip(counts, layers, strict=True)]
    ends = np.cumsum([0, *widths])

    def run() -> None:
        items, travel = on_host(a.x).reshape(-1), on_host(a.travel)
        wrong = items[(items < 0) | (items >= len(travel))]
        if wrong.size:
            raise InvalidValue(
                f"tdm_sampler: item {int(wrong[0])} in X is outside the {len(travel)} rows of Travel"
            )
        ways, all_nodes = travel[items], on_host(a.layer).reshape(-1)
        out: list[Any] = []
        labels: list[Any] = []

        @cache
        def drawn(draws: int) -> Any:
            return stream.words((rows, int(ends[-1])), draws)

        def words_of(layer: int) -> Callable[[int], Any]:
            begin, end = ends[layer : layer + 2]
            return lambda draws: np.concatenate(drawn(draws)[:, :, begin:end], 1)

        for number, (count, (begin, end)) in enumerate(zip(counts, layers, strict=True)):
            mine = ways[:, number]
            if a.output_positive:
                out.append(mine[:, None])
                labels.append(mine[:, None] != 0)
            out.append(others(words_of(number), mine, all_nodes[begin:end], count))
            labels.append(np.zeros((rows, count), bool))
        nodes = np.concatenate(out, 1)
        spread = np.repeat(ways != 0, [n + a.output_positive for n in counts], axis=1)
        for result, values in (
            (a.out, nodes),
            (a.labels, np.concatenate(labels, 1)),
            (a.mask, spread),
        ):
            if result is not None:
                result[...] = dev.xp.asarray(values.astype(result.dtype))

    return run
