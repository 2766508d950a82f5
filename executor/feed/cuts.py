"""Cut a batch over places: which rows, or sequences, each of them gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...graph.program.program import Program
from ...graph.program.role import GRAD_SUFFIX
from ...graph.program.variable import Variable
from ...strategies.errors import FeedError
from ..device.tensor import LoD
from .feeds import FeedShard, varies

Cuts = Sequence[Sequence[slice | None]]  # by place: the rows of each array in turn (None: all)


def split(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    lods: Mapping[str, LoD],
    places: int,
    *,
    partial: bool = False,
) -> list[FeedShard]:
    """Return each place's portion of a dict feed.

    A variable whose first dimension is unknown is cut along it, or into its sequences if it has a LoD; each
    place gets the same number and the last one the remainder too. A persistable is fed one value for all
    places, or one for each. What has as many rows for each place as it declares is cut, too; anything else goes
    whole to every place. ``partial``: with fewer rows than
    places, some get none.

    Raises:
        FeedError: no rows, or fewer rows than places (unless ``partial``).
    """
    variables = program.global_block().vars
    plain = {
        name: array for name, array in arrays.items() if not _by_sequence(variables, lods, name)
    }
    portions = cut(plain, cuts(program, plain, places, partial=partial))
    for portion in portions:
        whole = (n for n, array in plain.items() if n in lods and portion.arrays[n] is array)
        portion.lods.update((name, lods[name]) for name in whole)
    for name, array in arrays.items():
        if name not in plain:
            bounds = _bounds(
                variables[name], len(lods[name][0]) - 1, places, partial, "sequence(s)"
            )
            for portion, (begin, end) in zip(portions, bounds, strict=True):
                rows, portion.lods[name] = _cut_lod(lods[name], begin, end)
                portion.arrays[name] = array[rows]
    return [FeedShard({name: p.arrays[name] for name in arrays}, p.lods) for p in portions]


def _by_sequence(variables: Mapping[str, Variable], lods: Mapping[str, LoD], name: str) -> bool:
    return name in lods and varies(variables[name])


def refuse_uneven(
    program: Program, arrays: Mapping[str, np.ndarray], lods: Mapping[str, LoD], places: int
) -> None:
    """Refuse to split a batch over places whose feeds have different numbers of rows (or of sequences).

    Each feed would be cut by itself, and a place would get rows that do not belong together. Where each sample
    has as many rows of a feed (a sentence's words beside sentences), even cuts keep them together.

    Raises:
        FeedError: names the feeds and their rows.
    """
    variables = program.global_block().vars
    rows = {
        name: len(lods[name][0]) - 1 if name in lods else len(array)
        for name, array in arrays.items()
        if varies(variables[name]) and array.ndim
    }
    fewest = min(rows.values(), default=0)
    even = fewest > 0 and not any(count % fewest for count in rows.values())
    if places > 1 and len(set(rows.values())) > 1 and (fewest % places or not even):
        counts = ", ".join(f"{name!r} has {count}" for name, count in rows.items())
        flat = [name for name in rows if variables[name].lod_level and name not in lods]
        cure = f"Feed equally many, or a list of {places} dicts, one for each place."
        if flat:
            cure = (
                f"{flat[0]!r} is declared with lod_level={variables[flat[0]].lod_level}, and is fed without "
                f"sequences: feed fluid.create_lod_tensor(rows, lengths, place)."
            )
        raise FeedError(
            f"the feeds of one batch differ in their rows: {counts}. They cannot be split over {places} places "
            f"so that rows stay together. {cure}"
        )


def cuts(
    program: Program, arrays: Mapping[str, np.ndarray], places: int, *, partial: bool = False
) -> Cuts:
    """Return the rows of each array that each place gets, which follow from the shapes."""
    variables = program.global_block().vars
    by_array = [_rows(variables[name], a, places, partial) for name, a in arrays.items()]
    return [[rows[place] for rows in by_array] for place in range(places)]


def even_rows(by_place: Cuts) -> list[int | None] | None:
    """Return how many rows of each array every place gets (None: all), if they are as many and in turn."""
    counts: list[int | None] = []
    for each in zip(*by_place, strict=True):
        first = each[0]
        count = None if first is None else first.stop - first.start
        for place, rows in enumerate(each):
            expected = None if not count else slice(place * count, (place + 1) * count)
            if rows != expected:
                return None
        counts.append(count)
    return counts


def pieces(arrays: Iterable[np.ndarray], by_place: Cuts) -> list[list[np.ndarray]]:
    """Return each place's pieces of arrays."""
    whole = list(arrays)
    return [
        [array if rows is None else array[rows] for array, rows in zip(whole, own, strict=True)]
        for own in by_place
    ]


def cut(arrays: Mapping[str, np.ndarray], by_place: Cuts) -> list[FeedShard]:
    """Return each place's pieces of arrays, by name."""
    by_name = (dict(zip(arrays, own, strict=True)) for own in pieces(arrays.values(), by_place))
    return [FeedShard(own, {}) for own in by_name]


def _rows(
    variable: Variable, array: np.ndarray, places: int, partial: bool
) -> Sequence[slice | None]:
    if varies(variable) and array.ndim:
        return [slice(*b) for b in _bounds(variable, len(array), places, partial, "row(s)")]
    if variable.persistable or variable.name.endswith(GRAD_SUFFIX):
        return _one_or_each(variable, array, places)
    each = variable.shape[0] if variable.shape else 0
    if places > 1 and array.ndim and len(array) == each * places:
        return _equal_parts(each, places)
    return [None] * places


def _equal_parts(rows: int, places: int) -> list[slice]:
    return [slice(i * rows, (i + 1) * rows) for i in range(places)]


def _one_or_each(variable: Variable, array: np.ndarray, places: int) -> Sequence[slice | None]:
    """Cut a persistable's value (one for all places, or one for each) or a gradient's seed (one for each)."""
    shape = tuple(variable.shape or ())
    one_for_all = variable.persistable and array.shape == shape
    if places == 1 or one_for_all:
        return [None] * places
    each = shape[0] if shape else 1
    if array.ndim and len(array) == each * places:
        return _equal_parts(each, places)
    cure = f"{each * places} row(s), one value a place"
    if variable.persistable:
        cure = f"one value of shape {list(shape)}, or {cure}"
    raise FeedError(
        f"feed {variable.name!r}: got shape {list(array.shape)} for {places} places. Feed {cure}."
    )


def _bounds(
    variable: Variable, count: int, places: int, partial: bool, unit: str
) -> list[tuple[int, int]]:
    if count == 0:
        raise FeedError(f"feed {variable.name!r} has 0 rows: the batch is empty.")
    if count < places:
        if not partial:
            raise FeedError(
                f"feed {variable.name!r}: {count} {unit} cannot be split over {places} places. "
                f"Feed at least one per place, or use fewer places (CPU_NUM sets their number)."
            )
        return [(min(i, count), min(i + 1, count)) for i in range(places)]
    step = count // places
    return [(i * step, (i + 1) * step if i < places - 1 else count) for i in range(places)]


def _cut_lod(lod: LoD, begin: int, end: int) -> tuple[slice, LoD]:
    """Return the rows of sequences ``begin`` to ``end`` of the outermost level, and their own LoD."""
    levels = []
    for level in lod:
        offsets = level[begin : end + 1]
        begin, end = offsets[0], offsets[-1]
        levels.append(tuple([offset - begin for offset in offsets]) if begin else offsets)
    return slice(begin, end), tuple(levels)
