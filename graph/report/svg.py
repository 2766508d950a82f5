"""A picture of a graph as SVG: forward ops on the left, top down; backward ops beside them, bottom up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ..ir.graph import Graph, Node, Value
from ..program.role import OpRole

_ROLES = (("forward", "#148b97"), ("backward", "#303A3A"), ("update", "#97621a"))
_BOX, _ROW, _GAP, _TOP = 38, 62, 24, 48
_LETTER = 6.9  # width of a letter at 11 pixels, at most
_ACROSS = "#c2185b"  # values of the forward pass that the backward pass reads


@dataclass(frozen=True)
class _Box:
    """An op in the picture: where it stands, and its two lines."""

    x: float
    y: float
    width: float
    role: int
    lines: tuple[str, str]
    title: str


def to_svg(graph: Graph) -> str:
    """Return a picture of the ops as SVG text, with the shape of each result, and arrows to its readers."""
    roles = [_role(node) for node in graph.nodes]
    reads = _makers(graph)
    rows = _rows(roles, reads)
    boxes, width = _boxes(graph.nodes, roles, rows)
    height = max((box.y for box in boxes), default=_TOP) + _BOX + _GAP
    width = max(width, 560)
    parts = [_legend(roles)]
    for i, makers in enumerate(reads):
        parts += [_arrow(boxes[j], boxes[i]) for j in sorted(makers)]
    parts += [_draw(box) for box in boxes]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="Arial, sans-serif">\n{_HEAD}\n{body}\n</svg>\n'
    )


def _role(node: Node) -> int:
    """Return which column an op belongs to."""
    if node.role & (int(OpRole.Optimize) | int(OpRole.LRSched)):
        return 2
    return 1 if node.role & int(OpRole.Backward) else 0


def _makers(graph: Graph) -> list[set[int]]:
    """Return, per op, the makers of the values it reads."""
    maker: dict[Value, int] = {}
    makers = []
    for i, node in enumerate(graph.nodes):
        makers.append({maker[value] for value in node.reads() if value in maker})
        maker.update(dict.fromkeys(node.writes(), i))
    return makers


def _rows(roles: Sequence[int], reads: Sequence[set[int]]) -> list[int]:
    """Return each op's row: its depth among ops of its role; backward ops are counted from the last one."""
    depth = [0] * len(roles)
    for i, makers in enumerate(reads):
        own = [depth[j] for j in makers if roles[j] == roles[i]]
        depth[i] = 1 + max(own, default=-1)
    last = max((d for d, role in zip(depth, roles, strict=True) if role == 1), default=0)
    return [last - d if role == 1 else d for d, role in zip(depth, roles, strict=True)]


def _boxes(
    nodes: Sequence[Node], roles: Sequence[int], rows: Sequence[int]
) -> tuple[list[_Box], float]:
    labels = [_lines(node) for node in nodes]
    boxes: dict[int, _Box] = {}
    left = float(_GAP)
    for role in range(len(_ROLES)):
        own = [i for i, other in enumerate(roles) if other == role]
        if not own:
            continue
        width = max(len(line) for i in own for line in labels[i]) * _LETTER + 16
        column: dict[int, int] = {}
        for i in own:
            k = column[rows[i]] = column.get(rows[i], -1) + 1
            x = left + k * (width + _GAP)
            title = f"{nodes[i]}\nbuilt at {nodes[i].where}"
            boxes[i] = _Box(x, _TOP + rows[i] * _ROW, width, role, labels[i], title)
        left += (max(column.values()) + 1) * (width + _GAP) + 2 * _GAP
    return [boxes[i] for i in range(len(nodes))], left


def _lines(node: Node) -> tuple[str, str]:
    """Return an op's name, and the shape and type of its first result."""
    results = list(node.writes())
    others = f" and {len(results) - 1} more" if len(results) > 1 else ""
    return node.op, f"{results[0].spec}{others}" if results else ""


def _arrow(source: _Box, target: _Box) -> str:
    """Return an arrow; it leaves to the right where the reader is of another role."""
    if source.role == target.role:
        up = target.y < source.y
        x1, y1 = source.x + source.width / 2, source.y + (0 if up else _BOX)
        x2, y2 = target.x + target.width / 2, target.y + (_BOX if up else 0)
        bend = -18 if up else 18
        way = f"M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2:.0f}"
        return f'<path d="{way}" class="e"/>'
    x1, y1 = source.x + source.width, source.y + _BOX / 2
    x2, y2 = target.x, target.y + _BOX / 2
    way = f"M{x1:.0f},{y1:.0f} C{x1 + 30:.0f},{y1:.0f} {x2 - 30:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"
    return f'<path d="{way}" class="{"a" if (source.role, target.role) == (0, 1) else "e"}"/>'


def _draw(box: _Box) -> str:
    middle = box.x + box.width / 2
    return (
        f'<g><title>{escape(box.title)}</title><rect x="{box.x:.0f}" y="{box.y}" width="{box.width:.0f}" '
        f'height="{_BOX}" rx="6" fill="{_ROLES[box.role][1]}"/>{_text(middle, box.y + 16, box.lines[0])}'
        f"{_text(middle, box.y + 30, box.lines[1])}</g>"
    )


def _text(x: float, y: float, line: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="t">{escape(line)}</text>'


def _legend(roles: Iterable[int]) -> str:
    parts, x, present = [], _GAP, set(roles)
    for role, (name, color) in enumerate(_ROLES):
        if role in present:
            parts.append(
                f'<rect x="{x}" y="12" width="14" height="14" rx="3" fill="{color}"/>'
                f'<text x="{x + 20}" y="23" class="l">{name}</text>'
            )
            x += 96
    if {0, 1} <= present:
        parts.append(
            f'<path d="M{x},19 L{x + 26},19" class="a"/>'
            f'<text x="{x + 34}" y="23" class="l">a gradient reads what the forward pass made</text>'
        )
    return "\n".join(parts)


_HEAD = (
    '<defs><marker id="h" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
    '<path d="M0,0 L6,3 L0,6 z" fill="#888"/></marker></defs>\n'
    "<style>.e{fill:none;stroke:#999;marker-end:url(#h)}"
    f".a{{fill:none;stroke:{_ACROSS};stroke-dasharray:4 3;marker-end:url(#h)}}"
    ".t{font-size:11px;fill:#fff;text-anchor:middle}.l{font-size:12px;fill:#333}</style>"
)
