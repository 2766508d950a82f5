"""Lowerings of ops that fill, convert, cut, join, reorder and reduce."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.indexing import slice_bounds
from ....graph.ops.reduction import axes_of
from ....graph.ops.view import VIEWS
from ..array.reduction import one_type
from .later import jnp
from .lowering import Operands, lowering

Made = Mapping[str, Any]


@lowering(*VIEWS, "assign", "cast")
def same(x: Operands) -> Made:
    """The same elements; the declared shape and type of Out do it."""
    return {"Out": x["X"]}


@lowering(*(f"{name}_grad" for name in VIEWS))
def reshaped_back(x: Operands) -> Made:
    """The same elements in the shape of X."""
    return {"X@GRAD": x["Out@GRAD"]}


@lowering("transpose", "transpose2")
def transpose(x: Operands) -> Made:
    """Dimensions in another order."""
    return {"Out": jnp.transpose(x["X"], x.attr("axis"))}


@lowering("transpose_grad", "transpose2_grad")
def transpose_grad(x: Operands) -> Made:
    """Dimensions back in their order."""
    return {"X@GRAD": jnp.transpose(x["Out@GRAD"], np.argsort(x.attr("axis")))}


@lowering("concat", slope=True)
def concat(x: Operands) -> Made:
    """Arrays one after the other."""
    return {"Out": jnp.concatenate(x.many("X"), x.attr("axis"))}


@lowering("split")
def split(x: Operands) -> Made:
    """Parts along an axis, as long as declared."""
    axis, parts = x.attr("axis"), x.outputs["Out"]
    sizes = [spec.shape[axis] for spec in parts if spec is not None]
    if len(sizes) < len(parts):  # some part is not read: all are as long as the attributes say
        sizes = list(x.attr("sections")) or [x["X"].shape[axis] // len(parts)] * len(parts)
    return {"Out": jnp.split(x["X"], np.cumsum(sizes)[:-1].tolist(), axis)}


@lowering("stack")
def stack(x: Operands) -> Made:
    """Arrays side by side in a new dimension."""
    return {"Y": jnp.stack(x.many("X"), x.attr("axis"))}


@lowering("stack_grad")
def stack_grad(x: Operands) -> Made:
    """The layers."""
    layers = jnp.moveaxis(x["Y@GRAD"], x.attr("axis"), 0)
    return {"X@GRAD": [layers[i] for i in range(layers.shape[0])]}


def _knows_times(node: Node) -> bool:
    # a gradient may have them by its shapes alone
    return min(node.attrs["expand_times"], default=0) > 0


@lowering("expand", slope=True, takes=_knows_times)
def expand(x: Operands) -> Made:
    """Copies along each dimension."""
    return {"Out": jnp.tile(x["X"], x.attr("expand_times"))}


@lowering("slice", slope=True)
def slice_(x: Operands) -> Made:
    """A window; dimensions to drop have size 1."""
    array = x["Input"]
    window = [slice(None)] * array.ndim
    for axis, start, end in zip(x.attr("axes"), x.attr("starts"), x.attr("ends"), strict=True):
        window[axis] = slice(*slice_bounds(array.shape[axis], start, end))
    return {"Out": array[tuple(window)].reshape(x.shape("Out"))}


@lowering("increment")
def increment(x: Operands) -> Made:
    """One number more."""
    return {"Out": x["X"] + x["X"].dtype.type(x.attr("step"))}


@lowering("scale")
def scale(x: Operands) -> Made:
    """A multiple and a sum, in either order."""
    array, factor, bias = x["X"], x.attr("scale"), x.attr("bias")
    late = x.attr("bias_after_scale")
    return {"Out": array * factor + bias if late else (array + bias) * factor}


@lowering("fill_constant", "fill_constant_batch_size_like", "fill_any_like", "fill_zeros_like")
def filled(x: Operands) -> Made:
    """One number everywhere: 0 unless an attribute says which."""
    value = float(x.attrs.get("str_value") or x.attrs.get("value", 0.0))
    return {"Out": jnp.full(x.shape("Out"), value, x.dtype("Out"))}


@lowering("sum")
def sum_(x: Operands) -> Made:
    """The operands, added in order."""
    first, *others = x.many("X")
    for other in others:
        first = first + other
    return {"Out": first}


def _floats(node: Any) -> bool:
    """Means of integers drop what is behind the point, which is left to others."""
    return all(to_kind(value) == "f" for value in node.inputs["X"])


def to_kind(value: Any) -> str:
    """Return the kind of a value's elements, as NumPy names it."""
    from ....strategies.types import to_numpy

    return str(to_numpy(value.spec.dtype).kind)


@lowering("mean", takes=_floats)
def mean(x: Operands) -> Made:
    """The mean of all elements."""
    return {"Out": jnp.sum(x["X"]).reshape(1) * (1.0 / max(x["X"].size, 1))}


def _reduced(name: str, x: Operands) -> Made:
    axes = axes_of(x["X"].ndim, x.attr("dim"), x.attr("reduce_all"))
    return {"Out": getattr(jnp, name)(x["X"], axes)}


def _floats_of_one_type(node: Node) -> bool:
    return _floats(node) and one_type(node)


_REDUCTIONS = {"sum": one_type, "max": one_type, "min": one_type, "mean": _floats_of_one_type}
for _name, _takes in _REDUCTIONS.items():
    lowering(f"reduce_{_name}", takes=_takes)(partial(_reduced, _name))


@lowering("squared_l2_norm")
def squared_l2_norm(x: Operands) -> Made:
    """The sum of squares."""
    return {"Out": jnp.sum(jnp.square(x["X"]))}
