"""Reduce mode: each owner checks and zeroes its own gradients; what travels is one boolean from each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...strategies.types import VarType
from ..ir.graph import EVERYWHERE, Graph, Node, Value
from ..ops.amp import CHECK, UPDATE, ZERO
from ..ops.collective import REDUCE
from ..ops.registry import OPS, Spec
from .target import Pass, Target

Groups = list[list[int]]  # positions in X, by owner


def split_loss_scaling(graph: Graph, target: Target) -> Graph:
    """Split the checks of gradients by owner, and the zeroing from the update of the scale, which all make.

    As one op they would read values of several owners, and every gradient would be broadcast.
    """
    splitter = _Splitter(_owners(graph))
    nodes = [made for node in graph.nodes for made in splitter.split(node)]
    for found in graph.needed(target.fetches).intersection(splitter.parts):
        nodes += _any(found, splitter.parts[found], graph.nodes[-1])
    same = len(nodes) == len(graph.nodes)
    return graph if same else graph.with_nodes(nodes, splitter.swap)


def _owners(graph: Graph) -> dict[Value, int]:
    """Return the rank at which each gradient is summed, and what is made of one rank's gradients alone."""
    owner: dict[Value, int] = {}
    for node in graph.nodes:
        if node.op == REDUCE:
            owner.update(zip(node.writes(), node.attrs["roots"], strict=True))
        elif node.op in (CHECK, UPDATE):
            owner.update(
                (made, owner[read])
                for read, made in zip(node.inputs["X"], node.outputs["Out"], strict=True)
                if read in owner and made is not None
            )
        else:
            found = {owner[value] for value in node.reads() if value in owner}
            if len(found) == 1:
                owner.update(dict.fromkeys(node.writes(), *found))
    return owner


class _Splitter:
    """Knows what each owner found (``parts``) until somebody asks what any of them found."""

    def __init__(self, owner: dict[Value, int]) -> None:
        self.owner = owner
        self.parts: dict[Value, list[Value]] = {}
        self.swap: dict[Value, Value] = {}

    def split(self, node: Node) -> Iterator[Node]:
        node = node.reading(self.swap)
        if node.op == "concat" and not self.parts.keys().isdisjoint(node.reads()):
            yield self._joined(node)
            return
        for found in [value for value in self.parts if value in node.reads()]:
            yield from _any(found, self.parts.pop(found), node)
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
        (found,) = node.outputs["FoundInfinite"]
        assert found is not None
        parts = [replace(found, name=f"{found.name}@{k}", version=0) for k in range(len(groups))]
        self.parts[found] = parts
        for part, positions in zip(parts, groups, strict=True):
            inputs = {**node.inputs, "X": _some(node.inputs["X"], positions)}
            outputs = {"Out": _some(node.outputs["Out"], positions), "FoundInfinite": (part,)}
            yield replace(node, inputs=inputs, outputs=outputs)

    def _joined(self, node: Node) -> Node:
        """Let what joins the findings of several checks join those of their owners."""
        read = [part for value in node.reads() for part in self.parts.get(value, [value])]
        (made,) = node.writes()
        wider = replace(made, spec=Spec((len(read),), made.spec.dtype))
        self.swap[made] = wider
        return replace(node, inputs={**node.inputs, "X": tuple(read)}, outputs={"Out": (wider,)})


def _some(values: tuple[Value | None, ...], positions: list[int]) -> tuple[Value | None, ...]:
    return tuple(values[k] for k in positions)


def _any(found: Value, parts: list[Value], reader: Node) -> Iterator[Node]:
    joined = Value(f"{found.name}@all", Spec((len(parts),), VarType.BOOL))
    for op, read, made, attrs in (
        ("concat", tuple(parts), joined, {"axis": 0}),
        ("reduce_any", (joined,), found, {"reduce_all": True}),
    ):
        full = {**OPS[op].attrs, **attrs}
        yield Node(op, {"X": read}, {"Out": (made,)}, full, reader.role, reader.where)


def _zeros(node: Node, groups: Groups) -> Iterator[Node]:
    """Make one zeroing for each owner, and the update of the scale without gradients."""
    flag = {"FoundInfinite": node.inputs["FoundInfinite"]}
    for positions in groups:
        inputs = {"X": _some(node.inputs["X"], positions), **flag}
        made = {"Out": _some(node.outputs["Out"], positions)}
        yield Node(ZERO, inputs, made, {}, node.role, node.where)
    yield replace(node, inputs={**node.inputs, "X": ()}, outputs={**node.outputs, "Out": ()})


PASS = Pass(
    "split_loss_scaling",
    split_loss_scaling,
    lambda target: target.many and target.reduces_to == "Reduce",
    "owners are known once gradients are reduced; place_updates then finds each part at one owner",
)
