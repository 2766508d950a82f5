"""ReplicaProgram: a compiled graph as plain data, which travels to the replicas."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...strategies.errors import FeedError
from ...strategies.types import VarType
from ..ops.amp import LOSS_SCALING
from ..ops.collective import COLLECTIVES
from ..ops.host_call import HOST_CALL
from ..ops.operands import LOD_SUFFIX
from ..ops.python_function import PY_FUNC
from ..ops.region import REGION
from ..ops.registry import OPS, Spec
from ..program.role import OpRole
from .graph import EVERYWHERE, FEED, STATE, Graph, Node, Value

_LONG = 1024  # numbers in a list
_NUMBERS = frozenset((bool, int, float))


@dataclass(frozen=True)
class ValueRecord:
    """One value of the program; nodes refer to it by its position."""

    name: str
    shape: tuple[int, ...]
    dtype: int
    kind: str
    version: int
    layout: str = ""
    host: bool = False  # it lies beside the GPU, in the memory of the host
    alike: bool = False  # all replicas have the same, bit for bit (see ``replicated.py``)

    @property
    def spec(self) -> Spec:
        """Declared shape and element type."""
        return Spec(tuple(self.shape), VarType(self.dtype))

    @property
    def varies(self) -> bool:
        """Whether the first dimension is the batch's: unknown until a step is fed."""
        return bool(self.shape) and self.shape[0] == -1


@dataclass(frozen=True)
class NodeRecord:
    """One op: type, value positions by slot (-1: an unwanted gradient), attributes, kernel, user's line.

    ``at`` is the only rank that runs it (-1: every rank).
    """

    op: str
    inputs: Mapping[str, Sequence[int]]
    outputs: Mapping[str, Sequence[int]]
    attrs: Mapping[str, Any]
    kernel: str
    where: str
    at: int = EVERYWHERE

    def touches(self) -> tuple[int, ...]:
        """Positions of the values that the op reads or writes."""
        return self._touched

    def reads(self) -> tuple[int, ...]:
        """Positions of the operands whose elements the op reads; of others it is told the shapes."""
        shapes = OPS[self.op].shape_slots(self.attrs, self.inputs)
        slots = (positions for slot, positions in self.inputs.items() if slot not in shapes)
        return tuple(i for positions in slots for i in positions if i >= 0)

    def writes(self) -> tuple[int, ...]:
        """Positions of the results."""
        return tuple(i for positions in self.outputs.values() for i in positions if i >= 0)

    @functools.cached_property
    def short_attrs(self) -> Mapping[str, Any]:
        """The attributes, with digests in place of long lists of numbers: first values may be millions."""
        return {name: _digest(value) for name, value in self.attrs.items()}

    @functools.cached_property
    def _touched(self) -> tuple[int, ...]:
        slots = (*self.inputs.values(), *self.outputs.values())
        return tuple(i for positions in slots for i in positions if i >= 0)


def _digest(value: Any) -> Any:
    """Return a hash that stands for a long list of numbers, other values as they are."""
    if (
        not isinstance(value, list)
        or len(value) <= _LONG
        or not _NUMBERS.issuperset(map(type, value))
    ):
        return value
    numbers = np.array(value)
    return (
        f"{numbers.dtype} {hashlib.sha256(numbers.data).hexdigest()}"
        if numbers.dtype != object
        else value
    )


