"""What the compiler did, for people: pictures of the graph, and the report of one compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from .ir import STATE, Graph, Value
from .memory_report import MemoryReport

if TYPE_CHECKING:
    from .pipeline import PassRecord


def to_dot(graph: Graph) -> str:
    """Return the graph as Graphviz text: a box per op, an ellipse per value, persistable ones filled."""
    ids = {value: f"v{i}" for i, value in enumerate(graph.values())}
    lines = ["digraph G {", "  node [fontname=Arial];"]
    for value, key in ids.items():
        color = "#148b97" if value.kind == STATE else "#dddddd"
        font = "white" if value.kind == STATE else "black"
        lines.append(
            f'  {key} [label="{value}\\n{value.spec}", style=filled, fillcolor="{color}", fontcolor={font}];'
        )
    for i, node in enumerate(graph.nodes):
        lines.append(
            f'  op{i} [label="{node.op}", shape=box, style="rounded,filled", '
            f'fillcolor="#303A3A", fontcolor=white];'
        )
        lines += [f"  {ids[value]} -> op{i};" for value in dict.fromkeys(node.reads())]
        lines += [f"  op{i} -> {ids[value]};" for value in dict.fromkeys(node.writes())]
    return "\n".join([*lines, "} // end G", ""])


SLOWER = (
    "NumPy computes everything: right, but slower than with oneDNN and Numba (install rowlock[cpu])"
)


@dataclass(frozen=True)
class CompileReport:
    """What ``explain()`` tells: passes and their effect, buckets, flags that have no effect yet.

    ``buckets``: bytes in each collective. ``owned``: bytes of persistables that one rank alone holds, by rank.
    ``kernels``: how many ops each back end computes. ``memory``: what the shapes fed last take, once known.
    ``graphs``: which graphs a step on a GPU is made of.
    """

    passes: tuple[PassRecord, ...]
    graph: Graph
    replicas: int
    ignored: tuple[str, ...] = ()
    buckets: tuple[int, ...] = ()
    owned: tuple[int, ...] = ()
    kernels: Mapping[str, int] = field(default_factory=dict)
    memory: MemoryReport | None = None
    graphs: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"compiled for {self.replicas} replica(s): {len(self.graph.nodes)} ops"]
        for record in self.passes:
            effect = (
                f"{record.before} -> {record.after} ops"
                if record.changed
                else "found nothing to do"
            )
            lines.append(f"  {record.name}: {effect} ({record.seconds * 1e3:.2f} ms)")
        if self.buckets:
            sizes = ", ".join(f"{nbytes:,}" for nbytes in self.buckets)
            lines.append(f"  replicas meet in {len(self.buckets)} collective(s) of {sizes} bytes")
        if self.owned:
            each = " and ".join(f"{nbytes:,}" for nbytes in self.owned)
            total = sum(self.owned)
            lines.append(
                f"  optimizer state lies at its owners, {each} bytes by place; not holding {total:,} bytes "
                f"on every place saves {total * (self.replicas - 1):,} bytes"
            )
        by = ", ".join(f"{count} on {name}" for name, count in sorted(self.kernels.items()))
        lines.append(f"  kernels: {by}")
        if self.kernels.keys() == {"numpy"}:
            lines.append(f"  {SLOWER}")
        lines += [f"  {flag}: accepted, has no effect yet" for flag in self.ignored]
        lines += [f"  {note}" for note in self.graph.notes]
        lines += [f"  {line}" for line in (*self.graphs, *str(self.memory or "").splitlines())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{r.name}</td><td>{r.before}</td><td>{r.after}</td><td>{r.seconds * 1e3:.2f}</td></tr>"
            for r in self.passes
        )
        ignored = f"<p>No effect yet: {', '.join(self.ignored)}</p>" if self.ignored else ""
        return (
            f"<p>{len(self.graph.nodes)} ops on {self.replicas} replica(s)</p><table><tr><th>pass</th>"
            f"<th>ops before</th><th>after</th><th>ms</th></tr>{rows}</table>{ignored}"
        )


_BOX_WIDTH, _ROW, _TOP = 150, 46, 24


def to_svg(graph: Graph) -> str:
    """Return a picture of the ops as SVG text: one row per depth, an arrow from each op to its readers."""
    depth, maker = _depths(graph)
    columns: dict[int, int] = {}
    at: dict[int, tuple[int, int]] = {}
    for i in range(len(graph.nodes)):
        column = columns.get(depth[i], 0)
        columns[depth[i]] = column + 1
        at[i] = (20 + column * (_BOX_WIDTH + 20), _TOP + depth[i] * _ROW)
    shapes: list[str] = []
    for i, node in enumerate(graph.nodes):
        x, y = at[i]
        for j in sorted({maker[v] for v in node.reads() if v in maker}):
            fx, fy = at[j]
            shapes.append(
                f'<path d="M{fx + _BOX_WIDTH // 2},{fy + 26} C{fx + _BOX_WIDTH // 2},{fy + 40} '
                f'{x + _BOX_WIDTH // 2},{y - 14} {x + _BOX_WIDTH // 2},{y}" fill="none" stroke="#999"/>'
            )
    for i, node in enumerate(graph.nodes):
        x, y = at[i]
        title = escape(str(node))
        shapes.append(
            f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="26" rx="6" '
            f'fill="{_COLORS.get(node.role & 3, "#303A3A")}"/><text x="{x + _BOX_WIDTH // 2}" y="{y + 17}" '
            f'text-anchor="middle" font-family="Arial" font-size="11" fill="white">{node.op}</text></g>'
        )
    width = 20 + max(columns.values(), default=0) * (_BOX_WIDTH + 20)
    height = _TOP + (max(columns, default=0) + 1) * _ROW
    body = "\n".join(shapes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">\n{body}\n</svg>\n'


_COLORS = {0: "#148b97", 1: "#303A3A", 2: "#97621a"}  # forward, backward, optimize


def _depths(graph: Graph) -> tuple[dict[int, int], dict[Value, int]]:
    depth: dict[int, int] = {}
    maker: dict[Value, int] = {}
    for i, node in enumerate(graph.nodes):
        depth[i] = 1 + max((depth[maker[v]] for v in node.reads() if v in maker), default=-1)
        maker.update(dict.fromkeys(node.writes(), i))
    return depth, maker
