"""Softmax, losses, measures."""

from __future__ import annotations

from typing import Any

import numpy as np

from .activation import sigmoid
from .registry import reference, unary


def softmax_of(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(np.maximum(x - x.max(axis, keepdims=True), -64))
    return powers / powers.sum(axis, keepdims=True)


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


@reference("cross_entropy_of_scores")
def cross_entropy_of_scores(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["Logits"]
    p = softmax_of(x, -1)
    log_sum = x.max(-1, keepdims=True) - np.log(p.max(-1, keepdims=True))
    return {"Loss": negative_log(p, ins["Label"], attrs, -1), "LogSum": log_sum}


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


@reference("auc")
def auc(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    n, steps = attrs["num_thresholds"] + 1, attrs["slide_steps"]
    stats = [np.array(ins[slot]).copy().reshape(-1) for slot in ("StatNeg", "StatPos")]
    current = [[0] * n, [0] * n]
    for row, label in zip(ins["Predict"], np.array(ins["Label"]).reshape(-1), strict=True):
        current[bool(label)][int(np.float32(row[-1]) * np.float32(n - 1))] += 1
    sums = []
    for stat, new in zip(stats, current, strict=True):
        if steps:
            at = int(stat[-1]) % steps
            for i in range(n):
                stat[steps * n + i] += new[i] - stat[at * n + i]
                stat[at * n + i] = new[i]
            stat[-1] += 1
            sums.append(stat[steps * n : (steps + 1) * n])
        else:
            stat[:n] += new
            sums.append(stat[:n])
    area = positives = negatives = 0.0
    for negative, positive in zip(sums[0][::-1], sums[1][::-1], strict=True):
        area += negative * (2 * positives + positive) / 2
        positives, negatives = positives + positive, negatives + negative
    area = area / positives / negatives if positives and negatives else area
    shape = np.shape(ins["StatPos"])
    return {
        "AUC": [area],
        "StatPosOut": stats[1].reshape(shape),
        "StatNegOut": stats[0].reshape(shape),
    }


@reference("mean_iou")
def mean_iou(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    wrong, correct = np.zeros(attrs["num_classes"]), np.zeros(attrs["num_classes"])
    for said, expected in zip(np.ravel(ins["Predictions"]), np.ravel(ins["Labels"]), strict=True):
        if said == expected:
            correct[said] += 1
        else:
            wrong[said] += 1
            wrong[expected] += 1
    shares = [c / (c + w) for c, w in zip(correct, wrong, strict=True) if c + w]
    return {"OutMeanIou": [np.mean(shares)], "OutWrong": wrong, "OutCorrect": correct}


@reference("precision_recall")
def precision_recall(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    classes = attrs["class_number"]
    states = np.zeros((classes, 4))
    for i, (said, expected) in enumerate(zip(ins["Indices"], ins["Labels"], strict=True)):
        weight = float(np.ravel(ins["Weights"])[i]) if "Weights" in ins else 1.0
        for c in range(classes):
            column = (0 if c == expected else 1) if c == said else (3 if c == expected else 2)
            states[c, column] += weight
    total = states + ins.get("StatesInfo", 0)
    return {
        "BatchMetrics": six_measures(states),
        "AccumMetrics": six_measures(total),
        "AccumStatesInfo": total,
    }


def six_measures(states: np.ndarray) -> list[float]:
    measures: list[float] = []
    for rows in (states, [states.sum(0)]):
        precision = np.mean([tp / (tp + fp) if tp + fp else 1 for tp, fp, _, _ in rows])
        recall = np.mean([tp / (tp + fn) if tp + fn else 1 for tp, _, _, fn in rows])
        both = precision + recall
        measures += [precision, recall, 2 * precision * recall / both if both else 0]
    return measures


@reference("positive_negative_pair")
def positive_negative_pair(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    slots = ("PositivePair", "NegativePair", "NeutralPair")
    sums = [float(np.ravel(ins.get(f"Accumulate{slot}", 0))[0]) for slot in slots]
    scores, labels = ins["Score"][:, attrs["column"]], np.ravel(ins["Label"])
    weights = np.ravel(ins.get("Weight", np.ones(len(labels))))
    for i in range(len(labels)):
        for j in range(i):
            if ins["QueryID"][i] == ins["QueryID"][j] and labels[i] != labels[j]:
                weight = (weights[i] + weights[j]) / 2
                sums[2] += weight * (scores[i] == scores[j])
                agree = (scores[i] - scores[j]) * (labels[i] - labels[j]) > 0
                sums[0 if agree else 1] += weight
    return {slot: [total] for slot, total in zip(slots, sums, strict=True)}
