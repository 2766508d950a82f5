"""Ops that draw numbers: a function of seed, output name, step and element, never of who runs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...strategies.types import VarType
from .registry import Grad, Inference, Op, Spec, Specs, define
from .rules import same
from .samples import normal, sample


def drawn_shape(op: Inference) -> Mapping[str, Specs]:
    """Shape and dtype are attributes."""
    for slot in ("ShapeTensor", "ShapeTensorList"):
        op.require(not op.has(slot), f"{slot} is not built: give the shape as numbers")
    return {"Out": Spec(tuple(op.attr("shape")), VarType(op.attr("dtype")))}


_COMMON: dict[str, Any] = {"shape": [], "seed": 0, "dtype": int(VarType.FP32)}
_SHAPES = ("ShapeTensor?", "ShapeTensorList*?")

define(
    Op(
        type="uniform_random",
        inputs=_SHAPES,
        outputs=("Out",),
        attrs={**_COMMON, "min": -1.0, "max": 1.0, "diag_num": 0, "diag_step": 0, "diag_val": 1.0},
        shape=drawn_shape,
        random=True,
        samples=(sample(shape=[40, 50], min=-2.0, max=3.0, seed=7),),
    )
)
define(
    Op(
        type="gaussian_random",
        inputs=_SHAPES,
        outputs=("Out",),
        attrs={**_COMMON, "mean": 0.0, "std": 1.0, "use_mkldnn": False},
        shape=drawn_shape,
        random=True,
        samples=(sample(shape=[40, 50], mean=1.0, std=2.0, seed=7),),
    )
)
define(
    Op(
        type="truncated_gaussian_random",
        outputs=("Out",),
        attrs={**_COMMON, "mean": 0.0, "std": 1.0},
        shape=drawn_shape,
        random=True,
        samples=(sample(shape=[40, 50], mean=1.0, std=2.0, seed=7),),
    )
)

_DROPOUT: dict[str, Any] = {
    "dropout_prob": 0.5,
    "is_test": False,
    "fix_seed": False,
    "seed": 0,
    "dropout_implementation": "downgrade_in_infer",
}


def dropout_shape(op: Inference) -> Mapping[str, Specs]:
    """Out and Mask like X; the mask holds 0 and 1 as bytes."""
    op.require(not op.has("Seed"), "Seed as a tensor is not built: give seed as a number")
    p = op.attr("dropout_prob")
    op.require(0.0 <= p <= 1.0, f"dropout_prob={p} must be between 0 and 1")
    kinds = ("downgrade_in_infer", "upscale_in_train")
    op.require(
        op.attr("dropout_implementation") in kinds, f"dropout_implementation must be one of {kinds}"
    )
    x = op.spec("X")
    return {"Out": x, "Mask": Spec(x.shape, VarType.UINT8)}


define(
    Op(
        type="dropout",
        inputs=("X", "Seed?"),
        outputs=("Out", "Mask"),
        attrs=_DROPOUT,
        shape=dropout_shape,
        grad=Grad("dropout_grad", ("Mask", "Out@GRAD"), ("X@GRAD",)),
        in_place={"Out": "X"},
        random=True,
        by_place=lambda attrs: not attrs["is_test"],
        samples=(
            sample({"X": normal(40, 50)}, dropout_prob=0.3, seed=5),
            sample({"X": normal(4, 5)}, is_test=True, dropout_prob=0.3),
            sample({"X": normal(4, 5)}, dropout_implementation="upscale_in_train", seed=5),
        ),
        refuses=(sample({"X": normal(4, 5)}, dropout_prob=1.5),),
    )
)
define(
    Op(
        type="dropout_grad",
        inputs=("Mask", "Out@GRAD"),
        outputs=("X@GRAD",),
        attrs=_DROPOUT,
        shape=same("Out@GRAD", "X@GRAD"),
        in_place={"X@GRAD": "Out@GRAD"},
    )
)
