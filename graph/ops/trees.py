"""Ops that follow trees: of words, of classes, and of beams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.types import to_numpy
from . import formula as f
from .lod import like, no_sequences
from .operands import Array, Input, Operands, Output, Positive, named
from .registry import define, slope
from .samples import sample
from .shapes import Sized


class TreeConv(Operands):
    nodes_vector: Input
    edge_set: Input
    filter: Input
    out: Output
    max_depth: int = 2


def tree_conv(a: TreeConv) -> f.Results:
    """Weigh what lies below each node, by depth and by place among siblings.

    Mou et al., arXiv 1409.5718, section 3.2: eta of the top, the left and the right. Edges lead from parent to
    child, which count from 1; an edge of 0 ends them. Nodes that a tree does not have are zeros.
    """
    n, dtype = a.nodes_vector.shape[1], a.nodes_vector.dtype
    edges = f.checked(a.edge_set, n + 1, "node", "nodes and none")
    real = (edges[..., 0] > 0) & (edges[..., 1] > 0)
    count = edges.shape[1]
    before = f.table(np.tri(count, k=-1), dtype)
    ended = before @ f.where(real, 0, 1).astype(dtype).reshape(-1, count, 1)
    real = real & (ended.reshape(-1, count) < 0.5)
    number = f.table(np.arange(1, n + 1), edges.dtype)

    def ends(k: int) -> Array:
        return (f.equal(edges[..., k : k + 1], number) & real.reshape(-1, count, 1)).astype(dtype)

    parent_BEn, child_BEn = ends(0), ends(1)
    below_Bnn = f.turned(parent_BEn) @ child_BEn
    siblings_BEE = parent_BEn @ f.turned(parent_BEn)
    place = (siblings_BEE * before).sum(2, keepdims=True)
    others = siblings_BEE.sum(2, keepdims=True) - 1
    share = f.where(others > 0.5, place / f.maximum(others, 1), 0.5)
    right_B1n = f.turned(f.turned(child_BEn) @ share)
    exists = number.reshape(n, 1) <= real.astype(edges.dtype).sum(1).reshape(-1, 1, 1) + 1
    reach = f.where(exists, f.table(np.eye(n), dtype), 0)
    left, right, top = reach * 0, reach * 0, reach
    for depth in range(1, a.max_depth):
        reach, down = reach @ below_Bnn, depth / a.max_depth
        left = left + reach * right_B1n * down
        right = right + reach * (1 - right_B1n * down) * down
        top = top + reach * (1 - down)
    filters = a.filter.reshape(a.filter.shape[0], 3, -1)
    parts = [
        (f.constant(weights) @ a.nodes_vector) @ filters[:, k]
        for k, weights in enumerate((left, right, top))
    ]
    return {"out": (parts[0] + parts[1] + parts[2]).reshape(a.out.shape)}


_TREE = "NodesVector [2 4 3], EdgeSet 0:1 [2 3 2], Filter [3 3 2 2]"

define(
    "tree_conv",
    TreeConv,
    Sized(
        "NodesVector [trees nodes F], EdgeSet integers [trees edges 2], Filter [F 3 width filters] "
        "-> Out [trees nodes width filters]",
        lambda op: op.require(op.attr("max_depth") > 1, "max_depth must be above 1"),
    ),
    formula=tree_conv,
    samples=(sample(_TREE), sample(_TREE, "EdgeSet 1:3 [2 1 2]", max_depth=3)),
    refuses=(sample(_TREE, max_depth=1),),
    slope=slope("nodes_vector edge_set filter d_out", "d_nodes_vector d_filter"),
)


class GatherTree(Operands):
    ids: Input
    parents: Input
    out: Output


def gather_tree(a: GatherTree) -> f.Results:
    """Follow each beam from its last step back to the first, by the parents."""
    steps, batch, beams = a.ids.shape
    first = f.table(np.arange(batch).reshape(batch, 1) * beams, np.int64)
    parents = f.checked(a.parents, beams, "parent", "beams").astype(np.int64)
    index = first + f.table(np.arange(beams), np.int64)
    path = []
    for step in reversed(range(steps)):
        path.append(f.take(a.ids[step].reshape(-1), index.reshape(-1)).reshape(1, batch, beams))
        index = first + f.take(parents[step].reshape(-1), index.reshape(-1)).reshape(batch, beams)
    return {"out": f.concatenate(path[::-1])}


define(
    "gather_tree",
    GatherTree,
    Sized(
        "Ids integers [steps batch beams], Parents as Ids [steps batch beams] "
        "-> Out [steps batch beams]"
    ),
    formula=gather_tree,
    samples=(sample("Ids 0:9 [4 2 3], Parents 0:3 [4 2 3]"),),
)


class TdmChild(Operands):
    x: Input
    tree_info: Input
    child: Output
    leaf_mask: Output
    child_nums: Positive = 0
    dtype: int = 2


def tdm_child(a: TdmChild) -> f.Results:
    """The children of nodes, and 1 where a child stands for an item; node 0 is none, and has none.

    A row of TreeInfo has a node's item, layer and parent, and its children; 0 where there is none.
    """
    nodes = f.checked(a.x.reshape(-1), a.tree_info.shape[0], "node", "rows of TreeInfo")
    rows = f.take(a.tree_info, nodes)
    has_some = f.not_equal(nodes, 0) & f.not_equal(rows[:, 3], 0)
    children = f.where(has_some.reshape(-1, 1), rows[:, 3:], 0)
    index = f.checked(children, a.tree_info.shape[0], "child", "rows of TreeInfo")
    is_item = f.not_equal(f.take(a.tree_info[:, 0], index), 0) & has_some.reshape(-1, 1)
    shape, dtype = (*a.x.shape, a.child_nums), to_numpy(a.dtype)
    masks = f.where(is_item, 1, 0)
    return {
        "child": children.astype(dtype).reshape(shape),
        "leaf_mask": masks.astype(dtype).reshape(shape),
    }


_TREE = "X 0:7 [4 1], TreeInfo 0:7 [7 5]"
define(
    "tdm_child",
    TdmChild,
    Sized(
        "X integers [...], TreeInfo integers [nodes 3+child_nums] "
        "-> Child dtype [... child_nums], LeafMask dtype [... child_nums]"
    ),
    lod=like("X", "Child", "LeafMask"),
    formula=tdm_child,
    samples=(sample(_TREE, child_nums=2), sample(_TREE, child_nums=2, dtype=3)),
)


_WAYS = (
    "(PathTable is None) == (PathCode is None); PathTable and PathCode go together",
    "PathTable is not None or num_classes > 1; num_classes must be 2 or more",
    "steps = (num_classes - 1).bit_length() if PathTable is None else PathTable[1]",  # of the longest way
)


class HierarchicalSigmoid(Operands):
    x: Input
    w: Input
    label: Input
    path_table: Input | None
    path_code: Input | None
    bias: Input | None
    out: Output
    pre_out: Output
    w_out: Output | None = named("W_Out")
    num_classes: int = 2
    remote_prefetch: bool = False
    trainer_id: int = 0
    height_sections: Sequence[int] = []
    epmap: Sequence[str] = []
    table_names: Sequence[str] = []
    is_sparse: bool = False


class HierarchicalSigmoidRows(Operands):
    """The gradient of W as rows: of each node on each way, and its values; ``height`` behind a way's end."""

    x: Input
    label: Input
    path_table: Input | None
    path_code: Input | None
    pre_out: Input
    d_out: Input
    rows: Output
    values: Output
    num_classes: int = 2
    height: int = 0


