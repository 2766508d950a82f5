"""Softmax and losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...strategies.types import INTEGERS
from . import expr as e
from .registry import Grad, Inference, Op, Spec, Specs, define
from .rules import grads_like, merge_dims, normal_axis, of_shape, same, same_shape
from .samples import distribution, integers, normal, sample, uniform

_SOFTMAX = {
    "axis": -1,
    "data_format": "AnyLayout",
    "use_cudnn": False,
    "use_mkldnn": False,
    "is_test": False,
}


def softmax_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X; ``axis`` must be one of its dimensions."""
    normal_axis(op, op.attr("axis"), len(op.shape("X")))
    return {"Out": op.spec("X")}


define(
    Op(
        type="softmax",
        inputs=("X",),
        outputs=("Out",),
        attrs=_SOFTMAX,
        shape=softmax_shape,
        grad=Grad("softmax_grad", ("Out", "Out@GRAD"), ("X@GRAD",)),
        in_place={"Out": "X"},
        samples=(sample({"X": normal(3, 5)}), sample({"X": normal(2, 3, 4)}, axis=1)),
        refuses=(sample({"X": normal(3, 5)}, axis=2),),
    )
)
define(
    Op(
        type="softmax_grad",
        inputs=("Out", "Out@GRAD"),
        outputs=("X@GRAD",),
        attrs=_SOFTMAX,
        shape=same("Out", "X@GRAD"),
        in_place={"X@GRAD": "Out@GRAD"},
    )
)


def check_labels(
    op: Inference, x: Spec, label: Spec, soft: bool, axis: int = -1
) -> tuple[int, ...]:
    """Refuse labels that do not go with the classes along ``axis``; return the shape of the loss.

    Integer labels may lack the dimension of the classes.
    """
    axis = normal_axis(op, axis, len(x.shape))
    rows = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    wanted = x.shape if soft else rows
    if not soft and len(label.shape) == len(x.shape) - 1:
        wanted = (*x.shape[:axis], *x.shape[axis + 1 :])
    fits = len(label.shape) == len(wanted) and all(
        merge_dims(a, b) is not None for a, b in zip(wanted, label.shape, strict=True)
    )
    op.require(fits, f"Label must have shape {list(wanted)}")
    if soft:
        op.require(label.dtype == x.dtype, "soft labels must have the dtype of the scores")
    else:
        op.require(label.dtype in INTEGERS, "labels must be integers (or soft_label set)")
    return rows


def cross_entropy_shape(op: Inference) -> Mapping[str, Specs]:
    """One loss per row of X."""
    x = op.spec("X")
    soft = bool(op.attrs.get("soft_label", False))
    label = op.spec("Label")
    shape = check_labels(op, x, label, soft)
    rows = of_shape(shape if len(label.shape) == len(shape) else shape[:-1], x)
    return {"Y": rows, "MatchX": rows, "XShape": of_shape((*x.shape, 0), x)}


_PROBABILITIES = uniform(4, 5, low=0.1, high=0.9)
define(
    Op(
        type="cross_entropy",
        inputs=("X", "Label"),
        outputs=("Y",),
        attrs={"soft_label": False, "ignore_index": -100},
        shape=cross_entropy_shape,
        grad=Grad("cross_entropy_grad", ("X", "Label", "Y@GRAD"), ("X@GRAD",)),
        samples=(
            sample({"X": _PROBABILITIES, "Label": integers(4, 1, high=5)}),
            sample({"X": _PROBABILITIES, "Label": integers(4, 1, high=5)}, ignore_index=2),
            sample({"X": _PROBABILITIES, "Label": integers(4, high=5)}, ignore_index=2),
            sample({"X": _PROBABILITIES, "Label": uniform(4, 5)}, soft_label=True),
        ),
        refuses=(sample({"X": _PROBABILITIES, "Label": integers(3, 1, high=5)}),),
    )
)
define(
    Op(
        type="cross_entropy_grad",
        inputs=("X", "Label", "Y@GRAD"),
        outputs=("X@GRAD",),
        attrs={"soft_label": False, "ignore_index": -100},
        shape=grads_like("X"),
    )
)
define(
    Op(
        type="cross_entropy2",
        inputs=("X", "Label"),
        outputs=("Y", "MatchX", "XShape"),
        attrs={"ignore_index": -100},
        shape=cross_entropy_shape,
        grad=Grad("cross_entropy_grad2", ("Label", "MatchX", "XShape", "Y@GRAD"), ("X@GRAD",)),
        samples=(
            sample({"X": _PROBABILITIES, "Label": integers(4, 1, high=5)}),
            sample({"X": _PROBABILITIES, "Label": integers(4, 1, high=5)}, ignore_index=2),
            sample({"X": _PROBABILITIES, "Label": integers(4, high=5)}, ignore_index=2),
        ),
        refuses=(sample({"X": _PROBABILITIES, "Label": integers(3, 1, high=5)}),),
    )
)
define(
    Op(
        type="cross_entropy_grad2",
        inputs=("Label", "MatchX", "XShape", "Y@GRAD"),
        outputs=("X@GRAD",),
        attrs={"ignore_index": -100},
        shape=lambda op: {"X@GRAD": of_shape(op.shape("XShape")[:-1], op.spec("MatchX"))},
    )
)

_FUSED: dict[str, Any] = {
    "soft_label": False,
    "numeric_stable_mode": True,
    "ignore_index": -100,
    "axis": -1,
}


