"""Layers that pick elements by index, and add at coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from ..program.variable import Variable
from .arguments import Integers, check_variable
from .helper import constant_layer, layer
from .shape import fill_constant


def index_select(input: Variable, index: Integers, dim: int = 0) -> Variable:
    """The layers at the indices, a vector, along ``dim``."""
    return layer("index_select", x=input, index=index, dim=dim)


def index_sample(x: Variable, index: Integers) -> Variable:
    """Row i holds the elements of row i of x at ``index[i]``."""
    return layer("index_sample", x=x, index=index)


def multiplex(inputs: Sequence[Variable], index: Integers) -> Variable:
    """Row i is row i of input ``index[i]``; the index is a column of integers."""
    if not isinstance(inputs, (list, tuple)) or len(inputs) < 2:
        raise InvalidType(f"multiplex takes a list of two Variables or more, got {inputs!r}.")
    for variable in inputs:
        check_variable(variable, "inputs", "multiplex")
    return layer("multiplex", x=list(inputs), ids=index)


def scatter_nd_add(
    ref: Variable, index: Integers, updates: Variable, name: str | None = None
) -> Variable:
    """ref with ``updates`` added at coordinates; those that come twice are added twice."""
    if ref.dtype != updates.dtype:
        raise InvalidValue(f"scatter_nd_add: {ref!r} and {updates!r} must have one element type.")
    return layer("scatter_nd_add", name, x=ref, index=index, updates=updates)


def scatter_nd(index: Integers, updates: Variable, shape: Any, name: str | None = None) -> Variable:
    """Zeros with ``updates`` added at coordinates; those that come twice are added twice."""
    zeros = fill_constant(shape, updates.dtype, 0.0)
    return scatter_nd_add(zeros, index, updates, name)


def hash(input: Integers, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """Hashes of rows of integers [N, M], below ``hash_size``: [N, num_hash, 1], each of another seed.

    They are xxHash64's, of the rows' bytes.
    """
    return constant_layer("hash", x=input, num_hash=num_hash, mod_by=hash_size)


def shard_index(
    input: Integers, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1
) -> Variable:
    """Indices of one shard, counted from its first; others are ``ignore_value``.

    Raises:
        InvalidValue: there is no such shard.
    """
    op_type = "shard_index"
    if not 0 <= shard_id < nshards:
        raise InvalidValue(f"shard_index: shard {shard_id} is not one of {nshards}.")
    attrs = {"index_num": index_num, "nshards": nshards, "shard_id": shard_id}
    return constant_layer(op_type, x=input, **attrs, ignore_value=ignore_value)
