"""Ops that follow trees, one node at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("tree_conv")
def tree_conv(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, w, deepest = ins["NodesVector"], ins["Filter"], attrs["max_depth"]
    out = np.zeros((*x.shape[:2], *w.shape[2:]))
    for tree, edges in enumerate(ins["EdgeSet"].tolist()):
        children: dict[int, list[int]] = {}
        for parent, child in edges:
            if not parent or not child:
                break
            children.setdefault(parent, []).append(child)
        count = 1 + sum(map(len, children.values()))
        for root in range(1, min(count, x.shape[1]) + 1):
            level = [(root, 0.5)]
            for depth in range(deepest):
                down = depth / deepest
                for node, share in level:
                    left = down * share
                    weights = np.array([left, down * (1 - left), 1 - down])
                    out[tree, root - 1] += np.einsum("f,k,fkwn->wn", x[tree, node - 1], weights, w)
                level = [
                    (child, k / (len(below) - 1) if len(below) > 1 else 0.5)
                    for node, _ in level
                    for below in [children.get(node, [])]
                    for k, child in enumerate(below)
                ]
    return {"Out": out}


@reference("gather_tree")
def gather_tree(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    out = np.zeros_like(ins["Ids"])
    steps, batch, beams = out.shape
    for b, k in np.ndindex(batch, beams):
        beam = k
        for step in reversed(range(steps)):
            out[step, b, k] = ins["Ids"][step, b, beam]
            beam = ins["Parents"][step, b, beam]
    return {"Out": out}


@reference("tdm_child")
def tdm_child(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    tree, dtype = ins["TreeInfo"].tolist(), [np.int32, np.int64][attrs["dtype"] - 2]
    none = [0] * attrs["child_nums"]
    rows = [tree[node][3:] if node and tree[node][3] else none for node in ins["X"].ravel()]
    some = [any(row) for row in rows]
    masks = [[int(s and tree[c][0] != 0) for c in row] for row, s in zip(rows, some, strict=True)]
    shape = (*ins["X"].shape, attrs["child_nums"])
    return {
        "Child": np.array(rows, dtype).reshape(shape),
        "LeafMask": np.array(masks, dtype).reshape(shape),
    }


@reference("hierarchical_sigmoid")
def hierarchical_sigmoid(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, w, classes = ins["X"], ins["W"], attrs["num_classes"]
    bias = ins["Bias"].reshape(-1) if "Bias" in ins else np.zeros(len(w))
    custom = "PathTable" in ins
    steps = ins["PathTable"].shape[1] if custom else int(np.ceil(np.log2(classes)))
    cost, loss = np.full((len(x), steps), np.log(2)), np.zeros((len(x), 1))
    for row, label in enumerate(ins["Label"].reshape(-1)):
        if custom:
            path = zip(ins["PathTable"][row], ins["PathCode"][row], strict=True)
            path = [(k, node, turn != 0) for k, (node, turn) in enumerate(path) if node >= 0]
        else:
            bits = f"{label + classes:b}"[:0:-1]
            path = [(k, (label + classes) // 2 ** (k + 1) - 1, int(b)) for k, b in enumerate(bits)]
        for k, node, turn in path:
            z = np.clip(w[node] @ x[row] + bias[node], -40, 40)
            cost[row, k] = np.log1p(np.exp(z))
            loss[row] -= turn * z
        loss[row] += cost[row].sum()
    return {"Out": loss, "PreOut": cost, "W_Out": w}