def fused_shape(op: Inference) -> Mapping[str, Specs]:
    """Softmax like Logits; one loss per row."""
    logits = op.spec("Logits")
    rows = check_labels(op, logits, op.spec("Label"), op.attr("soft_label"), op.attr("axis"))
    return {"Softmax": logits, "Loss": of_shape(rows, logits)}


define(
    Op(
        type="softmax_with_cross_entropy",
        inputs=("Logits", "Label"),
        outputs=("Softmax", "Loss"),
        attrs=_FUSED,
        shape=fused_shape,
        grad=Grad(
            "softmax_with_cross_entropy_grad", ("Label", "Softmax", "Loss@GRAD"), ("Logits@GRAD",)
        ),
        in_place={"Softmax": "Logits"},
        samples=(
            sample({"Logits": normal(4, 5), "Label": integers(4, 1, high=5)}),
            sample({"Logits": normal(4, 5), "Label": integers(4, 1, high=5)}, ignore_index=1),
            sample({"Logits": normal(4, 5), "Label": distribution(4, 5)}, soft_label=True),
            sample({"Logits": normal(2, 5, 3), "Label": integers(2, 1, 3, high=5)}, axis=1),
            sample({"Logits": normal(2, 5, 3), "Label": integers(2, 3, high=5)}, axis=1),
            sample({"Logits": normal(4, 5), "Label": integers(4, high=5)}),
        ),
        refuses=(
            sample({"Logits": normal(4, 5), "Label": integers(3, high=5)}),
            sample({"Logits": normal(4, 5), "Label": normal(4, 1)}),
        ),
    )
)
define(
    Op(
        type="softmax_with_cross_entropy_grad",
        inputs=("Label", "Softmax", "Loss@GRAD"),
        outputs=("Logits@GRAD",),
        attrs=_FUSED,
        shape=same("Softmax", "Logits@GRAD"),
        in_place={"Logits@GRAD": "Softmax"},
    )
)


def like_x(op: Inference) -> Mapping[str, Specs]:
    """X and Label have one shape; so has the loss."""
    same_shape(op, "X", "Label")
    return {"Out": op.spec("X"), "X@GRAD": op.spec("X")}


_SIGMOID = {"normalize": False, "ignore_index": -100}
define(
    Op(
        type="sigmoid_cross_entropy_with_logits",
        inputs=("X", "Label"),
        outputs=("Out",),
        attrs=_SIGMOID,
        shape=like_x,
        grad=Grad(
            "sigmoid_cross_entropy_with_logits_grad", ("X", "Label", "Out@GRAD"), ("X@GRAD",)
        ),
        samples=(
            sample({"X": normal(4, 3), "Label": uniform(4, 3)}),
            sample({"X": normal(4, 3), "Label": uniform(4, 3)}, normalize=True),
        ),
        refuses=(sample({"X": normal(4, 3), "Label": uniform(3, 4)}),),
    )
)
define(
    Op(
        type="sigmoid_cross_entropy_with_logits_grad",
        inputs=("X", "Label", "Out@GRAD"),
        outputs=("X@GRAD",),
        attrs=_SIGMOID,
        shape=like_x,
    )
)


def log_loss_shape(op: Inference) -> Mapping[str, Specs]:
    """Predicted and Labels have one shape; so has the loss."""
    same_shape(op, "Predicted", "Labels")
    return {"Loss": op.spec("Predicted"), "Predicted@GRAD": op.spec("Predicted")}


define(
    Op(
        type="log_loss",
        inputs=("Predicted", "Labels"),
        outputs=("Loss",),
        attrs={"epsilon": 1e-4},
        shape=log_loss_shape,
        grad=Grad("log_loss_grad", ("Predicted", "Labels", "Loss@GRAD"), ("Predicted@GRAD",)),
        scalar=lambda predicted, labels, *, epsilon: (
            -(labels * e.log(predicted + epsilon)) - (1 - labels) * e.log(1 - predicted + epsilon)
        ),
        samples=(sample({"Predicted": uniform(4, 1, low=0.2, high=0.8), "Labels": uniform(4, 1)}),),
    )
)
define(
    Op(
        type="log_loss_grad",
        inputs=("Predicted", "Labels", "Loss@GRAD"),
        outputs=("Predicted@GRAD",),
        attrs={"epsilon": 1e-4},
        shape=log_loss_shape,
        scalar=lambda predicted, labels, d_loss, *, epsilon: (
            d_loss * ((1 - labels) / (1 - predicted + epsilon) - labels / (predicted + epsilon))
        ),
    )
)


def huber_shape(op: Inference) -> Mapping[str, Specs]:
    """X, Y and the results have one shape."""
    same_shape(op, "X", "Y")
    return {"Out": op.spec("X"), "Residual": op.spec("X")}


define(
    Op(
        type="huber_loss",
        inputs=("X", "Y"),
        outputs=("Residual", "Out"),
        attrs={"delta": 1.0},
        shape=huber_shape,
        grad=Grad("huber_loss_grad", ("Residual", "Out@GRAD"), ("X@GRAD", "Y@GRAD")),
        samples=(sample({"X": normal(4, 1), "Y": normal(4, 1)}, delta=0.7),),
    )
)
define(
    Op(
        type="huber_loss_grad",
        inputs=("Residual", "Out@GRAD"),
        outputs=("X@GRAD", "Y@GRAD"),
        attrs={"delta": 1.0},
        shape=same("Residual", "X@GRAD", "Y@GRAD"),
    )
)
