"""BindingCache: what the plans of one program share, whatever shapes they are bound for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple
from weakref import ref

from ...graph.ir.graph import STATE
from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.lowering.memory import Usage
from ...graph.ops.collective import BUCKETED, COLLECTIVES
from ...graph.ops.registry import OPS, Op
from ..kernels.back_ends import ON_HOST
from .instruction import Instruction
from .node_shapes import picked
from .part import Peers, RankPart
from .shapes import Shapes
from .template import PlanTemplate

_FEW = 64  # instructions of a node among which it is not looked for those that no plan has


class Instructions:
    """A node's instructions in plans that are bound, by what tells those from others that plans have, too.

    What no plan has any more is forgotten now and then: a weak dictionary would do so at once, and take longer
    for each than to bind some.
    """

    def __init__(self) -> None:
        self._by_key: dict[Hashable, ref[Instruction]] = {}
        self._most = _FEW

    def get(self, key: Hashable) -> Instruction | None:
        """Return the instruction of a key, if a plan has it."""
        known = self._by_key.get(key)
        return None if known is None else known()

    def __setitem__(self, key: Hashable, instruction: Instruction) -> None:
        if len(self._by_key) >= self._most:
            known = self._by_key.items()
            self._by_key = {k: binding for k, binding in known if binding() is not None}
            self._most = 2 * len(self._by_key) + _FEW
        self._by_key[key] = ref(instruction)


class Form(NamedTuple):
    """What no shapes change of how a node is bound.

    ``reads`` and ``writes`` are names; ``uneven``: their rows change from step to step. ``changes``: it may
    change a persistable. ``may_be_there``: its results may be views of its operands; ``may_meet``: they may be
    their very arrays. ``fields`` is the record of its op without values: attributes, and slots that are empty;
    ``single`` and ``several`` are those that one value fills, or a list of them. ``read`` and ``written`` have
    the values by position; ``of`` picks what there is of each. ``known`` are instructions.
    """

    op: Op
    on_host: bool
    collective: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    uneven: bool
    changes: bool
    may_be_there: bool
    may_meet: bool
    fields: dict[str, Any]
    single: list[tuple[str, int]]
    several: list[tuple[str, Sequence[int]]]
    read: list[int]
    written: list[int]
    of: Callable[[Any], tuple[Hashable, ...]]
    known: Instructions


class BindingCache:
    """Kept from plan to plan: inferred shapes, what ranks run, how long values are needed, forms of nodes.

    ``counts`` is what kernels count (see :class:`~..device.device.Device`).
    """

    def __init__(self, program: ReplicaProgram) -> None:
        self.shapes = Shapes(program)
        self.counts: Counter[str] = Counter()
        self.templates: dict[
            Hashable, PlanTemplate
        ] = {}  # the latest, by kinds of what tells sizes
        self._program = program
        self._forms: dict[int, Form] = {}
        self._parts: dict[Peers, RankPart] = {}
        self._usages: dict[tuple[Any, ...], Usage] = {}

    def part(self, peers: Peers) -> RankPart:
        """Return what a rank runs of the program."""
        if peers not in self._parts:
            self._parts[peers] = RankPart(self._program, peers)
        return self._parts[peers]

    def usage(self, key: tuple[Any, ...], make: Callable[[], Usage]) -> Usage:
        """Return how long values are needed; ``key`` is all that it depends on beside the program."""
        if key not in self._usages:
            self._usages[key] = make()
        return self._usages[key]

    def form(self, node: NodeRecord) -> Form:
        """Return what no shapes change of how a node of the program is bound."""
        form = self._forms.get(id(node))
        if form is None:
            form = self._forms[id(node)] = self._form(node)
        return form

    def _form(self, node: NodeRecord) -> Form:
        values, op = self._program.values, OPS[node.op]
        sides = list(zip(op.parameters, (node.inputs, node.outputs), strict=True))
        slots = [(name, many, ids.get(s, ())) for side, ids in sides for s, name, many in side]
        read, written = (
            [i for ids in by_slot.values() for i in ids if i >= 0] for _, by_slot in sides
        )
        unknown = any(-1 in values[i].shape for i in node.touches())
        lasting = any(values[i].kind == STATE for i in written)
        shares = op.in_place or op.places or node.op in BUCKETED
        return Form(
            op,
            node.kernel in ON_HOST,
            node.op in COLLECTIVES,
            tuple(values[i].name for i in read),
            tuple(values[i].name for i in written),
            unknown and self._program.uneven,
            bool(self._program.changed_by(node)),
            bool(op.views or op.parts or op.twins(node.attrs)),
            bool(shares or lasting),
            vars(op.bound({}, {}, node.attrs)),
            [(name, ids[0]) for name, many, ids in slots if not many and ids and ids[0] >= 0],
            [(name, ids) for name, many, ids in slots if many],
            read,
            written,
            picked(node.touches()),
            Instructions(),
        )