def _paths(classes: int) -> tuple[Any, Any]:
    """Return the inner nodes on the way to each class of a full binary tree, -1 behind them, and the turns.

    The node of class c is c + classes, counted as in a heap from 1; the way leads up.
    """
    steps = int(classes - 1).bit_length()
    nodes, turns = np.full((2, classes, steps), -1)
    for label in range(classes):
        code = label + classes
        for k in range(code.bit_length() - 1):
            nodes[label, k], turns[label, k] = (code >> (k + 1)) - 1, code >> k & 1
    return nodes, turns


def _ways(a: HierarchicalSigmoid | HierarchicalSigmoidRows) -> tuple[Array, Array]:
    """Return the nodes on the way to each row's class, -1 behind its end, and the turns: [rows, steps]."""
    if a.path_table is not None and a.path_code is not None:
        return a.path_table.astype(np.int64), a.path_code
    label = f.checked(a.label.reshape(-1), a.num_classes, "label", "classes")
    nodes, turns = (f.take(f.table(path, np.int64), label) for path in _paths(a.num_classes))
    return nodes, turns


def hierarchical_sigmoid(a: HierarchicalSigmoid) -> f.Results:
    """The sum of log(1 + exp(z)) - turn * z along the way to the class: Morin and Bengio, AISTATS 2005.

    z is cut to [-40, 40], and 0 behind the way's end, where it counts log 2, as in Paddle.
    """
    nodes, turns = _ways(a)
    rows, steps = nodes.shape
    present = nodes >= 0
    index = f.checked(f.where(present, nodes, 0), a.w.shape[0], "node", "rows of W").reshape(-1)
    z = (f.take(a.w, index).reshape(rows, steps, -1) * a.x.reshape(rows, 1, -1)).sum(2)
    if a.bias is not None:
        z = z + f.take(a.bias.reshape(-1), index).reshape(rows, steps)
    z = f.where(present, z, 0)
    z = z + f.constant(f.minimum(f.maximum(z, -40.0), 40.0) - z)  # the slope goes on where z is cut
    turned = f.where(f.not_equal(turns, 0) & present, z, 0)
    cost = f.log1p(f.exp(z))
    return {"out": (cost - turned).sum(1, keepdims=True), "pre_out": cost, "w_out": a.w}


