"""The compiler's graph: frozen nodes over values that are written once (SSA).

A Program names a variable again when it is written again; here every write makes a new :class:`Value`.
Passes take a graph and return a graph, the very same one if nothing matched.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...strategies.errors import NotFound, nearest
from ..ops.registry import OPS, Inference, Spec
from ..program.role import OpRole

FEED, STATE, TEMP = "feed", "state", "temp"
EVERYWHERE = -1  # a rank: all of them


@dataclass(frozen=True, eq=False)
class Value:
    """One value: ``kind`` is feed (sent with each step), state (persistable) or temp.

    ``version`` counts the writes to the name; version 0 of a state is its value when the step begins.
    ``layout`` is the order of an image's elements in memory ("": that of its shape; see ``layout.py``), or says
    that they lie there in bfloat16 (``factors.py``).
    ``host``: it lies in the memory of the host beside the GPU that computes (see ``placement.py``).
    """

    name: str
    spec: Spec
    kind: str = TEMP
    version: int = 0
    layout: str = ""
    host: bool = False

    def __str__(self) -> str:
        return f"{self.name}.{self.version}" if self.version else self.name


class ValueMaker:
    """Makes the values that a graph's nodes compute: no two of one maker share both name and version."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def value(self, name: str, spec: Spec, kind: str = TEMP) -> Value:
        """Return a new value; of a state one behind version 0, which is that from before the step."""
        version = max(self._newest.get(name, -1) + 1, int(kind == STATE))
        self._newest[name] = version
        return Value(name, spec, kind, version)


OpKey = tuple[str, frozenset[str], frozenset[str]]
Slots = Mapping[str, tuple[Value | None, ...]]


@dataclass(frozen=True, eq=False)
class Node:
    """One op over values, by slot. None stands for a gradient that is not computed.

    ``grads`` lists (parameter, gradient value) pairs that this node finishes; ``where`` is the user's line;
    ``at`` the only rank that runs it, if not all do; ``scope`` the user's name scope, for pictures.
    ``host``: it is to be computed on the host, beside the GPU that computes the others.
    """

    op: str
    inputs: Slots
    outputs: Slots
    attrs: Mapping[str, Any]
    role: int = 0
    where: str = ""
    grads: tuple[tuple[str, Value], ...] = ()
    at: int = EVERYWHERE
    scope: str = ""
    host: bool = False

    @property
    def key(self) -> OpKey:
        """What tells the op from others of its program: its type, and the names that it reads and writes."""
        reads, writes = (frozenset(v.name for v in vs) for vs in (self.reads(), self.writes()))
        return self.op, reads, writes

    @property
    def updates(self) -> bool:
        """Whether it is an optimizer's, and writes what outlives the step."""
        return bool(self.role & OpRole.Optimize) and any(v.kind == STATE for v in self.writes())

    def reads(self) -> list[Value]:
        """Return the values read, slot by slot."""
        return [v for values in self.inputs.values() for v in values if v is not None]

    def writes(self) -> list[Value]:
        """Return the values written, slot by slot."""
        return [v for values in self.outputs.values() for v in values if v is not None]

    def reading(self, swap: Mapping[Value, Value]) -> Node:
        """Return the node with values replaced in its inputs (itself if it reads none of them)."""
        if not any(v in swap for v in self.reads()):
            return self
        return replace(self, inputs=_swapped(self.inputs, swap))

    def writing(self, swap: Mapping[Value, Value]) -> Node:
        """Return the node with values replaced in its outputs (itself if it writes none of them)."""
        if not any(v in swap for v in self.writes()):
            return self
        return replace(self, outputs=_swapped(self.outputs, swap))

    def __str__(self) -> str:
        place = "" if self.at == EVERYWHERE else f" at {self.at}"
        place += " on the host" if self.host else ""
        return f"{_args(self.outputs)} = {self.op}({_args(self.inputs)}){place}"


def _swapped(slots: Slots, swap: Mapping[Value, Value]) -> Slots:
    return {s: tuple(swap.get(v, v) if v else None for v in values) for s, values in slots.items()}


def _args(slots: Mapping[str, Sequence[Value | None]]) -> str:
    return ", ".join(
        f"{slot}={','.join(str(v) if v else '_' for v in vs)}" for slot, vs in slots.items()
    )


