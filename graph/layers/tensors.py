"""Tensors sorted, summed up, padded, picked by index, drawn, and examined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ...strategies.types import VarType, to_var_type
from ..program.program import default_main_program
from ..program.variable import Variable
from .arguments import integers, of_family, variables_of
from .helper import LayerHelper, constant_layer, layer, layers
from .initializer import ConstantInitializer
from .numbers import numbers_of
from .shape import fill_constant, window


def sizes_of(shape: Any, layer: str) -> list[int]:
    """Return a shape as a list of ints.

    Raises:
        InvalidType: ``shape`` is no list or tuple of ints.
    """
    require_type(shape, list | tuple, f"{layer}: shape must be a list or a tuple")
    for size in shape:
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise InvalidType(f"{layer}: a size must be an int, got {size!r} in {list(shape)!r}.")
    return [int(size) for size in shape]


def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """The elements in order along ``axis``, and where they were.

    No gradient passes, as in Paddle 1.x, unless ``stop_gradient`` of the first result is set to False.
    """
    elements, indices = in_order(input, axis, descending, name)
    elements.stop_gradient = True
    return elements, indices


def in_order(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """As ``argsort``, but gradients pass."""
    attrs = {"axis": axis, "descending": descending}
    elements, indices = layers("argsort", name, "Out Indices", "Indices", x=input, **attrs)
    return elements, indices


def cumsum(
    x: Variable, axis: int | None = None, exclusive: bool | None = None, reverse: bool | None = None
) -> Variable:
    """Sums of the elements so far; ``exclusive`` without the element itself, ``reverse`` from the end."""
    return layer("cumsum", x=x, axis=axis, exclusive=exclusive, reverse=reverse)


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """Elements, or slices, of a tensor by their coordinates."""
    return layer("gather_nd", name, x=input, index=index)


def scatter(
    input: Variable,
    index: Variable,
    updates: Variable,
    name: str | None = None,
    overwrite: bool = True,
) -> Variable:
    """Rows replaced by ``updates`` at the indices, or, unless ``overwrite``, by their sums."""
    return layer("scatter", name, x=input, ids=index, updates=updates, overwrite=overwrite)


def pad(
    x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None
) -> Variable:
    """A margin of one value: ``paddings`` before and after each dimension."""
    return layer("pad", name, x=x, paddings=list(paddings), pad_value=pad_value)


def pad2d(
    input: Variable,
    paddings: Any = (0, 0, 0, 0),
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """A margin around images: above, below, left and right. It is constant, a reflection, or the edge."""
    if mode not in ("constant", "reflect", "edge"):
        raise InvalidValue(f"pad2d: mode must be 'constant', 'reflect' or 'edge', got {mode!r}.")
    if data_format not in ("NCHW", "NHWC"):
        raise InvalidValue(f"pad2d: data_format must be 'NCHW' or 'NHWC', got {data_format!r}.")
    inputs: dict[str, Any] = {"X": input}
    attrs = {"mode": mode, "pad_value": pad_value, "data_format": data_format}
    if isinstance(paddings, Variable):
        inputs["Paddings"] = paddings
    else:
        attrs["paddings"] = integers(paddings, "paddings", "pad2d")
    return layer("pad2d", name, **inputs, **attrs)


def _logical(
    op_type: str, input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    if input.dtype != VarType.BOOL:
        raise InvalidType(f"{op_type}: input must hold booleans, and {input.name!r} does not.")
    dims = [dim] if isinstance(dim, int) else list(dim or [])
    attrs = {"dim": dims or [0], "keep_dim": keep_dim, "reduce_all": not dims}
    return constant_layer(op_type, name, x=input, **attrs)


reduce_all = of_family(
    _logical, "reduce_all", text="Whether every boolean along ``dim`` (None: of all) is true."
)
reduce_any = of_family(
    _logical, "reduce_any", text="Whether some boolean along ``dim`` (None: of all) is true."
)


def has_inf(x: Variable) -> Variable:
    """Whether some element is infinite."""
    return constant_layer("isinf", x=x)


def has_nan(x: Variable) -> Variable:
    """Whether some element is not a number."""
    return constant_layer("isnan", x=x)


def isfinite(x: Variable) -> Variable:
    """Whether every element is a finite number."""
    return constant_layer("isfinite", x=x)


def _draw(op_type: str, shape: Any, dtype: Any, attrs: dict[str, Any]) -> Variable:
    kind = to_var_type(dtype)
    if kind not in (VarType.FP32, VarType.FP64):
        raise InvalidType(f"{op_type}: dtype must be float32 or float64, got {dtype!r}.")
    return layer(op_type, **numbers_of(op_type, "shape", shape), **attrs, dtype=int(kind))


def gaussian_random(
    shape: Any, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: Any = "float32"
) -> Variable:
    """Numbers drawn from a normal distribution, anew in each step."""
    attrs = {"mean": mean, "std": std, "seed": seed}
    return _draw("gaussian_random", shape, dtype, attrs)


def uniform_random(
    shape: Any, dtype: Any = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0
) -> Variable:
    """Numbers drawn evenly between ``min`` and ``max``, anew in each step."""
    attrs = {"min": min, "max": max, "seed": seed}
    return _draw("uniform_random", shape, dtype, attrs)


def autoincreased_step_counter(
    counter_name: str | None = None, begin: int = 1, step: int = 1
) -> Variable:
    """A count of the steps: ``begin`` in the first, ``step`` more in each."""
    helper = LayerHelper("global_step_counter")
    name = "@STEP_COUNTER@" if counter_name is None else counter_name
    block = default_main_program().global_block()
    fresh = not block.has_var(name)
    initial = ConstantInitializer(float(begin - 1), force_cpu=True)
    counter = helper.create_global(name, [1], "int64", initial)
    if fresh:
        attrs = {"step": float(step)}
        block._prepend_op("increment", {"X": counter}, {"Out": counter}, attrs)
        counter.stop_gradient = True
    return counter


def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """A variable that an op of the program will write."""
    helper = LayerHelper("create_tensor", name)
    return helper.block.create_var(name=helper.name, dtype=dtype, persistable=persistable)


def rank(input: Variable) -> Variable:
    """The number of dimensions, as an int32 of one element."""
    return fill_constant([1], "int32", input.ndim)


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """The elements from the end to the front along ``axis``."""
    return layer("reverse", x=x, axis=integers(axis, "axis", "reverse"))


def strided_slice(
    input: Variable, axes: Sequence[int], starts: Any, ends: Any, strides: Any
) -> Variable:
    """Every ``strides``-th element from ``starts`` to ``ends`` of each of ``axes``."""
    bounds = {"starts": starts, "ends": ends, "strides": strides}
    return window("strided_slice", input, list(axes), **bounds)


def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """The elements at each index along ``axis``, as a list.

    Raises:
        InvalidValue: the size is not known, or is not ``num``.
    """
    count = (x.shape or ())[axis] if num is None else num
    if count <= 0:
        raise InvalidValue(f"unstack: how many parts {x.name!r} has is not known: give num.")
    helper = LayerHelper("unstack")
    parts = [helper.new(x.dtype) for _ in range(count)]
    helper.layers("unstack", "", x=x, y=parts, axis=axis, num=count)
    return parts


def add_n(inputs: Variable | Sequence[Variable], name: str | None = None) -> Variable:
    """The sum of tensors of one shape."""
    return layer("sum", x=variables_of(inputs, "inputs", "add_n"))
