"""The decisions of ``transpile``, and the programs before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..program.program import Program
from .placement import Shard, Trained
from .table import Table
from .topology import Topology


@dataclass
class Plan:
    """A topology, what is trained (``dealt``: in the order in which servers were dealt), and all programs.

    ``first_step``: from which number on a schedule counts steps in asynchronous modes (Noam's: 1).
    """

    topology: Topology
    trained: list[Trained]
    dealt: list[Trained]
    main: Program
    startup: Program
    source: Program
    startup_source: Program
    servers: dict[str, tuple[Program, Program]] = field(default_factory=dict)
    table: Table | None = None  # is_distributed=True
    updates_dropped: bool = False
    first_step: float = 0.0


@dataclass(frozen=True)
class Distribution:
    """The distribution of a program (``Program.distribution``), for executors and for saving.

    ``shards``: by parameter. ``rows``: parameters whose gradients, or changes, are sent as rows. ``tables``:
    those of which trainers have no copy. ``distributed_table``: that of ``table.py``, which has no shards.
    ``state``: by name what servers carry from step to step beside parameters, in parts or as copies.
    """

    topology: Topology
    shards: dict[str, tuple[Shard, ...]]
    rows: frozenset[str]
    tables: frozenset[str]
    distributed_table: str = ""
    state: dict[str, tuple[Shard, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        topology: Topology,
        trained: Sequence[Trained],
        table: Table | None = None,
        state: dict[str, tuple[Shard, ...]] | None = None,
    ) -> Distribution:
        """Return that of some parameters."""
        return cls(
            topology,
            {entry.parameter.name: tuple(entry.shards) for entry in trained},
            frozenset(entry.parameter.name for entry in trained if entry.sparse),
            frozenset(entry.parameter.name for entry in trained if entry.table),
            "" if table is None else table.name,
            state or {},
        )

    def vars_info(self) -> dict[str, dict[str, Any]]:
        """Return of each parameter the names, rows and servers of its parts, for Paddle's communicator."""
        return {
            name: {
                "var_names": [shard.parameter for shard in shards],
                "sections": [str(shard.rows) for shard in shards],
                "epmap": [shard.endpoint for shard in shards],
                "is_sparse": [str(name in self.rows)],
            }
            for name, shards in self.shards.items()
        }
