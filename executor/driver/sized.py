"""Specialise a program for the sizes of its feeds, where the number of its ops follows from them."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.program.program import Program
from ...graph.program.sizes import (
    Dims,
    Sizes,
    contradicted,
    open_ops,
    reads_sizes,
    with_open,
    with_sizes,
)
from ...strategies.bounded_dict import BoundedDict
from ...strategies.errors import FeedError
from ..feed.feeds import FeedShard
from .variant import VARIANTS_KEPT


class SizedPrograms:
    """A program, or its copies by the sizes that they are for."""

    def __init__(self, program: Program) -> None:
        self._reads_sizes = reads_sizes(program)
        self._open: Dims = frozenset()  # whose declared size some feed did not have
        self._take(program)

    def _take(self, program: Program) -> None:
        self.program = program
        self._needed = bool(open_ops(program))
        self._rows: bool | None = None  # whether dimension 0 counts, too
        self._copies: BoundedDict[Sizes, Program] = BoundedDict(VARIANTS_KEPT)

    def of(self, shards: Sequence[FeedShard]) -> tuple[Program, Sizes]:
        """Return the program for what is fed to each place, and the sizes that it is for.

        Raises:
            FeedError: places are fed sequences of different lengths.
        """
        if self._reads_sizes:
            dims = [contradicted(self.program, _shapes(shard)) for shard in shards]
            if more := frozenset().union(*dims):
                self._open |= more
                self._take(with_open(self.program, more))
        program, sizes = self._for_sizes(shards)
        opened = tuple((name, (dim,)) for name, dim in sorted(self._open))
        return program, (*opened, *sizes)

    def _for_sizes(self, shards: Sequence[FeedShard]) -> tuple[Program, Sizes]:
        if not self._needed:
            return self.program, ()
        if self._rows is None:
            shapes = _shapes(shards[0])
            without, rows = (open_ops(with_sizes(self.program, shapes, r)) for r in (False, True))
            self._rows = rows < without
            self._needed = rows < open_ops(self.program)
            return self._for_sizes(shards)
        sizes, *others = [self._sizes(shard) for shard in shards]
        for other in others:
            if other != sizes:
                raise FeedError(
                    f"the program is compiled for the sizes that are fed, and places are fed different ones: "
                    f"{dict(sizes)} and {dict(other)}. Feed sequences of one length to all places in a step."
                )
        if sizes not in self._copies:
            self._copies[sizes] = with_sizes(self.program, _shapes(shards[0]), self._rows)
        return self._copies[sizes], sizes

    def _sizes(self, shard: FeedShard) -> Sizes:
        shapes = _shapes(shard).items()
        return tuple((name, shape if self._rows else shape[1:]) for name, shape in shapes)


def _shapes(shard: FeedShard) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in shard.arrays.items()}
