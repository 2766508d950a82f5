"""The report of one compilation for people, and pictures of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from ..ir.graph import STATE, Graph
from .memory_report import MemoryReport
from .page import folded, picture, table
from .svg import to_svg

__all__ = ["CompileReport", "to_dot", "to_svg"]


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
    "NumPy computes everything: right, but slower than with oneDNN and LLVM "
    "(pip install '.[cpu]' in Rowlock's folder)"
)


@dataclass(frozen=True)
class PassRecord:
    """The record of one pass: nodes before and after, whether it changed the graph, seconds taken."""

    name: str
    old_count: int
    new_count: int
    changed: bool
    seconds: float


@dataclass(frozen=True, repr=False)
class CompileReport:
    """The result of ``explain()``: passes and their effect, buckets, flags that have no effect yet.

    ``buckets``: bytes in each collective. ``owned``: bytes of persistables that one rank alone holds, by rank.
    ``kernels``: how many ops each back end computes. ``memory``: the bytes for the shapes fed last, once known.
    ``graphs``: the CUDA graphs of a step on a GPU.
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
        lines += [
            f"  {r.name}: {r.old_count} -> {r.new_count} ops ({r.seconds * 1e3:.2f} ms)"
            for r in self.passes
            if r.changed
        ]
        unchanged = ", ".join(r.name for r in self.passes if not r.changed)
        if unchanged:
            lines.append(f"  nothing to do for {unchanged}")
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

    def summary(self) -> str:
        """Return one line: ops, replicas, kernels, and the memory of a step."""
        num_changes = sum(record.changed for record in self.passes)
        by = ", ".join(f"{count} on {name}" for name, count in sorted(self.kernels.items()))
        memory = f"; {self.memory.total:,} bytes a replica" if self.memory is not None else ""
        return (
            f"{len(self.graph.nodes)} ops on {self.replicas} replica(s) ({by}); {num_changes} of "
            f"{len(self.passes)} passes changed the graph{memory}"
        )

    def __repr__(self) -> str:
        return f"<CompileReport: {self.summary()}. print() shows all>"

    def _repr_html_(self) -> str:
        passes = [
            (
                r.name,
                r.old_count,
                r.new_count,
                "yes" if r.changed else "no",
                f"{r.seconds * 1e3:.2f}",
            )
            for r in self.passes
        ]
        parts = [
            f"<p>{escape(self.summary())}</p>",
            folded("Graph", picture(self.graph)),
            folded("Passes", table(("pass", "ops before", "after", "changed it", "ms"), passes)),
            folded("Kernels", table(("computed by", "ops"), sorted(self.kernels.items()))),
        ]
        if self.memory is not None:
            parts.append(folded("Memory", f"<pre>{escape(str(self.memory))}</pre>"))
        reasons = [f"{flag}: accepted, has no effect yet" for flag in self.ignored]
        reasons += [*self.graph.notes, *self.graphs]
        if reasons:
            items = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
            parts.append(folded("What was found, and why not more", f"<ul>{items}</ul>"))
        return "".join(parts)
