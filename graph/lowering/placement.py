"""Which ops a replica on a GPU computes on its host, and the copies where values cross.

Ops built under ``device_guard("cpu")``, and those without a kernel for GPUs, run on the host. What they make
lies in host memory. A value that the other side reads is copied once, by a ``memcpy`` node. Persistables stay
in the GPU's memory unless only ops on the host use them; an op that updates one stays where it lies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..ir.graph import EVERYWHERE, FEED, STATE, TEMP, Graph, Node, Value
from ..ops.collective import COLLECTIVES
from ..ops.registry import Spec
from ..program.program import Program
from ..program.role import DEVICE
from .memory import nbytes

COPY = "memcpy"
_TO_HOST, _TO_GPU = 0, 1  # Paddle's numbers of places, as its memcpy has them
_SHOWN = 8  # names in a line of the report


def all_here(graph: Graph, program: Program) -> Graph:
    """Return the graph for CPU places, where every op runs on the CPU whatever it asks for."""
    devices = Counter(op.attrs.get(DEVICE) for op in program.global_block().ops)
    devices.pop("", None)
    devices.pop(None, None)
    if not devices:
        return graph
    nodes = [replace(node, host=False) if node.host else node for node in graph.nodes]
    counts = ", ".join(f'{count} for "{device}"' for device, count in sorted(devices.items()))
    return graph.with_nodes(nodes).noted(
        f"device_guard: no effect on CPU places, everything runs on the CPU; ops that ask: {counts}"
    )


def place_on_host(graph: Graph, on_gpu: Callable[[Node], bool]) -> Graph:
    """Return the graph in which nodes and values know whether they are the host's, and copies cross.

    ``on_gpu`` tells whether a node has a kernel on the GPU.
    """
    lacking = {node for node in graph.nodes if not on_gpu(node)}
    host = {n for n in graph.nodes if n.host or n in lacking} - _meetings(graph.nodes)
    if not host:
        return graph
    stay, shared = _that_stay(graph, host)
    if stay & lacking:
        return place_on_host(_written_by_copies(graph, stay & lacking), on_gpu)
    placer = _Placer(graph, host - stay, shared)
    nodes = [*placer.ahead(), *(n for node in graph.nodes for n in placer.place(node))]
    feeds = tuple(placer.swap.get(value, value) for value in graph.feeds)
    placed = replace(graph.with_nodes(nodes, placer.swap), feeds=feeds)
    for text in (*_told(host - stay, lacking, placer), *_kept_back(stay)):
        placed = placed.noted(text)
    return placed


def _meetings(nodes: Iterable[Node]) -> set[Node]:
    return {node for node in nodes if node.op in COLLECTIVES}


def _that_stay(graph: Graph, host: Collection[Node]) -> tuple[set[Node], set[str]]:
    """Return the nodes that must run on the GPU after all, and the persistables that lie there.

    A persistable that ops on both sides use lies on the GPU, and an op that writes it does so in place.
    """
    stay: set[Node] = set()
    while True:
        there = [node for node in graph.nodes if node not in host or node in stay]
        shared = {v.name for n in there for v in (*n.reads(), *n.writes()) if v.kind == STATE}
        more = {n for n in host if any(v.kind == STATE and v.name in shared for v in n.writes())}
        if more <= stay:
            return stay, shared
        stay |= more


def _written_by_copies(graph: Graph, nodes: Collection[Node]) -> Graph:
    """Let nodes without a kernel for GPUs make temporaries, of which copies update what lies on the GPU."""
    rewritten: list[Node] = []
    for node in graph.nodes:
        if node not in nodes:
            rewritten.append(node)
            continue
        lasting = [value for value in node.writes() if value.kind == STATE]
        swap = {v: replace(v, name=f"{v.name}@MADE", kind=TEMP) for v in lasting}
        rewritten.append(node.writing(swap))
        for value, temporary in swap.items():
            slots = {"X": (temporary,)}, {"Out": (value,)}
            rewritten.append(
                Node("assign", *slots, {}, node.role, node.where, at=node.at, scope=node.scope)
            )
    return graph.with_nodes(rewritten)


class _Copy(NamedTuple):
    """A value that crosses: its name and spec, and whether it goes to the host."""

    name: str
    spec: Spec
    to_host: bool


class _Placer:
    """Goes through the nodes in order, moves what the host's make to the host, and puts copies in between."""

    def __init__(self, graph: Graph, host: Collection[Node], shared: Collection[str]) -> None:
        self._host = host
        self._copied: dict[tuple[Value, bool], Value] = {}
        self._maker = graph.writers()
        self._readers = graph.readers()
        values = dict.fromkeys((*graph.values(), *graph.latest.values()))
        names = {v.name for n in host for v in (*n.reads(), *n.writes()) if v.kind == STATE}
        self.lasting = sorted(names - set(shared))
        self.swap = {v: replace(v, host=True) for v in values if self._lies_there(v)}
        self.copies: list[_Copy] = []

    def _lies_there(self, value: Value) -> bool:
        """Tell whether a value lies on the host: an op there makes it, or it is fed to one."""
        if value.kind == STATE:
            return value.name in self.lasting
        if value.kind == FEED:
            return any(node in self._host for node in self._readers.get(value, ()))
        return self._maker.get(value) in self._host

    def ahead(self) -> Iterator[Node]:
        """Yield the copies to the host of what is there before the first node."""
        yield from self._taken_home([v for v in self._readers if v not in self._maker])

    def _taken_home(self, values: Iterable[Value]) -> Iterator[Node]:
        """Yield copies to the host, as early as can be: there they do not part ops that follow each other."""
        for value in values:
            reader = next((n for n in self._readers.get(value, ()) if n in self._host), None)
            if reader is not None and value not in self.swap:
                yield self._copy(value, True, reader)

    def place(self, node: Node) -> Iterator[Node]:
        """Yield the node with its operands where it runs, between the copies that this takes."""
        here = node in self._host
        inputs: dict[str, tuple[Value | None, ...]] = {}
        for slot, values in node.inputs.items():
            operands: list[Value | None] = []
            for value in values:
                if value is not None and (value in self.swap) != here:
                    if (value, here) not in self._copied:
                        yield self._copy(value, here, node)
                    operands.append(self._copied[value, here])
                else:
                    operands.append(value if value is None else self.swap.get(value, value))
            inputs[slot] = tuple(operands)
        grads = tuple((name, self.swap.get(value, value)) for name, value in node.grads)
        yield replace(node.writing(self.swap), inputs=inputs, grads=grads, host=here)
        yield from self._taken_home(node.writes())

    def _copy(self, value: Value, to_host: bool, node: Node) -> Node:
        """Return the node that copies a value for its readers on one side, wherever these run."""
        name = f"{value.name}@{'HOST' if to_host else 'GPU'}"
        result = Value(name, value.spec, TEMP, value.version, host=to_host)
        self._copied[value, to_host] = result
        self.copies.append(_Copy(str(value), value.spec, to_host))
        maker = self._maker.get(value)
        ranks = {n.at for n in self._readers[value] if (n in self._host) == to_host}
        at = ranks.pop() if len(ranks) == 1 else EVERYWHERE
        return Node(
            COPY,
            {"X": (self.swap.get(value, value),)},
            {"Out": (result,)},
            {"dst_place_type": _TO_HOST if to_host else _TO_GPU},
            node.role,
            node.where,
            at=at if maker is None or maker.at == EVERYWHERE else maker.at,
        )


