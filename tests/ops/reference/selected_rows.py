"""Gradients of embeddings as rows, one row after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]


@reference("merge_selected_rows", "get_tensor_from_selected_rows")
def handed_on(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": ins["X"]}


@reference("embedding_rows")
def embedding_rows(ins: Slots, attrs: Slots) -> Slots:
    ids = ins["Ids"].reshape(-1)
    grads = ins["Out@GRAD"]
    if attrs["pooled"]:
        grads = np.repeat(grads, np.diff(ins["Ids@LOD"][-1]), axis=0)
    values = grads.reshape(ids.size, -1).copy()
    padding = attrs["padding_idx"]
    if padding != -1:
        values[ids == padding % attrs["height"]] = 0
    return {"Rows": ids, "Values": values}


@reference("merge_rows")
def merge_rows(ins: Slots, attrs: Slots) -> Slots:
    rows = np.full(ins["Rows"].size, attrs["height"])
    values = np.zeros(ins["Values"].shape)
    for k, row in enumerate(sorted(set(ins["Rows"].tolist()))):
        rows[k], values[k] = row, ins["Values"][ins["Rows"] == row].sum(0)
    return {"OutRows": rows, "OutValues": values}


@reference("take_rows")
def take_rows(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.stack([ins["Table"][row] for row in ins["Rows"]])}


@reference("put_rows")
def put_rows(ins: Slots, attrs: Slots) -> Slots:
    table = ins["Table"].copy()
    for row, values in zip(ins["Rows"], ins["Values"], strict=True):
        table[row] = values
    return {"Out": table}


@reference("dense_rows")
def dense_rows(ins: Slots, attrs: Slots) -> Slots:
    whole = np.zeros((attrs["height"], ins["Values"].shape[1]))
    np.add.at(whole, ins["Rows"], ins["Values"])
    return {"Out": whole}


@reference("nce_rows")
def nce_rows(ins: Slots, attrs: Slots) -> Slots:
    """By differences of the cost of each class, which is -log of its share."""
    labels, x, s = ins["SampleLabels"], ins["Input"], ins["SampleLogits"]
    (count, columns), classes = labels.shape, attrs["num_total_classes"]
    true = columns - attrs["num_neg_samples"]
    shares = [
        lambda k: 1 / classes,
        lambda k: np.log((k + 2) / (k + 1)) / np.log(classes),
        lambda k: ins["CustomDistProbs"][k],
    ]
    values = []
    for n in range(count):
        factor = ins["Cost@GRAD"][n, 0] * ins.get("SampleWeight", np.ones((count, 1)))[n, 0]
        for c in range(columns):
            p = shares[attrs["sampler"]](labels[n, c]) * attrs["num_neg_samples"]
            of_share = -p / (s[n, c] * (s[n, c] + p)) if c < true else 1 / (s[n, c] + p)
            values.append(x[n] * (factor * of_share * s[n, c] * (1 - s[n, c])))
    return {"Rows": labels.reshape(-1), "Values": values}


@reference("hierarchical_sigmoid_rows")
def hierarchical_sigmoid_rows(ins: Slots, attrs: Slots) -> Slots:
    rows, values = [], []
    for n, cost in enumerate(ins["PreOut"]):
        if "PathTable" in ins:
            way = list(zip(ins["PathTable"][n], ins["PathCode"][n], strict=True))
        else:
            code = int(ins["Label"].reshape(-1)[n]) + attrs["num_classes"]
            way = [((code >> k + 1) - 1, code >> k & 1) for k in range(code.bit_length() - 1)]
        way += [(-1, 0)] * (len(cost) - len(way))
        for (node, turn), log_cost in zip(way, cost, strict=True):
            ended = node < 0
            slope = 0.0 if ended else (np.exp(log_cost) - 1) / np.exp(log_cost) - (turn != 0)
            rows.append(attrs["height"] if ended else node)
            values.append(slope * ins["Out@GRAD"][n, 0] * ins["X"][n])
    return {"Rows": rows, "Values": values}
