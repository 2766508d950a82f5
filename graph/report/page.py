"""Pages for notebooks: a program, and what was compiled of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..ir.reader import from_program
from .svg import to_svg

if TYPE_CHECKING:
    from ..program.program import Program
    from .report import CompileReport

_DRAWN = 400  # ops; a picture of more tells nothing


def of_program(program: Program) -> str:
    """Return a program as HTML: its parameters and the graph of its operators."""
    block = program.global_block()
    feeds = [v.name for v in block.vars.values() if v.is_data]
    rows = [
        (p.name, list(p.shape or ()), p.dtype.name if p.dtype is not None else "?", p.trainable)
        for p in program.all_parameters()
    ]
    return (
        f"<p>{escape(repr(program))}</p>"
        + _folded("Graph", picture(from_program(program, feeds)))
        + _folded("Parameters", table(("name", "shape", "type", "trainable"), rows))
    )


def of_report(report: CompileReport) -> str:
    """Return what compiling did as HTML: graph, passes, kernels, memory, and what was not done and why."""
    passes = [
        (r.name, r.before, r.after, "yes" if r.changed else "no", f"{r.seconds * 1e3:.2f}")
        for r in report.passes
    ]
    parts = [
        f"<p>{escape(report.summary())}</p>",
        _folded("Graph", picture(report.graph)),
        _folded("Passes", table(("pass", "ops before", "after", "changed it", "ms"), passes)),
        _folded("Kernels", table(("computed by", "ops"), sorted(report.kernels.items()))),
    ]
    if report.memory is not None:
        parts.append(_folded("Memory", f"<pre>{escape(str(report.memory))}</pre>"))
    reasons = [*(f"{flag}: accepted, has no effect yet" for flag in report.ignored)]
    reasons += [*report.graph.notes, *report.graphs]
    if reasons:
        items = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
        parts.append(_folded("What was found, and why not more", f"<ul>{items}</ul>"))
    return "".join(parts)


def picture(graph: Any) -> str:
    """Return a graph's picture in a frame that scrolls, or a sentence if it is too large."""
    if len(graph.nodes) > _DRAWN:
        return f"<p>{len(graph.nodes)} ops are too many for a picture here.</p>"
    return f'<div style="overflow:auto;max-height:480px">{to_svg(graph)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"


def _folded(title: str, content: str) -> str:
    shown = " open" if title == "Graph" else ""
    return f"<details{shown}><summary>{escape(title)}</summary>{content}</details>"
