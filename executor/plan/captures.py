"""Captures: run a step on a GPU call by call or as CUDA graphs, in the same way on all ranks.

NCCL asks that a collective is in a graph on all ranks or on none, and that these graphs come of one capture. So
before the first collective of a step all ranks tell where they stand, and each draws the same conclusion from
the same numbers: the least that every rank can do. Graphs are kept by the plans that all ranks ran when they
were captured. A rank whose plan is another one (it was fed fewer rows, was idle, bound its plan again, was
replaced) knows no graph for it, and neither do its peers.
"""

from __future__ import annotations

import itertools
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from ..cuda.runtime import Fork, Runtime, Step, Waiting
from .group import Agree
from .instruction import Instruction

Key = tuple[int, ...]
"""The number of the plan that each rank runs."""

_WORTH_A_GRAPH = 3  # steps
_KEYS = 8  # for which a plan is captured; with more of its peers' plans a step is made call by call
_LEVEL_BITS, _LAYOUT_BITS = 2, 29
_numbers = itertools.count()  # a plan that is bound again is another one
_log = logging.getLogger("rowlock")


class Level(IntEnum):
    """What a rank can do in a step: make calls, launch graphs, or also capture new ones."""

    CALLS, REPLAY, CAPTURE = range(3)


class Standing(NamedTuple):
    """What a rank tells its peers: level, a hash of where its graphs hold collectives, its plan's number."""

    level: Level
    layout: int
    plan: int

    def pack(self) -> int:
        """Return one number of 63 bits."""
        return (self.plan << _LAYOUT_BITS | self.layout) << _LEVEL_BITS | self.level

    @classmethod
    def unpack(cls, number: int) -> Standing:
        """Undo :meth:`pack`."""
        level, rest = number & (1 << _LEVEL_BITS) - 1, number >> _LEVEL_BITS
        return cls(Level(level), rest & (1 << _LAYOUT_BITS) - 1, rest >> _LAYOUT_BITS)


@dataclass
class Segment:
    """Calls between two points at which a graph is split; ``capturable``: one graph can hold them.

    ``graphs`` has one graph for each key if the calls ``meet`` peers, else one for all.
    """

    capturable: bool
    steps: list[Step]
    first: Instruction
    ops: dict[str, str]  # op -> where the first of them was built
    graphs: dict[Key, Step] = field(default_factory=dict)
    refused: str = ""  # why it could not be captured

    @cached_property
    def meetings(self) -> int:
        """How many collectives a graph of these calls would hold."""
        return sum(isinstance(step, Fork) for step in self.steps) if self.capturable else 0

    def worth_a_graph(self) -> bool:
        """Tell whether to capture it: what holds a collective always is, for its peers' may be longer."""
        return self.capturable and (len(self.steps) >= _WORTH_A_GRAPH or self.meetings > 0)

    def graph_for(self, key: Key) -> Step | None:
        """Return the graph to launch, if there is one."""
        return self.graphs.get(key if self.meetings else ())

    def capture(self, runtime: Runtime, key: Key) -> None:
        """Make a graph; what CUDA refuses to capture goes on call by call."""
        if self.refused or not self.worth_a_graph() or self.graph_for(key) is not None:
            return
        try:
            self.graphs[key if self.meetings else ()] = runtime.capture(self.steps)
        except Exception as error:
            self.refused = f"{type(error).__name__}: {error}"
            _log.warning("work from %s on cannot be captured: %s", self.first, self.refused)


class Captures:
    """The graphs of one plan.

    ``agree`` tells the peers a number before the first collective, and returns that of every rank (None: there
    are no peers, or graphs hold no collectives). ``settle`` is called before work is captured.
    """

    def __init__(
        self,
        runtime: Runtime,
        segments: Sequence[Segment],
        agree: Agree | None = None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._settle = settle
        self._runtime, self._segments, self._agree = runtime, segments, agree
        self._plan = next(_numbers)
        self._meeting = [segment for segment in segments if segment.meetings]
        cut = [segment.meetings for segment in self._meeting]
        self._layout = zlib.crc32(repr(cut).encode()) & (1 << _LAYOUT_BITS) - 1
        self._keys: set[Key] = set()
        self._replays: dict[
            Key, Key
        ] = {}  # what all ranks told -> the key, which took time to find

    def key(self, able: bool) -> Key | None:
        """Agree with the peers on how to run the step that begins; return the key of the graphs to launch.

        ``able``: this rank can launch graphs in this step. None: all make every call.

        Raises:
            CollectiveError: a rank is missing, or begins another step or program.
        """
        if self._agree is None:
            own = (self._plan,)
            return own if able and (own in self._keys or self._capture(own)) else None
        level = self._level() if able else Level.CALLS
        numbers = self._ask(self._agree, Standing(level, self._layout, self._plan).pack())
        key = self._replays.get(numbers)
        return key if key is not None else self._conclude(numbers)

    def _ask(self, agree: Agree, own: int) -> Key:
        """Return what all ranks tell; the GPU goes on meanwhile, for a peer may wait for it."""
        numbers: list[int] = []
        self._runtime.host(Waiting(lambda: numbers.extend(agree(own))))
        return tuple(numbers)

    def _level(self) -> Level:
        if any(segment.refused for segment in self._meeting):
            return Level.CALLS
        return Level.CAPTURE if len(self._keys) < _KEYS else Level.REPLAY

    def _conclude(self, numbers: Key) -> Key | None:
        peers = [Standing.unpack(number) for number in numbers]
        level = min(peer.level for peer in peers)
        if level == Level.CALLS or any(peer.layout != self._layout for peer in peers):
            return None
        key = tuple(peer.plan for peer in peers)
        if key in self._keys:  # on all ranks: they added it together, and forget it with the plan
            self._replays[numbers] = key
            return key
        return key if level == Level.CAPTURE and self._capture(key) else None

    def _capture(self, key: Key) -> bool:
        """Make the graphs for a key; tell whether every rank could."""
        self._settle()
        for segment in self._segments:
            segment.capture(self._runtime, key)
        if self._agree is not None:
            whole = not any(segment.refused for segment in self._meeting)
            if not all(self._ask(self._agree, int(whole))):
                for segment in self._meeting:
                    segment.graphs.pop(key, None)
                return False
        self._keys.add(key)
        return True

    def close(self) -> None:
        """Let go of the graphs; nothing of them is under way."""
        self._keys.clear()
        self._replays.clear()
        for segment in self._segments:
            segment.graphs.clear()
