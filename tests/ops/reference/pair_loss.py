"""Losses of one element and its label, and of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .activation import sigmoid
from .rectifier import softplus
from .registry import binary, reference

Arrays = dict[str, Any]

binary("minus", lambda x, y: x - y)


@reference("bce_loss")
def bce_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    x, t = ins["X"], ins["Label"]
    return {"Out": -t * np.log(x) - (1 - t) * np.log(1 - x)}


@reference("hinge_loss")
def hinge_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    return {"Loss": np.maximum(0, 1 - ins["Logits"] * (2 * ins["Labels"] - 1))}


@reference("kldiv_loss")
def kldiv_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    t = ins["Target"]
    loss, how = t * (np.log(t) - ins["X"]), attrs["reduction"]
    reduced = {"sum": loss.sum(), "mean": loss.mean(), "batchmean": loss.sum() / len(loss)}
    return {"Loss": [reduced[how]] if how in reduced else loss}


@reference("margin_rank_loss")
def margin_rank_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    value = attrs["margin"] - ins["Label"] * (ins["X1"] - ins["X2"])
    return {"Out": np.maximum(value, 0), "Activated": value > 0}


@reference("modified_huber_loss")
def modified_huber_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    a = ins["X"] * (2 * ins["Y"] - 1)
    return {"Out": np.where(a < -1, -4 * a, np.maximum(0, 1 - a) ** 2), "IntermediateVal": a}


@reference("rank_loss")
def rank_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    o = ins["Left"] - ins["Right"]
    return {"Out": softplus(o) - ins["Label"] * o}


@reference("smooth_l1_loss")
def smooth_l1_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    d, s = (ins["X"] - ins["Y"]) * ins.get("InsideWeight", 1), attrs["sigma"] ** 2
    loss = np.where(np.abs(d) * s < 1, d * d * s / 2, np.abs(d) - 1 / (2 * s))
    loss = loss * ins.get("OutsideWeight", 1)
    return {"Diff": d, "Out": loss.reshape(len(d), -1).sum(1, keepdims=True)}


@reference("teacher_student_sigmoid_loss")
def teacher_student_sigmoid_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    x, t = ins["X"], ins["Label"]
    entropy = lambda z: softplus(x) - x * z  # noqa: E731
    with_score = np.where(t < 1, entropy(0) + entropy(t), entropy(1) + entropy(t - 1))
    return {"Y": np.where(t < -1, entropy(0), np.where(t < 0, entropy(1), with_score))}


@reference("label_smooth")
def label_smooth(ins: Arrays, attrs: Arrays) -> Arrays:
    x, eps = ins["X"], attrs["epsilon"]
    return {"Out": (1 - eps) * x + eps * ins.get("PriorDist", 1 / x.shape[-1])}


@reference("sigmoid_focal_loss")
def sigmoid_focal_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    p, alpha = sigmoid(ins["X"]), attrs["alpha"]
    hit = ins["Label"] == np.arange(1, p.shape[1] + 1)
    miss = (ins["Label"] != -1) & ~hit
    right = alpha * (1 - p) ** attrs["gamma"] * np.log(p)
    wrong = (1 - alpha) * p ** attrs["gamma"] * np.log(1 - p)
    return {"Out": -(hit * right + miss * wrong) / max(ins["FgNum"].item(), 1)}
