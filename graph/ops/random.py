"""Ops that draw numbers: a function of seed, output name, step and element, never of who runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ...strategies.types import VarType
from .creation import SIZES, Filled, attribute_shape, filled_shape
from .operands import Gradient, Input, Operands, Output, Unary, named
from .registry import Grad, Op, define, in_steps
from .rules import same
from .samples import sample
from .shapes import Sized


class UniformRandom(Filled):
    seed: int = 0
    dtype: int = int(VarType.FP32)
    min: float = -1.0
    max: float = 1.0
    diag_num: int = 0
    diag_step: int = 0
    diag_val: float = 1.0


define(
    "uniform_random",
    UniformRandom,
    filled_shape,
    numbers=dict.fromkeys(SIZES, "shape"),
    random=True,
    samples=(sample(shape=[40, 50], min=-2.0, max=3.0, seed=7),),
    in_steps=in_steps((sample("ShapeTensor lengths [40 50]", min=-2.0, max=3.0, seed=7),)),
)


class GaussianRandom(Filled):
    seed: int = 0
    dtype: int = int(VarType.FP32)
    mean: float = 0.0
    std: float = 1.0
    use_mkldnn: bool = False


define(
    "gaussian_random",
    GaussianRandom,
    filled_shape,
    numbers=dict.fromkeys(SIZES, "shape"),
    random=True,
    samples=(sample(shape=[40, 50], mean=1.0, std=2.0, seed=7),),
    in_steps=in_steps((sample("ShapeTensorList* lengths [40] [50]", mean=1.0, std=2.0, seed=7),)),
)


class TruncatedGaussianRandom(Operands):
    out: Output
    shape: Sequence[int] = []
    seed: int = 0
    dtype: int = int(VarType.FP32)
    mean: float = 0.0
    std: float = 1.0


define(
    "truncated_gaussian_random",
    TruncatedGaussianRandom,
    attribute_shape,
    random=True,
    samples=(sample(shape=[40, 50], mean=1.0, std=2.0, seed=7),),
)


class Dropout(Unary):
    seed_tensor: Input | None = named("Seed")
    mask: Output
    dropout_prob: float = 0.5
    is_test: bool = False
    fix_seed: bool = False
    seed: int = 0
    dropout_implementation: Literal["downgrade_in_infer", "upscale_in_train"] = "downgrade_in_infer"


def factor_of(dropout_prob: float, is_test: bool, dropout_implementation: str) -> float:
    """Return what the elements that dropout keeps are multiplied by."""
    keep, upscale = 1.0 - dropout_prob, dropout_implementation == "upscale_in_train"
    if is_test:
        return 1.0 if upscale else keep
    return (1.0 / keep if keep else 0.0) if upscale else 1.0


def dropout_slope(
    mask: Any, d_out: Any, *, dropout_prob: float, is_test: bool, dropout_implementation: str
) -> Any:
    """The gradient of what was kept, times the factor that this had."""
    factor = factor_of(dropout_prob, is_test, dropout_implementation)
    return d_out * mask if factor == 1.0 else d_out * mask * factor


class DropoutGrad(Dropout, Gradient, reads="mask"): ...


define(
    "dropout",
    Dropout,
    Sized("X [...] -> Out as X, Mask uint8 [...]", "0 <= dropout_prob <= 1"),
    numbers={"Seed": "seed"},
    numbers_set={"Seed": {"fix_seed": True}},
    in_place={"Out": "X"},
    random=True,
    by_place=lambda attrs: not attrs["is_test"],
    samples=(
        sample("X [40 50]", dropout_prob=0.3, seed=5),
        sample("X [4 5]", is_test=True, dropout_prob=0.3),
        sample("X [4 5]", dropout_implementation="upscale_in_train", seed=5),
    ),
    slope=Op(
        "dropout_grad",
        DropoutGrad,
        same("Out@GRAD", "X@GRAD"),
        scalar=dropout_slope,
        in_place={"X@GRAD": "Out@GRAD"},
        grad=Grad(  # the same mask again
            "dropout_grad", {"Mask": "Mask", "Out@GRAD": "X@GRAD@GRAD"}, {"X@GRAD": "Out@GRAD@GRAD"}
        ),
    ),
)
