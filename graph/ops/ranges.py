"""Ops that fill tensors with numbers in a row, repeat tensors to a shape, and compare whole tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...strategies.types import FLOATS, VarType, to_numpy
from . import formula as f
from .lod import no_sequences
from .operands import (
    Gradient,
    Input,
    Inputs,
    Operands,
    Output,
    Outputs,
    Positive,
    Unary,
    named,
    record_of,
)
from .registry import Inference, Op, Spec, Specs, define, in_steps, slope
from .rules import of_shape
from .samples import sample
from .shapes import Sized, one_element

define(
    "fill",
    record_of("", "out", value=[], shape=[], dtype=int(VarType.FP32), force_cpu=False),
    Sized("-> Out dtype [*shape]", "len(value) == prod(shape); the values do not fill the shape"),
    formula=lambda a: {"out": f.table(a.value, a.out.dtype).reshape(a.out.shape)},
    samples=(
        sample(shape=[2, 2], value=[1.0, 2.0, 3.0, 4.0]),
        sample(shape=[2], value=[1.0, -2.0], dtype=int(VarType.INT64)),
    ),
)


define(
    "fill_zeros_like2",
    record_of("x", "out", dtype=int(VarType.FP32)),
    lambda op: {"Out": Spec(op.shape("X"), VarType(op.attr("dtype")))},
    samples=(sample("X [2 3]", dtype=int(VarType.INT32)), sample("X [2]")),
)


define(
    "size",
    record_of("input", "out"),
    Sized("Input -> Out int64 [1]"),
    formula=lambda a: {"out": f.table([a.input.size], np.int64)},
    shapes_of=("Input",),
    samples=(sample("Input [2 3]"),),
)
# What chooses a branch; its one element may be known only when a step is bound
define(
    "condition",
    Unary,
    Sized(
        "X bool -> Out [1]",
        "prod(X) == 1; the condition of a branch must have one element: reduce it (layers.reduce_all, "
        "layers.reduce_any), or choose element by element (layers.where)",
    ),
    formula=lambda a: {"out": a.x.reshape((1,))},
    samples=(sample("X bool [1 1]"),),
    refuses=(sample("X bool [2 1]"),),
)
define(
    "is_empty",
    Unary,
    Sized("X -> Out bool [1]"),
    formula=lambda a: {"out": f.table([not a.x.size])},
    shapes_of=("X",),
    samples=(sample("X [2 3]"), sample("X [2 0]")),
)


class Linspace(Operands):
    start: Input
    stop: Input
    num_tensor: Input | None = named("Num")
    out: Output
    num: Positive = 0  # not in Paddle: what Num holds


def linspace(a: Linspace) -> f.Results:
    """start + i (stop - start) / (num - 1), in double precision."""
    share = f.table(np.arange(a.num) / max(a.num - 1, 1))
    start, stop = (x.reshape(1).astype(np.float64) for x in (a.start, a.stop))
    return {"out": (start + share * (stop - start)).astype(a.out.dtype)}


define(
    "linspace",
    Linspace,
    Sized("Start, Stop as Start -> Out as Start [num]", one_element("Start", "Stop")),
    formula=linspace,
    numbers={"Num": "num"},
    samples=(sample("Start [1], Stop [1]", num=5), sample("Start [1], Stop [1]", num=1)),
)


_RANGE_NUMBERS = {"Start": "start", "End": "end", "Step": "step"}


def range_size(start: float, end: float, step: float, dtype: VarType) -> int:
    """Return how many numbers from ``start`` by ``step`` lie before ``end``, counted in ``dtype``."""
    first, last, by = np.array([start, end, step], to_numpy(dtype))
    if dtype in FLOATS:
        return int(np.ceil(np.abs((last - first) / by)))
    return -(-abs(int(last) - int(first)) // abs(int(by)))


def range_shape(op: Inference) -> Mapping[str, Specs]:
    """start, start + step, ... up to but without end; -1 where a tensor's number is not known."""
    numbers, kind = [op.attr(name) for name in _RANGE_NUMBERS.values()], VarType(op.attr("dtype"))
    if op.has("Start"):
        kind, read = op.spec("Start").dtype, [op.value(slot) for slot in _RANGE_NUMBERS]
        values = [value for value in read if value is not None]
        if len(values) < len(read):
            return {"Out": Spec((-1,), kind)}
        numbers = [np.ravel(value)[0].item() for value in values]
    start, end, step = numbers
    op.require(
        (start < end and step > 0) or (start > end and step < 0),
        f"there is nothing from {start} to {end} by {step}",
    )
    return {"Out": Spec((range_size(start, end, step, kind),), kind)}