def _told(host: Collection[Node], lacking: Collection[Node], placer: _Placer) -> Iterator[str]:
    for why, nodes in (
        ("device_guard", [node for node in host if node not in lacking]),
        ("no kernel for GPUs", [node for node in host if node in lacking]),
    ):
        if nodes:
            ops = Counter(node.op for node in nodes)
            names = ", ".join(f"{n} {op}" if n > 1 else op for op, n in sorted(ops.items()))
            yield f"{why}: {len(nodes)} op(s) run on the host of each GPU: {names}"
    for to_host, side in ((True, "to the host"), (False, "to the GPU")):
        specs = {copy.name: copy.spec for copy in placer.copies if copy.to_host == to_host}
        if specs:
            yield f"device_guard: {len(specs)} value(s) are copied {side}, {_size(specs)}"
    if placer.lasting:
        persistables = _listed(placer.lasting)
        yield f"device_guard: only ops on the host use {persistables}; there these persistables lie"


def _size(specs: Mapping[str, Spec]) -> str:
    """Say how many bytes values have, by row of the batch where that is not known yet."""
    fixed = sum(nbytes(spec) for spec in specs.values() if -1 not in spec.shape)
    rows = (s for s in specs.values() if s.shape[:1] == (-1,) and -1 not in s.shape[1:])
    by_row = sum(nbytes(spec._replace(shape=spec.shape[1:])) for spec in rows)
    sizes = [f"{fixed:,} bytes"] if fixed else []
    sizes += [f"{by_row:,} bytes for each row"] if by_row else []
    return f"{' and '.join(sizes) or 'of sizes that vary'} ({_listed(list(specs))})"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _kept_back(stay: Collection[Node]) -> Iterator[str]:
    """Name what stays on the GPU although it asks for the host."""
    for node in sorted(stay, key=lambda node: (node.where, str(node))):
        names = sorted({value.name for value in node.writes() if value.kind == STATE})
        yield (
            f"device_guard: {node.op} (built at {node.where}) stays on the GPU: it updates {_listed(names)}, "
            f"which ops on the GPU use too"
        )