def _unplaced(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's attributes without the source lines of nodes in it, of a region or a loop's block."""
    unplaced = dict(attrs)
    if attrs.get("body"):
        unplaced["body"] = list(map(_unplaced_node, attrs["body"]))
    if isinstance(block := attrs.get("block"), Mapping):
        unplaced["block"] = {**block, "nodes": list(map(_unplaced_node, block["nodes"]))}
    return unplaced


def _unplaced_node(node: Mapping[str, Any]) -> dict[str, Any]:
    return {**node, "attrs": _unplaced(node["attrs"]), "where": ""}


@dataclass(frozen=True)
class ReplicaProgram:
    """The values and nodes that one replica runs each step. Plain data: JSON there and back.

    ``fetches`` are positions of the values to return: first the user's fetches, then the offsets of their
    sequences (``fetch_lods``: their indices in ``fetches``, per fetch of the user, outermost first), then a
    value for each of ``place_states``, the persistables that the driver stores for each place.
    ``buckets`` lists, per collective in order, the positions of the values that lie side by side in its buffer;
    ``seed`` keys the random ops; ``math`` is the precision of single-precision products; ``checked`` are the
    numbers of the nodes that check that their results are finite.
    """

    values: tuple[ValueRecord, ...]
    nodes: tuple[NodeRecord, ...]
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]
    buckets: tuple[tuple[int, ...], ...]
    seed: int
    math: str = "float32"
    place_states: tuple[str, ...] = ()
    checked: tuple[int, ...] = ()
    fetch_lods: tuple[tuple[int, ...], ...] = ()

    def to_json(self) -> str:
        """Return the program as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> ReplicaProgram:
        """Return the program that :meth:`to_json` wrote."""
        return ReplicaProgram.from_data(json.loads(text))

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> ReplicaProgram:
        """Return the program of which :func:`dataclasses.asdict` made plain data."""
        return ReplicaProgram(
            values=tuple(ValueRecord(**{**v, "shape": tuple(v["shape"])}) for v in data["values"]),
            nodes=tuple(NodeRecord(**n) for n in data["nodes"]),
            feeds=tuple(data["feeds"]),
            fetches=tuple(data["fetches"]),
            buckets=tuple(tuple(b) for b in data["buckets"]),
            seed=data["seed"],
            math=data["math"],
            place_states=tuple(data["place_states"]),
            checked=tuple(data["checked"]),
            fetch_lods=tuple(tuple(places) for places in data["fetch_lods"]),
        )

    @functools.cached_property
    def schedule(self) -> str:
        """Hash of all ops in order, with kernels, attributes, operands and types, on which ranks must agree.

        Sizes of reduced values and of persistables count too; batch sizes, fetches, seeds and source lines do
        not. Each rank hashes its own program; the hash never travels, so a program that was damaged on the way,
        or changed later, does not pass for the original.
        """
        used = {i for node in self.nodes for i in node.touches()}
        reduced = {i for node in self.nodes if node.op in COLLECTIVES for i in node.touches()}
        nodes = [
            (n.op, n.inputs, n.outputs, _unplaced(n.short_attrs), n.kernel, n.at)
            for n in self.nodes
        ]
        values = {
            i: (
                *(v.name, v.dtype, v.kind, v.version, v.layout, v.host),
                v.shape if i in reduced or v.kind == STATE else (),
            )
            for i, v in enumerate(self.values)
            if i in used
        }
        text = json.dumps([nodes, values, self.math], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @functools.cached_property
    def meetings(self) -> str:
        """Hash of the collectives in order, with attributes and the types of what they carry.

        It is all on which programs must agree that only meet, and are not copies of one.
        """

        def carried(node: NodeRecord) -> list[object]:
            values = (self.values[i] for i in node.touches())
            return [(v.shape[1:] if v.varies else v.shape, v.dtype) for v in values]

        nodes = [(n.op, n.attrs, carried(n)) for n in self.nodes if n.op in COLLECTIVES]
        return hashlib.sha256(json.dumps(nodes, sort_keys=True).encode()).hexdigest()[:16]

    def state_names(self) -> list[str]:
        """Names of the persistables the program reads or writes, in order of first appearance."""
        return list(dict.fromkeys(v.name for v in self.values if v.kind == STATE))

    def written_names(self) -> list[str]:
        """Names of the persistables that a step may change; statistics of a norm that only uses them stay."""
        return list(dict.fromkeys(name for node in self.nodes for name in self.changed_by(node)))

    def sized_by_step(self) -> frozenset[str]:
        """Names of the persistables that a step only writes, and whose size depends on feeds."""
        written = {v.name for v in self.values if v.kind == STATE and v.version and -1 in v.shape}
        return frozenset(written.difference(self.needed_names()))

    def owners(self) -> dict[str, int]:
        """Ranks of the persistables that one rank alone holds, by name."""
        ranks: dict[str, set[int]] = {}
        for node in self.nodes:
            for i in node.touches():
                if self.values[i].kind == STATE:
                    ranks.setdefault(self.values[i].name, set()).add(node.at)
        return {
            name: next(iter(owning))
            for name, owning in ranks.items()
            if len(owning) == 1 and EVERYWHERE not in owning
        }

    @property
    def answers(self) -> tuple[int, ...]:
        """Positions of the values that the user fetches, and of the offsets of their sequences."""
        return self.fetches[: len(self.fetches) - len(self.place_states)]

    def functions(self) -> list[int]:
        """Numbers of the Python functions that the program calls."""
        plain = {n.attrs["forward_callable_id"] for n in self.nodes if n.op == PY_FUNC}
        calls = (n.attrs for n in self.nodes if n.op == HOST_CALL)
        return sorted(plain | {a["options"]["number"] for a in calls if a["function"] == PY_FUNC})

    def own_names(self) -> frozenset[str]:
        """Names of the persistables of which each place may have a value of its own after a step."""
        newest = {
            v.name: v for v in sorted(self.values, key=lambda v: v.version) if v.kind == STATE
        }
        own = (name for name, value in newest.items() if not value.alike)
        return frozenset(own) - self.owners().keys()

    @functools.cached_property
    def early(self) -> dict[int, int]:
        """By place in the fetch list, positions of the values that hold a fetch already before the vote.

        It is the fetched value itself, or, for a persistable that is copied after the vote, the copy's source.
        """
        meetings = [k for k, node in enumerate(self.nodes) if node.op in COLLECTIVES]
        if not meetings:
            return {}
        writer = {
            i: node
            for node in self.nodes[meetings[-1] :]
            for positions in node.outputs.values()
            for i in positions
        }
        places = {}
        for k, i in enumerate(self.fetches):
            value, node = self.values[i], writer.get(i)
            if node is None and not (value.kind == STATE and value.alike):
                places[k] = i
            elif node is not None and not value.alike:
                source = _copy_source(node, i)
                if source >= 0 and source not in writer:
                    places[k] = source
        return places

    @functools.cached_property
    def sides(self) -> dict[str, bool]:
        """Whether a persistable that an op uses must lie on the host rather than the GPU, by name."""
        used = {i for node in self.nodes for i in node.touches()}
        return {v.name: v.host for i, v in enumerate(self.values) if v.kind == STATE and i in used}

    @functools.cached_property
    def read(self) -> frozenset[int]:
        """Positions of the values whose elements ops read, and of those that are fetched."""
        return frozenset([*self.fetches, *(i for node in self.nodes for i in node.reads())])

    @functools.cached_property
    def uneven(self) -> bool:
        """Whether steps differ in more than the batch: by sequences, or feeds of several unknown sizes."""
        return any(
            LOD_SUFFIX in value.name or (value.kind == FEED and value.shape.count(-1) > 1)
            for value in self.values
        )

    @functools.cached_property
    def changes(self) -> bool:
        """Whether a step may change a persistable."""
        return bool(self.written_names())

    def changed_by(self, node: NodeRecord) -> list[str]:
        """Names of the persistables that a node may change."""
        if node.op == REGION:
            return [
                self.values[i].name
                for i, number in zip(node.outputs["Out"], node.attrs["results"], strict=True)
                if self.values[i].kind == STATE and not _is_operand(node, number)
            ]
        read, written = (
            [
                self.values[i].name
                for positions in slots.values()
                for i in positions
                if i >= 0 and self.values[i].kind == STATE
            ]
            for slots in (node.inputs, node.outputs)
        )
        stays = set(written) <= set(read) and OPS[node.op].only_uses(node.attrs)
        return [] if stays else written

    def needed_names(self) -> list[str]:
        """Names of the persistables that must hold a value before a step."""
        return list(
            dict.fromkeys(v.name for v in self.values if v.kind == STATE and v.version == 0)
        )


def _copy_source(node: NodeRecord, position: int) -> int:
    """Return the position that a node, or one in a region, copies to this one (-1: it computes it)."""
    if node.op == "assign":
        return node.inputs["X"][0]
    if node.op != REGION:
        return -1
    operands = node.inputs["X"]
    number = node.attrs["results"][node.outputs["Out"].index(position)]
    for body_node in node.attrs["body"]:
        if body_node["op"] == "assign" and body_node["outputs"]["Out"] == [number]:
            (source,) = body_node["inputs"]["X"]
            return operands[source] if source < len(operands) else -1
    return -1


def _is_operand(region: NodeRecord, number: int) -> bool:
    """Tell whether a value in a region is one of its operands, which nodes in it at most use."""
    writers = {
        i: (body_node, slot, k)
        for body_node in region.attrs["body"]
        for slot, numbers in body_node["outputs"].items()
        for k, i in enumerate(numbers)
    }
    while number in writers:
        body_node, slot, k = writers[number]
        op = OPS[body_node["op"]]
        if slot not in op.in_place or not op.only_uses(body_node["attrs"]):
            return False
        number = body_node["inputs"][op.in_place[slot]][k]
    return True


def lower(
    graph: Graph,
    fetch_names: Sequence[str],
    kernels: Mapping[Node, str],
    seed: int,
    math: str = "float32",
    alike: frozenset[Value] = frozenset(),
    place_states: Sequence[Value] = (),
    checks: bool = False,
    fetch_lods: Sequence[Sequence[str]] = (),
) -> ReplicaProgram:
    """Return a checked graph as plain data.

    The values ``alike`` are the same on all replicas; the driver stores ``place_states`` for each place.
    ``checks``: the nodes check that their results are finite. ``fetch_lods`` names, per fetch, the offsets of
    its sequences.

    Raises:
        FeedError: an op reads a variable that is neither fed, persistable nor computed.
        NotFound: a fetch names no variable.
    """
    level_names = list(dict.fromkeys(name for names in fetch_lods for name in names))
    answers = [graph.fetched(name) for name in (*fetch_names, *level_names)]
    fetched = [*answers, *place_states]
    level_places = {name: len(fetch_names) + k for k, name in enumerate(level_names)}
    values_used = list(dict.fromkeys([*graph.values(), *fetched]))
    _refuse_unfed(graph, values_used)
    position = {value: i for i, value in enumerate(values_used)}
    values = tuple(
        ValueRecord(
            v.name,
            v.spec.shape,
            int(v.spec.dtype),
            v.kind,
            v.version,
            v.layout,
            v.host,
            alike=v in alike,
        )
        for v in values_used
    )
    nodes = tuple(_record(node, position, kernels) for node in graph.nodes)
    meetings = [node for node in graph.nodes if node.op in COLLECTIVES]
    return ReplicaProgram(
        values=values,
        nodes=nodes,
        feeds=tuple(position[v] for v in graph.feeds),
        fetches=tuple(position[v] for v in fetched),
        buckets=tuple(
            tuple(position[v] for v in node.inputs.get("X", ()) if v is not None)
            for node in meetings
        ),
        seed=seed,
        math=math,
        place_states=tuple(value.name for value in place_states),
        checked=_checked_nodes(graph) if checks else (),
        fetch_lods=tuple(tuple(level_places[n] for n in names) for names in fetch_lods),
    )


def _checked_nodes(graph: Graph) -> tuple[int, ...]:
    """Return the numbers of the nodes whose results must be finite: where the loss is scaled, no gradients."""
    scaled = any(node.op in LOSS_SCALING for node in graph.nodes)
    excepted = int(OpRole.Backward) | int(OpRole.Optimize) if scaled else 0
    return tuple(k for k, node in enumerate(graph.nodes) if not node.role & excepted)


def _record(node: Node, position: Mapping[Value, int], kernels: Mapping[Node, str]) -> NodeRecord:
    def by_position(slots: Mapping[str, tuple[Value | None, ...]]) -> dict[str, list[int]]:
        return {
            slot: [-1 if v is None else position[v] for v in values]
            for slot, values in slots.items()
        }

    attrs = dict(node.attrs)
    return NodeRecord(
        node.op,
        by_position(node.inputs),
        by_position(node.outputs),
        attrs,
        kernels[node],
        node.where,
        node.at,
    )


def _refuse_unfed(graph: Graph, used: Sequence[Value]) -> None:
    for value in used:
        if value.kind == FEED and value not in graph.feeds:
            reader = next((node for node in graph.nodes if value in node.reads()), None)
            use = f"{reader.op} (built at {reader.where}) reads it" if reader else "it is fetched"
            raise FeedError(
                f"variable {value.name!r} ({value.spec}) is not fed: {use}, and no op makes it. "
                f"Fed: {', '.join(repr(v.name) for v in graph.feeds) or 'nothing'}."
            )