class Range(Operands):
    start_tensor: Input | None = named("Start")
    end_tensor: Input | None = named("End")
    step_tensor: Input | None = named("Step")
    out: Output
    # no attributes of Paddle's: the elements of Start, End and Step, and their type
    start: float = 0.0
    end: float = 0.0
    step: float = 1.0
    dtype: int = int(VarType.FP32)


def numbers(a: Range) -> f.Results:
    """start, start + step, ...; the three are exact in float64, and whole numbers are Python's."""
    return {"out": f.table(a.start + a.step * np.arange(a.out.size), a.out.dtype)}


define(
    "range",
    Range,
    range_shape,
    formula=numbers,
    numbers=_RANGE_NUMBERS,
    numbers_dtype="Start",
    samples=(
        sample(start=1.0, end=4.0, step=0.5),
        sample(start=5, end=-4, step=-2, dtype=int(VarType.INT64)),
    ),
    refuses=(sample(start=1.0, end=4.0, step=-1.0), sample(start=1.0, end=1.0)),
    in_steps=in_steps(
        samples=(
            sample("Start lengths [1], End lengths [6], Step lengths [2]"),
            sample("Start lengths [3], End lengths [-1], Step lengths [-1]"),
        ),
        refuses=(sample("Start lengths [3], End lengths [3], Step lengths [1]"),),
    ),
)


class Meshgrid(Operands):
    x: Inputs
    out: Outputs


def meshgrid(a: Meshgrid) -> f.Results:
    shape, rank = [x.size for x in a.x], len(a.x)
    spread = (x.reshape([-1 if k == i else 1 for k in range(rank)]) for i, x in enumerate(a.x))
    return {"out": [f.broadcast(x, shape) for x in spread]}


define(
    "meshgrid",
    Meshgrid,
    Sized(
        "X as X -> Out*number [*sizes]",
        "every(len(x) == 1 for x in X); operands must be vectors",
        "number, sizes = len(X), [x[0] for x in X]",
    ),
    formula=meshgrid,
    samples=(sample("X* [2] [3]"), sample("X* [2] [1] [4]")),
    slope=slope("(x) d_out", "d_x"),
)


def expand_as_shape(op: Inference) -> Mapping[str, Specs]:
    """The shape of ``target_tensor``, whose sizes are multiples of X's."""
    x, target = op.spec("X"), op.shape("target_tensor")
    pairs = zip(x.shape, target, strict=False)
    op.require(
        len(x.shape) == len(target)
        and all(a < 0 or b < 0 or a == b or (a and b % a == 0) for a, b in pairs),
        f"{list(x.shape)} does not repeat to {list(target)}",
    )
    return {"Out": of_shape(target, x)}


class ExpandAs(Unary):
    target_tensor: Input = named("target_tensor")


class ExpandAsGrad(ExpandAs, Gradient, reads="*"): ...


define(
    "expand_as",
    ExpandAs,
    expand_as_shape,
    lod=no_sequences,
    shapes_of=("target_tensor",),
    samples=(sample("X [2 3], target_tensor [4 3]"), sample("X [2 1], target_tensor [2 5]")),
    refuses=(
        sample("X [2 3], target_tensor [3 3]"),
        sample("X [2 3], target_tensor [2 3 1]"),
        sample("X [0 3], target_tensor [2 3]"),
    ),
    slope=Op("expand_as_grad", ExpandAsGrad, shapes_of=("X", "target_tensor")),
)


class Allclose(Operands):
    input: Input
    other: Input
    out: Output
    rtol: float = 1e-5
    atol: float = 1e-8
    equal_nan: bool = False


define(
    "allclose",
    Allclose,
    Sized("Input [...], Other as Input [...] -> Out bool [1]"),
    samples=(sample("Input [3 4], Other [3 4]", atol=9.0), sample("Input [3 4], Other [3 4]")),
)


class EqualReduce(Operands):
    x: Input
    y: Input
    out: Output
    axis: int = -1


define(
    "equal_reduce",
    EqualReduce,
    Sized("X -> Out bool [1]"),
    samples=(
        sample("X 0:1 [2], Y 0:1 [2]"),
        sample("X bool [9], Y bool [9]"),
        sample("X 0:1 [2], Y 0:1 [3]"),
    ),
)