def hierarchical_sigmoid_rows(a: HierarchicalSigmoidRows) -> f.Results:
    """The slope of a step is sigmoid(z) - turn, where log(1 + exp(z)) is its cost."""
    nodes, turns = _ways(a)
    rows, steps = nodes.shape
    present = nodes >= 0
    slope = 1 - f.exp(-a.pre_out) - f.where(f.not_equal(turns, 0), 1.0, 0.0).astype(a.x.dtype)
    slope = f.where(present, slope, 0) * a.d_out.reshape(-1, 1)
    values = slope.reshape(rows, steps, 1) * a.x.reshape(rows, 1, -1)
    index = f.where(present, nodes, a.height)
    return {"rows": index.reshape(-1), "values": values.reshape(rows * steps, -1)}


_CLASSES = "X [4 3], W [5 3], Label 0:6 [4 1]"
_WAY = "PathTable -1:5 [4 3], PathCode -1:3 [4 3]"
_COSTS = "X [4 3], PreOut 0.1:1.0 [4 3], Out@GRAD [4 1]"

define(
    "hierarchical_sigmoid",
    HierarchicalSigmoid,
    Sized(
        "X floats [N D], W as X [nodes D], Label integers [N 1?], Bias [nodes 1?], "
        "PathTable integers [rows steps], PathCode integers [rows steps] "
        "-> Out [N 1], PreOut [N steps], W_Out as W",
        *_WAYS,
        "PathTable is not None or W[0] >= num_classes - 1; W must have a row for each inner node",
    ),
    formula=hierarchical_sigmoid,
    in_place={"W_Out": "W"},
    only_uses=lambda attrs: True,
    needs=lambda attrs: {"W_Out": ("W",)},
    samples=(
        sample(_CLASSES, "Bias [5 1]", num_classes=6),
        sample(_CLASSES, "Label 0:6 [4]", num_classes=6),
        sample(_CLASSES, _WAY, num_classes=5),
    ),
    slope=slope("x w label path_table path_code bias pre_out d_out", "d_x d_w d_bias"),
)
define(
    "hierarchical_sigmoid_rows",
    HierarchicalSigmoidRows,
    Sized(
        "X floats [N D], PreOut as X [N steps], Label integers [N 1?], Out@GRAD as X [N 1?], "
        "PathTable integers [N steps], PathCode integers [N steps] "
        "-> Rows int64 [N*steps], Values as X [N*steps D]",
        *_WAYS,
    ),
    formula=hierarchical_sigmoid_rows,
    lod=no_sequences,
    samples=(
        sample(_COSTS, "Label 0:6 [4 1]", num_classes=6, height=5),
        sample("Label 0:6 [4 1]", _WAY, _COSTS, num_classes=5, height=5),
    ),
)
