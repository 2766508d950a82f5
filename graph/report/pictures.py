"""Pictures of a graph as Graphviz text, in Paddle's words: of one program, and of all places at once.

Control variables tie ops that only wait for each other: a persistable is overwritten after it was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...strategies.errors import EnforceNotMet
from ..ir.graph import EVERYWHERE, STATE, Graph, Node, Value
from ..ops.collective import ALL_REDUCE, BROADCAST, COLLECTIVES, REDUCE
from ..passes.scale_loss_gradient import is_seed

_OP = (
    'style="rounded,filled,bold" shape="box" color="#303A3A" fontcolor="#ffffff" width="1.3" '
    'height="0.84" fontname="Arial"'
)
_KEPT = (
    'shape="box" style="rounded,filled,bold" fontname="Arial" color="#148b97" fontcolor="#ffffff"'
)
_TEMP = (
    'shape="box" style="rounded,filled,bold" fontname="Arial" fillcolor="#999999" color="#dddddd"'
)
_MEETING = {ALL_REDUCE: "all_reduce", REDUCE: "reduce", BROADCAST: "broadcast"}


def program_dot(graph: Graph) -> str:
    """Return a graph as Paddle's graph_viz_pass draws it: a box per op and per version of a variable."""
    numbers: dict[Node | Value, int] = {}
    for node in graph.nodes:
        parts: list[Node | Value] = [node, *node.reads(), *node.writes()]
        for part in parts:
            numbers.setdefault(part, len(numbers))
    lines = ["digraph G {"]
    edges = []
    for part, k in numbers.items():
        if isinstance(part, Value):
            dims = ",".join(map(str, part.spec.shape))
            look = _KEPT if part.kind == STATE else _TEMP
            lines.append(f'   node_{k}[label="{part.name}({k})\n{dims}" {look}]')
            continue
        lines.append(f'   node_{k}[label="{part.scope}{part.op}({k})" {_OP}]')
        edges += [(numbers[v], k) for v in dict.fromkeys(part.reads())]
        edges += [(k, numbers[v]) for v in dict.fromkeys(part.writes())]
    for i, (reader, writer) in enumerate(_overwritten(graph.nodes), len(numbers)):
        lines.append(f'   node_{i}[label="__control_var@{i}({i})" {_TEMP}]')
        edges += [(numbers[reader], i), (i, numbers[writer])]
    lines += [f"   node_{a}->node_{b}" for a, b in sorted(edges)]
    return "\n".join([*lines, "} // end G"])


def _overwritten(nodes: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
    """Yield (reader, writer): the writer writes the next version of a persistable that the reader reads, and
    reads no result of the reader, so that only the name orders them."""
    readers: dict[Value, list[Node]] = {}
    newest: dict[str, Value] = {}
    for node in nodes:
        for value in dict.fromkeys(node.reads()):
            readers.setdefault(value, []).append(node)
            newest.setdefault(value.name, value)
        for value in dict.fromkeys(node.writes()):
            old = newest.get(value.name)
            for reader in readers.get(old, ()) if old is not None else ():
                if reader is not node and not set(reader.writes()) & set(node.reads()):
                    yield reader, node
            newest[value.name] = value


Pairs = list[tuple[Node, Node]]


def _by_collective(nodes: Sequence[Node]) -> tuple[Pairs, Pairs]:
    """Return the pairs of :func:`_overwritten`, those within a program first, then those with a collective
    between them: in the program, the writer reads a result of the reader."""
    collective_of = {v: node for node in nodes if node.op in COLLECTIVES for v in node.reads()}
    within: Pairs = []
    across: Pairs = []
    for reader, writer in _overwritten(nodes):
        through = {
            w for v in reader.writes() if v in collective_of for w in collective_of[v].writes()
        }
        (across if through & set(writer.reads()) else within).append((reader, writer))
    return within, across


class _Places:
    """Numbers the variables and ops of several places, place by place; collectives are one op for all."""

    def __init__(self, graph: Graph, replicas: int, place: str) -> None:
        self.replicas = replicas
        self.lines: list[str] = []
        self.ops: list[str] = []
        self.op_count = 0
        self.numbers: dict[tuple[int, Value], int] = {}
        self.ties: dict[tuple[int, Node], list[tuple[int, bool]]] = {}
        values = dict.fromkeys(v for n in graph.nodes for v in (*n.reads(), *n.writes()))
        within, across = _by_collective(graph.nodes)
        for rank in range(replicas):
            suffix = f"\\n{place}\\nscope: {rank}\\n"
            for value in values:
                text = f"{value.name}{suffix}v{value.version}"
                self.numbers[rank, value] = self._variable(text)
            for i, pair in enumerate(within, len(values) + len(graph.nodes)):
                self._tie(rank, *pair, f"__control_var@{i}{suffix}v0")
        for rank in range(replicas):
            for pair in across:
                self._tie(rank, *pair, "dummy")

    def _variable(self, text: str) -> int:
        self.lines.append(f'var_{len(self.lines)} [label="{text}"]')
        return len(self.lines) - 1

    def _tie(self, rank: int, reader: Node, writer: Node, text: str) -> None:
        number = self._variable(text)
        self.ties.setdefault((rank, reader), []).append((number, True))
        self.ties.setdefault((rank, writer), []).append((number, False))

    def draw(self, node: Node) -> None:
        """Add the boxes and arrows of one op."""
        collective = node.op in COLLECTIVES
        ranks = range(self.replicas)
        for group in (
            [list(ranks)] if collective else [[r] for r in ranks if node.at in (EVERYWHERE, r)]
        ):
            k, self.op_count = self.op_count, self.op_count + 1
            self.ops.append(f'op_{k} [label="{_label(node)}", shape=rect]')
            reads = [] if is_seed(node) else node.reads()
            self.ops += [f"var_{self.numbers[r, v]} -> op_{k}" for v in reads for r in group]
            ties = [tie for r in group for tie in self.ties.get((r, node), ())]
            self.ops += [f"var_{n} -> op_{k}" for n, leaves in ties if not leaves]
            self.ops += [
                f"op_{k} -> var_{self.numbers[r, v]}" for v in node.writes() for r in group
            ]
            self.ops += [f"op_{k} -> var_{n}" for n, leaves in ties if leaves]


def places_dot(graph: Graph, replicas: int, place: str = "CPUPlace") -> str:
    """Return the graph over all places as Paddle's multi_devices_print_pass draws it."""
    places = _Places(graph, replicas, place)
    for node in graph.nodes:
        places.draw(node)
    return "\n".join(["digraph G {", *places.lines, *places.ops, "}", ""])


def _label(node: Node) -> str:
    if is_seed(node):
        return "Scale LossGrad"
    if node.op not in _MEETING:
        return node.op
    several = len(node.reads()) > 1 and node.op != REDUCE
    return f"fused_{_MEETING[node.op]}" if several else _MEETING[node.op]


def write_picture(text: str, path: Path) -> None:
    """Write a picture to a file.

    Raises:
        EnforceNotMet: the file cannot be written.
    """
    try:
        path.write_text(text)
    except OSError as error:
        raise EnforceNotMet(
            f"debug_graphviz_path: cannot open {path}: {error.strerror}."
        ) from error
