"""Pages for notebooks: that of a program, and the parts of all pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ...strategies.errors import EnforceNotMet
from ..ir.reader import from_program
from .svg import to_svg

if TYPE_CHECKING:
    from ..program.program import Program

_DRAWN = 400  # ops; a picture of more cannot be read


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
        + folded("Graph", _graph(program, feeds))
        + folded("Parameters", table(("name", "shape", "type", "trainable"), rows))
    )


def _graph(program: Program, feeds: Sequence[str]) -> str:
    try:
        return picture(from_program(program, feeds))
    except EnforceNotMet as error:  # it depends on sizes that are fed
        return f"<p>{escape(str(error))}</p>"


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


def folded(title: str, content: str) -> str:
    """Return content that a click on the title shows; a graph is open at first."""
    state = " open" if title == "Graph" else ""
    return f"<details{state}><summary>{escape(title)}</summary>{content}</details>"
