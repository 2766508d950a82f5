"""Reduce mode: each owner checks and zeroes its own gradients, and broadcasts one boolean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...strategies.types import VarType
from ..ir.graph import EVERYWHERE, Graph, Node, Value
from ..ops.amp import CHECK, UPDATE, ZERO
from ..ops.collective import GATHER_ROWS, REDUCE
from ..ops.registry import OPS, Spec
from .collectives import roots_of
from .target import Pass, Target

Groups = list[list[int]]  # positions in X, by owner


def split_loss_scaling(graph: Graph, target: Target) -> Graph:
    """Split the checks and the zeroing of gradients by owner; all replicas update the scale.

    As one op they would read values of several owners, and every gradient would be broadcast.
    """
    splitter = _Splitter(_owners(graph))
    nodes = [part for node in graph.nodes for part in splitter.split(node)]
    for flag in graph.needed(target.fetches).intersection(splitter.parts):
        nodes += _any(flag, splitter.parts[flag], graph.nodes[-1])
    same = len(nodes) == len(graph.nodes)
    return graph if same else graph.with_nodes(nodes, splitter.swap)


def _owners(graph: Graph) -> dict[Value, int]:
    """Return the owner of each reduced gradient, and of values computed from one owner's gradients alone."""
    owner: dict[Value, int] = {}
    for node in graph.nodes:
        if node.op in (REDUCE, GATHER_ROWS):
            owner.update(roots_of(node))
        elif node.op in (CHECK, UPDATE):
            owner.update(
                (result, owner[operand])
                for operand, result in zip(node.inputs["X"], node.outputs["Out"], strict=True)
                if operand in owner and result is not None
            )
        else:
            ranks = {owner[value] for value in node.reads() if value in owner}
            if len(ranks) == 1:
                owner.update(dict.fromkeys(node.writes(), *ranks))
    return owner


class _Splitter:
    """Maps a flag to the flags of the owners (``parts``) until a node reads whether any of them is set."""

    def __init__(self, owner: dict[Value, int]) -> None:
        self.owner = owner
        self.parts: dict[Value, list[Value]] = {}
        self.swap: dict[Value, Value] = {}

    def split(self, node: Node) -> Iterator[Node]:
        node = node.reading(self.swap)
        if node.op == "concat" and not self.parts.keys().isdisjoint(node.reads()):
            yield self._join_flags(node)
            return
        for flag in [value for value in self.parts if value in node.reads()]:
            yield from _any(flag, self.parts.pop(flag), node)
        if node.op == CHECK:
            yield from self._checks(node, self._groups(node))
        elif node.op == UPDATE:
            yield from _zeros(node, self._groups(node))
        else:
            yield node

    def _groups(self, node: Node) -> Groups:
        groups: dict[int, list[int]] = {}
        for position, value in enumerate(node.inputs.get("X", ())):
            rank = self.owner.get(value, EVERYWHERE) if value else EVERYWHERE
            groups.setdefault(rank, []).append(position)
        return list(groups.values())

    def _checks(self, node: Node, groups: Groups) -> Iterator[Node]:
        """Make one check for each owner."""
        (flag,) = node.outputs["FoundInfinite"]
        assert flag is not None
        parts = [replace(flag, name=f"{flag.name}@{k}", version=0) for k in range(len(groups))]
        self.parts[flag] = parts
        for part, positions in zip(parts, groups, strict=True):
            inputs = {**node.inputs, "X": _select(node.inputs["X"], positions)}
            outputs = {"Out": _select(node.outputs["Out"], positions), "FoundInfinite": (part,)}
            yield replace(node, inputs=inputs, outputs=outputs)

    def _join_flags(self, node: Node) -> Node:
        """Let a concat of several checks' flags join those of their owners."""
        parts = [part for value in node.reads() for part in self.parts.get(value, [value])]
        (flags,) = node.writes()
        wider = replace(flags, spec=Spec((len(parts),), flags.spec.dtype))
        self.swap[flags] = wider
        return replace(node, inputs={**node.inputs, "X": tuple(parts)}, outputs={"Out": (wider,)})


def _select(values: tuple[Value | None, ...], positions: list[int]) -> tuple[Value | None, ...]:
    return tuple(values[k] for k in positions)


def _any(flag: Value, parts: list[Value], reader: Node) -> Iterator[Node]:
    flags = Value(f"{flag.name}@all", Spec((len(parts),), VarType.BOOL))
    for op, operands, result, attrs in (
        ("concat", tuple(parts), flags, {"axis": 0}),
        ("reduce_any", (flags,), flag, {"reduce_all": True}),
    ):
        full = {**OPS[op].attrs, **attrs}
        yield Node(op, {"X": operands}, {"Out": (result,)}, full, reader.role, reader.where)


def _zeros(node: Node, groups: Groups) -> Iterator[Node]:
    """Make one zeroing for each owner, and the update of the scale without gradients."""
    flag = {"FoundInfinite": node.inputs["FoundInfinite"]}
    for positions in groups:
        inputs = {"X": _select(node.inputs["X"], positions), **flag}
        outputs = {"Out": _select(node.outputs["Out"], positions)}
        yield Node(ZERO, inputs, outputs, {}, node.role, node.where)
    yield replace(node, inputs={**node.inputs, "X": ()}, outputs={**node.outputs, "Out": ()})


PASS = Pass(
    "split_loss_scaling",
    split_loss_scaling,
    lambda target: target.many and target.reduces_to == "Reduce",
    "owners are known once gradients are reduced; place_updates then finds each part at one owner",
)
