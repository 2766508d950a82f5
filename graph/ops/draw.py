"""Ops that draw integers, choices and orders: a function of seed, output name, step and sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ...strategies.types import VarType
from .creation import SIZES, Filled, batch_size_like, filled_shape
from .lod import no_sequences
from .operands import Gradient, Input, Operands, Output, Positive, Unary
from .registry import Inference, Op, Specs, define, in_steps
from .rules import same
from .samples import sample
from .shapes import Sized

# Numbers that hang on which samples the place has
_define_by_sample = partial(define, random=True, by_place=lambda attrs: True)


class Drawn(Operands):
    """One result, and the seed of an op (0: the program's)."""

    out: Output
    seed: int = 0


class Seed(Drawn): ...


define("seed", Seed, Sized("-> Out int32 [1]"), random=True, samples=(sample(seed=7), sample()))


def randint_shape(op: Inference) -> Mapping[str, Specs]:
    """``shape`` integers from ``low`` up to but without ``high``."""
    low, high = op.attr("low"), op.attr("high")
    op.require(low < high, f"there is no integer from {low} up to but without {high}")
    return filled_shape(op)


class Randint(Drawn, Filled):
    low: int = 0
    high: int = 0
    dtype: int = int(VarType.INT64)


define(
    "randint",
    Randint,
    randint_shape,
    numbers=dict.fromkeys(SIZES, "shape"),
    random=True,
    samples=(sample(shape=[4, 5], low=-3, high=7, seed=5),),
    refuses=(sample(shape=[2], low=3, high=3),),
    in_steps=in_steps((sample("ShapeTensor lengths [4 5]", low=-3, high=7, seed=5),)),
)


class Randperm(Drawn):
    n: Positive = 0
    dtype: int = int(VarType.INT64)


define(
    "randperm",
    Randperm,
    Sized("-> Out dtype [n]"),
    random=True,
    samples=(sample(n=9, seed=5), sample(n=4, dtype=int(VarType.INT32))),
)


class DrawnLike(Drawn):
    input: Input
    shape: Sequence[int] = []
    input_dim_idx: int = 0
    output_dim_idx: int = 0
    dtype: int = int(VarType.FP32)


class UniformLike(DrawnLike):
    min: float = -1.0
    max: float = 1.0
    diag_num: int = 0
    diag_step: int = 0
    diag_val: float = 1.0


class GaussianLike(DrawnLike):
    mean: float = 0.0
    std: float = 1.0


for _name, _record in (("uniform", UniformLike), ("gaussian", GaussianLike)):
    _define_by_sample(
        f"{_name}_random_batch_size_like",
        _record,
        batch_size_like,
        lod=no_sequences,
        shapes_of=("Input",),
        samples=(
            sample("Input [4 2]", shape=[-1, 3], seed=5),
            sample("Input [4 2]", shape=[3, -1], output_dim_idx=1),
        ),
        refuses=(sample("Input [4 2]", shape=[-1, 3], input_dim_idx=2),),
    )


class SamplingId(Drawn):
    x: Input
    min: float = 0.0
    max: float = 1.0


_define_by_sample(
    "sampling_id",
    SamplingId,
    Sized("X floats [samples classes] -> Out int64 [samples]", "min < max"),
    samples=(sample("X distribution [5 4]", seed=3),),
)


class RandomCrop(Operands):
    x: Input
    seed: Input
    out: Output
    seed_out: Output | None
    shape: Sequence[int] = []
    startup_seed: int = 0


_define_by_sample(
    "random_crop",
    RandomCrop,
    Sized(
        "X, Seed -> Out [*lead *shape], SeedOut as Seed",
        "0 < len(shape) <= len(X); shape has more dimensions than X, or none",
        "min(shape) > 0; sizes must be above 0",
        "lead, rest = X[: len(X) - len(shape)], X[len(X) - len(shape) :]",
        "every(size <= whole for size, whole in zip(shape, rest)); shape does not fit X",
    ),
    samples=(sample("X [3 5 4], Seed 0:9 [1]", shape=[2, 3]),),
)


class ShuffleBatch(Unary):
    seed: Input
    shuffle_idx: Output
    seed_out: Output
    startup_seed: int = 0


class ShuffleBatchGrad(ShuffleBatch, Gradient, reads="shuffle_idx"): ...


_define_by_sample(
    "shuffle_batch",
    ShuffleBatch,
    Sized("X, Seed -> Out, ShuffleIdx int64 [rows], SeedOut as Seed", "rows = prod(X[:-1])"),
    samples=(sample("X [5 3], Seed 0:9 [1]"),),
    slope=Op("shuffle_batch_grad", ShuffleBatchGrad, same("Out@GRAD", "X@GRAD")),
)
_define_by_sample(
    "bernoulli",
    Unary,
    same(),
    samples=(sample("X uniform [4 5]"),),
)


class Multinomial(Unary):
    num_samples: Positive = 1
    replacement: bool = False


_define_by_sample(
    "multinomial",
    Multinomial,
    Sized(
        "X floats [... classes] -> Out int64 [... num_samples]",
        "len(X) in (1, 2); X must be a vector of weights, or a matrix of them",
        "replacement or num_samples <= classes; there are not enough weights without replacement",
    ),
    samples=(
        sample("X distribution [3 6]", num_samples=4),
        sample("X distribution [5]", num_samples=9, replacement=True),
    ),
)
