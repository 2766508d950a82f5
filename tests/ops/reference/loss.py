"""Softmax, losses, measures."""

from __future__ import annotations

from typing import Any

import numpy as np

from .activation import sigmoid
from .registry import reference, unary


def softmax_of(x: np.ndarray, axis: int) -> np.ndarray:
    shifted = np.exp(x - x.max(axis, keepdims=True))
    return shifted / shifted.sum(axis, keepdims=True)


unary("softmax", lambda x, a: softmax_of(x, a["axis"]))


def negative_log(p: np.ndarray, label: np.ndarray, attrs: dict[str, Any], axis: int) -> np.ndarray:
    if attrs.get("soft_label"):
        return -(label * np.log(p)).sum(axis, keepdims=True)
    label = np.expand_dims(label, axis) if label.ndim < p.ndim else label
    ignored = label == attrs["ignore_index"]
    picked = np.take_along_axis(p, np.where(ignored, 0, label), axis)
    return np.where(ignored, 0.0, -np.log(picked))


@reference("cross_entropy", "cross_entropy2")
def cross_entropy(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    loss = negative_log(ins["X"], ins["Label"], attrs, -1)
    return {"Y": loss if ins["Label"].ndim == ins["X"].ndim else loss[..., 0]}


@reference("softmax_with_cross_entropy")
def softmax_with_cross_entropy(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    p = softmax_of(ins["Logits"], attrs["axis"])
    return {"Softmax": p, "Loss": negative_log(p, ins["Label"], attrs, attrs["axis"])}


@reference("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, t = ins["X"], ins["Label"]
    loss = -t * np.log(sigmoid(x)) - (1 - t) * np.log(1 - sigmoid(x))
    return {"Out": loss / loss.size if attrs["normalize"] else loss}


@reference("log_loss")
def log_loss(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    p, t, e = ins["Predicted"], ins["Labels"], attrs["epsilon"]
    return {"Loss": -t * np.log(p + e) - (1 - t) * np.log(1 - p + e)}


@reference("huber_loss")
def huber_loss(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    r, d = ins["Y"] - ins["X"], attrs["delta"]
    return {"Residual": r, "Out": np.where(np.abs(r) <= d, r**2 / 2, d * (np.abs(r) - d / 2))}


@reference("accuracy")
def accuracy(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    hits = sum(label in row for row, (label,) in zip(ins["Indices"], ins["Label"], strict=True))
    total = len(ins["Label"])
    return {"Accuracy": [hits / total], "Correct": [hits], "Total": [total]}
