"""Declare data variables, parameters, and persistables of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType, require_type
from ...strategies.types import VarType
from ..program import unique_name
from ..program.program import default_main_program, is_outermost
from ..program.variable import Variable
from ..program.where import user_line, warn_user
from .arguments import integer
from .helper import LayerHelper
from .initializer import ConstantInitializer


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Declare a variable to feed (``fluid.layers.data``): the batch dimension is put in front.

    None means unknown and, like any negative size, leaves ``shape`` as it is. Feeds are not compared with the
    declaration.
    """
    sizes = _sizes(name, shape)
    if append_batch_size and all(size >= 0 for size in sizes):
        sizes = [-1, *sizes]
    return data_variable(name, sizes, dtype, lod_level, stop_gradient, check=False)


def checked_data(
    name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0
) -> Variable:
    """Declare a variable to feed (``fluid.data``, ``paddle.static.data``): shape as it is, None is unknown.

    Feeds must have this rank, these known sizes and this dtype. A number without dimensions has the shape [1].
    """
    sizes = _sizes(name, shape) or [1]
    return data_variable(name, sizes, dtype, lod_level, True, check=True)


def _sizes(name: Any, shape: Any) -> list[int]:
    require_type(name, str, "data: name must be a str")
    require_type(shape, list | tuple, f"data {name!r}: shape must be a list or tuple")
    return [
        -1 if size is None else integer(size, "a size of shape", f"data {name!r}") for size in shape
    ]


def data_variable(
    name: str, sizes: list[int], dtype: Any, lod_level: int, stop_gradient: bool, check: bool
) -> Variable:
    """Add a variable to feed to the main program; ``check``: feeds must be as declared."""
    program = default_main_program()
    earlier = program.global_block().vars.get(name)
    if earlier is not None and earlier.is_data and is_outermost(program):
        warn_user(
            f"data variable {name!r} is declared again in the default program (first at {earlier.where}). New "
            f"ops are added to those of that program, as when a notebook's cell runs twice. Build inside "
            f"`with fluid.program_guard(fluid.Program(), fluid.Program()):` to begin afresh."
        )
    variable = program.global_block().create_var(
        name=name,
        shape=sizes,
        dtype=dtype,
        lod_level=lod_level,
        stop_gradient=stop_gradient,
        is_data=True,
        need_check_feed=check,
    )
    variable.where = user_line()
    return variable


def create_parameter(
    shape: Sequence[int],
    dtype: Any,
    name: str | None = None,
    attr: Any = None,
    is_bias: bool = False,
    default_initializer: Any = None,
) -> Variable:
    """Create a parameter of your own, [sizes above 0], which optimizers update and startup programs fill.

    ``attr`` is a ParamAttr, a name or an initializer; without one, ``default_initializer`` fills it, else
    Xavier (uniform), or zeros of one that ``is_bias``.

    Raises:
        InvalidType, InvalidValue: an argument has a wrong type or value.
    """
    from .param_attr import ParamAttr

    attr = ParamAttr(name=name) if attr is None else attr
    parameter = LayerHelper("create_parameter", name).create_parameter(
        attr, shape, dtype, is_bias, default_initializer
    )
    if parameter is None:
        raise InvalidType("create_parameter: attr=False leaves nothing to create.")
    return parameter


def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """Create a variable filled with ``value`` by the startup program. No gradient flows through it."""
    filled = ConstantInitializer(float(value), force_cpu)
    # the name that Paddle gives, so that what it saved is found
    name = name or unique_name.generate("_generated_var")
    return LayerHelper("global_var").create_global(
        name, shape, dtype, filled, persistable=persistable, stop_gradient=True
    )
