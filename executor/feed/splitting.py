"""Split a feed over places, and weigh the samples of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.program.program import Program
from ...strategies.bounded_dict import BoundedDict
from ...strategies.current import current_config
from ...strategies.errors import FeedError, FeedTypeError, InvalidType
from ..device.tensor import LoD
from .cuts import Cuts, cut, cuts, even_rows, pieces, refuse_uneven, split
from .feeds import Copy, FeedShard, check, convert, rows_of, sequences_in, shapes_of, varies
from .fetches import joined_lods
from .reader import batches_for

# feeds of so many shapes are remembered; a mix of 200 lengths is not learned anew
SHAPES_KEPT = 256


class Portions(Sequence[FeedShard]):
    """The feed of each place.

    ``cuts``: how the arrays are cut, the same object for feeds of the same names and shapes (None: not known).
    ``whole``: the arrays, which are cut only when a portion is read.
    """

    def __init__(
        self,
        shards: Iterable[FeedShard] = (),
        cuts: Cuts | None = None,
        whole: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.cuts, self.whole = cuts, whole
        self._shards = list(shards)

    def _all(self) -> list[FeedShard]:
        if self.whole is not None and self.cuts is not None and not self._shards:
            self._shards = cut(self.whole, self.cuts)
        return self._shards

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, place: Any) -> Any:
        return self._all()[place]

    def __iter__(self) -> Iterator[FeedShard]:
        return iter(self._all())

    def stacked_shapes(self) -> list[tuple[int, ...]] | None:
        """Return the shapes of the arrays with a leading dimension of places, 1 for arrays that are not cut.

        None: places get different numbers of rows.
        """
        assert self.whole is not None and self.cuts is not None
        rows, places = even_rows(self.cuts), len(self.cuts)
        if rows is None:
            return None
        return [
            (1, *array.shape) if count is None else (places, count, *array.shape[1:])
            for array, count in zip(self.whole.values(), rows, strict=True)
        ]

    def stacks(self, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Return the arrays in these shapes, see :meth:`stacked_shapes`."""
        assert self.whole is not None
        return [a.reshape(shape) for a, shape in zip(self.whole.values(), shapes, strict=True)]

    def by_place(self) -> list[list[np.ndarray]]:
        """Return the arrays of each place, without names; there must be ``cuts``."""
        assert self.whole is not None and self.cuts is not None
        return pieces(self.whole.values(), self.cuts)


