"""Arrays of tensors, which loops write entry by entry."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidType
from ...strategies.types import VarType
from ..program.variable import Variable
from .arguments import check_variable
from .helper import LayerHelper, layers


def _check_index(i: Any, layer: str) -> None:
    check_variable(i, "i", layer)
    if i.dtype != VarType.INT64:
        raise InvalidType(
            f"{layer}: i must be an int64 Variable, {i.name!r} is {i.dtype and i.dtype.name}."
        )


def check_array(array: Any, layer: str, argument: str = "array") -> None:
    """Raise InvalidType unless ``array`` is an array of tensors."""
    if not isinstance(array, Variable) or array.type != VarType.LOD_TENSOR_ARRAY:
        raise InvalidType(f"{layer}: {argument} should be a tensor array variable, got {array!r}.")


def create_array(dtype: Any) -> Variable:
    """An array of tensors without entries."""
    helper = LayerHelper("array")
    return helper.block.create_var(
        name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=dtype
    )


def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """Write x to entry i (an int64 of one element) of an array, a new one by default; the array may grow.

    Raises:
        InvalidType: ``i`` is no int64 Variable, or ``array`` no array.
    """
    _check_index(i, "array_write")
    helper = LayerHelper("array_write")
    if array is None:
        array = helper.block.create_var(
            name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype
        )
    check_array(array, "array_write")
    helper.layers("write_to_array", "", x=x, i=i, out=array)
    return array


def array_read(array: Variable, i: Variable) -> Variable:
    """Entry i (an int64 of one element) of an array.

    Raises:
        InvalidType: ``i`` is no int64 Variable, or ``array`` no array.
    """
    _check_index(i, "array_read")
    check_array(array, "array_read")
    helper = LayerHelper("array_read")
    return helper.layer("read_from_array", x=array, i=i)


def array_length(array: Variable) -> Variable:
    """The number of entries, as an int64 of one element.

    Raises:
        InvalidType: ``array`` is no array.
    """
    check_array(array, "array_length")
    helper = LayerHelper("array_length")
    return helper.constant_layers("lod_array_length", "Out", x=array)[0]


def tensor_array_to_tensor(
    input: Any, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """The entries of an array (or list) joined along an axis, a new one with ``use_stack``; and their sizes.

    Raises:
        InvalidType: ``input`` is no array and no list of Variables.
    """
    if isinstance(input, list):
        for each in input:
            check_variable(each, "input", "tensor_array_to_tensor")
    else:
        check_array(input, "tensor_array_to_tensor")
    attrs = {"axis": axis, "use_stack": use_stack}
    out, index = layers("tensor_array_to_tensor", name, "Out OutIndex", x=input, **attrs)
    return out, index