def cast_node(source: Value, result: Value, like: Node) -> Node:
    """Return the cast of a value to the type of ``result``, with role, place and scope of another node."""
    attrs = {"in_dtype": int(source.spec.dtype), "out_dtype": int(result.spec.dtype)}
    slots = {"X": (source,)}, {"Out": (result,)}
    return Node("cast", *slots, attrs, like.role, like.where, (), like.at, like.scope)


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order that respects their data, the feeds, and the last value of every variable.

    ``latest`` maps a variable's name to its last value, which a fetch of that name returns.
    """

    nodes: tuple[Node, ...]
    feeds: tuple[Value, ...]
    latest: Mapping[str, Value]
    notes: tuple[str, ...] = field(default=())

    def with_nodes(
        self, nodes: Iterable[Node], renamed: Mapping[Value, Value] | None = None
    ) -> Graph:
        """Return the graph with other nodes; ``renamed`` values are also swapped in ``latest``."""
        latest = {name: (renamed or {}).get(value, value) for name, value in self.latest.items()}
        return replace(self, nodes=tuple(nodes), latest=latest)

    def noted(self, text: str) -> Graph:
        """Return the graph with one more line for ``explain()``: what a pass changed, or why nothing."""
        return replace(self, notes=(*self.notes, text))

    def pruned(self, names: Iterable[str], ops: Container[OpKey] = ()) -> Graph:
        """Return the graph with only these ops, and the nodes that they or variables' last values need.

        What is fed is not computed as well: later writes of a temporary that is fed are left out. Other updates
        than ``ops`` are, too: what is read behind them is the value from before.

        Raises:
            NotFound: a name that is no variable of the program.
        """
        feeds = {value.name: value for value in self.feeds}
        swap = {v: feeds[v.name] for v in self.values() if v.kind == TEMP and v.name in feeds}
        newest: dict[str, Value] = {}
        for node in self.nodes:
            newest.update((v.name, swap.get(v, v)) for v in node.reads())
            for value in node.writes():
                if node.updates and node.key not in ops and value.name in newest:
                    swap[value] = newest[value.name]
                else:
                    newest[value.name] = value
        whole = self.with_nodes(self.nodes, swap)
        needed = {whole.fetched(name) for name in names}
        nodes: list[Node] = []
        for node in reversed(self.nodes):
            if node.key in ops or (not node.updates and needed.intersection(node.writes())):
                nodes.append(node.reading(swap))
                needed.update(nodes[-1].reads())
        return whole.with_nodes(reversed(nodes))

    def needed(self, names: Iterable[str]) -> frozenset[Value]:
        """Return the last values of the named variables, without names that the graph does not know."""
        return frozenset(self.latest[name] for name in names if name in self.latest)

    def values(self) -> list[Value]:
        """Return every value once, in the order of first appearance."""
        values = dict.fromkeys(self.feeds)
        for node in self.nodes:
            values.update(dict.fromkeys(node.reads()))
            values.update(dict.fromkeys(node.writes()))
        return list(values)

    def writers(self) -> dict[Value, Node]:
        """Return the node that computes each value."""
        return {value: node for node in self.nodes for value in node.writes()}

    def readers(self) -> dict[Value, list[Node]]:
        """Return the nodes that read each value, in order."""
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.reads()):
                readers.setdefault(value, []).append(node)
        return readers

    def fetched(self, name: str) -> Value:
        """Return the last value of a variable.

        Raises:
            NotFound: nothing of that name is computed, fed or stored by the program.
        """
        if name not in self.latest:
            raise NotFound(
                f"cannot fetch {name!r}: this program neither computes, is fed nor stores it. It may have been "
                f"pruned, or belong to another program.{nearest(name, self.latest)}"
            )
        return self.latest[name]

    def __str__(self) -> str:
        lines = [f"feed {v}: {v.spec}" for v in self.feeds]
        lines += [
            f"{node}  # {', '.join(str(v.spec) for v in node.writes())}" for node in self.nodes
        ]
        return "\n".join(lines)


def infer_node(
    node: Node, spec_of: Any, elements_of: Callable[[Value], Any] | None = None
) -> dict[str, list[Spec]]:
    """Re-derive a node's output specs; ``spec_of`` maps a value to its spec, ``elements_of`` to its array.

    Without arrays, sizes that depend on elements are unknown.

    Raises:
        ShapeError: the operands do not fit together.
    """
    read = {
        slot: [None if v is None else spec_of(v) for v in values]
        for slot, values in node.inputs.items()
    }
    names = {slot: [str(v) for v in values] for slot, values in node.inputs.items()}
    op, values = OPS[node.op], None
    if elements_of is not None:

        def values(slot: str) -> list[Any]:
            return [None if v is None else elements_of(v) for v in node.inputs.get(slot, ())]

    return op.infer(Inference(op, read, node.attrs, names, node.where, values))