class Splitter:
    """Splits feeds of a program over ``count`` places.

    ``weighted``: gradients are weighted by samples. ``partial``: a place may get no rows, as the program has no
    gradients, or that place's would have weight 0.
    """

    def __init__(self, program: Program, count: int, *, weighted: bool, partial: bool) -> None:
        self.program, self.count = program, count
        self._cuts_by_shape: BoundedDict[Any, Cuts] = BoundedDict(SHAPES_KEPT)
        # by all names fed: those without a batch
        self._fixed: dict[tuple[str, ...], list[str]] = {}
        self.weighted, self.partial = weighted, partial

    def batches(self, feed: Any, iterations: int, keep: Copy | None = None) -> list[Portions]:
        """Return the feed of each place: one for all steps of the call, or with readers one for each step.

        ``keep`` copies arrays that the user could change later.

        Raises:
            FeedError: the feed cannot be split, or misses a place.
        """
        within = current_config().step_deadline_s
        per_step = batches_for(
            self.program, feed, self.count, iterations, within, partial=self.partial
        )
        if per_step is None:
            return [self._portions(feed, keep)]
        shares = self._portions(feed, keep)
        return [
            Portions(
                FeedShard({**fed.arrays, **from_readers.arrays}, {**fed.lods, **from_readers.lods})
                for fed, from_readers in zip(shares, self._portions(batches), strict=True)
            )
            for batches in per_step
        ]

    def _portions(self, feed: Any, keep: Copy | None = None) -> Portions:
        """Return the feed of each place."""
        count = self.count
        if feed is None:
            return Portions(FeedShard({}, {}) for _ in range(count))
        if isinstance(feed, (dict, Mapping)):  # a dict is known at once
            shape_cuts = None if keep is not None else self._cuts_by_shape.get(shapes_of(feed))
            if shape_cuts is not None:  # these were converted before, and need no conversion
                return Portions(cuts=shape_cuts, whole=dict(feed))
            arrays = convert(self.program, feed, keep)
            lods = sequences_in(feed)
            if lods:
                refuse_uneven(self.program, arrays, lods, count)
                return Portions(split(self.program, arrays, lods, count, partial=self.partial))
            return self._alike_before(arrays)
        if not isinstance(feed, (list, tuple)):
            raise FeedTypeError(
                f"feed must be a dict or a list of dicts, got {type(feed).__name__}. What feed_parallel "
                f"gives goes through list() first."
            )
        for item in feed:
            if not isinstance(item, Mapping):
                raise InvalidType(
                    f"each element of a feed list must be a dict, got {type(item).__name__}."
                )
        each = [FeedShard(convert(self.program, item, keep), sequences_in(item)) for item in feed]
        if self.partial and each and rows_of(self.program, each):
            each += [self._rowless(each[0])] * (count - len(each))
        if len(each) != count:
            raise FeedError(
                f"the feed list has {len(feed)} elements for {count} places. Give a dict "
                "for each place, or one dict, whose rows are split over the places."
            )
        return self._alike(each)

    def _rowless(self, portion: FeedShard) -> FeedShard:
        """Return the feed of a place without rows beside another's."""
        variables = self.program.global_block().vars
        arrays = portion.arrays.items()
        return FeedShard(
            {n: a[:0] if varies(variables[n]) and a.ndim else a for n, a in arrays}, {}
        )

    def _alike_before(self, arrays: dict[str, np.ndarray]) -> Portions:
        """Return portions of arrays, cut like earlier ones of the same shapes."""
        shapes = shapes_of(arrays)
        shape_cuts = self._cuts_by_shape.get(shapes)
        if shape_cuts is None:
            refuse_uneven(self.program, arrays, {}, self.count)
            variables = self.program.global_block().vars
            # Those that are cut by rows are checked whole: errors tell the size that is fed.
            check(self.program, {n: a for n, a in arrays.items() if varies(variables[n])})
            shape_cuts = self._cuts_by_shape[shapes] = cuts(
                self.program, arrays, self.count, partial=self.partial
            )
        return Portions(cuts=shape_cuts, whole=arrays)

    def _alike(self, portions: list[FeedShard]) -> Portions:
        """Check that all places are fed the same names, and rows where they need some; order names alike."""
        names = list(portions[0].arrays)
        for i, portion in enumerate(portions):
            if set(portion.arrays) != set(names):
                raise FeedError(
                    f"place {i} is fed {sorted(portion.arrays)}, place 0 {sorted(names)}: "
                    f"feed the same names."
                )
        for name, counts in rows_of(self.program, portions).items():
            if not all(counts) and not (self.partial and any(counts)):
                raise FeedError(
                    f"feed {name!r}: place {counts.index(0)} gets no rows (rows by place: {counts})."
                )
        depths = {name: max(len(p.lods.get(name, ())) for p in portions) for name in names}
        levels = {name: depth for name, depth in depths.items() if depth}
        return Portions(
            FeedShard({name: p.arrays[name] for name in names}, _lods_of(p, place, levels))
            for place, p in enumerate(portions)
        )

    def parts(self, portions: Sequence[FeedShard]) -> list[float]:
        """Return the weight of each place's samples, if they are weighed."""
        if not self.weighted:
            return [1.0] * len(portions)
        return _sample_shares(rows_of(self.program, portions))

    def whole(self, batches: Sequence[Portions]) -> frozenset[str]:
        """Return the names of feeds that are not cut and have the same bits on all places."""
        fixed = self._fixed_of(tuple(batches[0][0].arrays))
        if not fixed:
            return frozenset()
        return frozenset(
            n for n in fixed if all(_have_same_bits([p.arrays[n] for p in b]) for b in batches)
        )

    def _fixed_of(self, names: tuple[str, ...]) -> list[str]:
        fixed = self._fixed.get(names)
        if fixed is None:
            variables = self.program.global_block().vars
            fixed = self._fixed[names] = [n for n in names if not varies(variables[n])]
        return fixed

    def cut_alike(self, batches: Sequence[Portions]) -> bool:
        """Tell whether all feeds of these shapes are cut alike."""
        if len(batches) > 1 or batches[0].whole is None or batches[0].cuts is None:
            return False
        names = tuple(batches[0].whole)
        fixed = [names.index(name) for name in self._fixed_of(names)]
        return all(own[k] is None for own in batches[0].cuts for k in fixed)

    def again(self, portions: Sequence[FeedShard]) -> Portions:
        """Join a feed that was split over another number of places, and split it over these."""
        variables = self.program.global_block().vars
        arrays, lods = {}, {}
        for name in portions[0].arrays:
            each = [portion.arrays[name] for portion in portions]
            if varies(variables[name]) and each[0].ndim:
                arrays[name] = np.concatenate(each)
                lod = joined_lods([portion.lods.get(name, ()) for portion in portions])
                if lod:
                    lods[name] = lod
            else:
                arrays[name] = each[0]
                if name in portions[0].lods:
                    lods[name] = portions[0].lods[name]
        return Portions(split(self.program, arrays, lods, self.count, partial=self.partial))


def _lods_of(portion: FeedShard, place: int, levels: Mapping[str, int]) -> dict[str, LoD]:
    """Return the LoDs of a place, in the order of ``levels``; where it has no rows, it has no sequences.

    Raises:
        FeedError: it has rows without the sequences that other places have, or with fewer levels of them.
    """
    lods = dict[str, LoD]()
    for name, count in levels.items():
        lod = portion.lods.get(name, ())
        if len(lod) < count and portion.arrays[name].size:
            depth, others = f"{len(lod)} level(s) of sequences", str(count)
            if not lod:
                depth, others = "rows without sequences", "sequences"
            raise FeedError(
                f"feed {name!r}: place {place} is fed {depth}, others are fed {others}. Feed "
                f"fluid.create_lod_tensor(rows, lengths, place) for each place."
            )
        lods[name] = lod if len(lod) == count else ((0,),) * count
    return lods


def _have_same_bits(arrays: Sequence[np.ndarray]) -> bool:
    """Tell whether arrays have the same bits."""
    first, *rest = arrays
    return all(a is first or _bits(a) == _bits(first) for a in rest)


def _bits(array: np.ndarray) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tobytes()


def _sample_shares(rows: Mapping[str, Sequence[int]]) -> list[float]:
    """Return each place's part of all samples.

    Raises:
        FeedError: the batch variables disagree about it, or there is none.
    """
    shares: dict[str, list[float]] = {}
    for name, counts in rows.items():
        total = sum(counts)
        shares[name] = [count / total if total else 0.0 for count in counts]
    by_feed = list(shares.values())
    if not by_feed or any(not np.allclose(part, by_feed[0]) for part in by_feed):
        counts_text = ", ".join(f"{name!r}: {list(counts)}" for name, counts in rows.items())
        raise FeedError(
            f"SampleWeighted needs each place's number of samples, and the feeds differ in their rows: "
            f"{counts_text or 'no batch variable is fed'}."
        )
    return by_feed[0]
