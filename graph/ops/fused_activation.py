"""A sum or product and an activation as one op, in either order (Paddle's fused_elemwise_activation).

``functor_list`` says what is applied, outermost first: [act, "elementwise_add"] is act(X + Y), and
["elementwise_add", act] is X + act(Y); so for "elementwise_mul". ``act_attrs`` (not in Paddle) are the
activation's attributes off their defaults; without them ``scale`` is the factor of a scale. The
gradient of act(X + Y) forms the sum again where the slope is a function of it and it was not kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from operator import add, mul
from typing import Any

from .elementwise import beside, broadcast_shape
from .expr import Expr, copy
from .operands import Binary, Input, Output, attribute_name
from .registry import OPS, Grad, Inference, Spec, Specs, define
from .samples import sample

ADD, MUL, FUSED = "elementwise_add", "elementwise_mul", "fused_elemwise_activation"


def foldable(op_type: str) -> bool:
    """Tell whether an op is an activation that can be fused: one operand, an expression, and a slope."""
    if op_type == "scale":
        return True
    op = OPS.get(op_type)
    if op is None or op.scalar is None or op.grad is None or op.grad.type != f"{op_type}_grad":
        return False
    return (
        op.aligned is None
        and op.outputs == ("Out",)
        and [s.name for s in op.input_slots if not s.optional] == ["X"]
    )


def slope_reads(act: str) -> str:
    """Return what an activation's gradient is a function of: its ``X``, its ``Out``, or nothing ("")."""
    if act == "scale":
        return ""
    grad = OPS[f"{act}_grad"]
    return next((slot.name for slot in grad.input_slots if slot.name in ("X", "Out")), "")


def value_of(act: str, settings: Mapping[str, Any]) -> Callable[[Any], Expr]:
    """Return an activation as a function of one expression, its attributes filled in."""
    if act == "scale":
        by, bias = settings["scale"], settings["bias"]
        shift = bias if settings["bias_after_scale"] else bias * by
        return lambda x: x * by + shift
    return _filled_in(act, settings)


def slope_of(act: str, settings: Mapping[str, Any]) -> Callable[..., Expr]:
    """Return an activation's gradient as a function of what :func:`slope_reads` names, and of Out@GRAD."""
    if act == "scale":
        return lambda d: d * settings["scale"]
    return _filled_in(f"{act}_grad", settings)


def _filled_in(op_type: str, settings: Mapping[str, Any]) -> Callable[..., Expr]:
    scalar = OPS[op_type].scalar
    assert scalar is not None, op_type
    params = inspect.signature(scalar).parameters.values()
    values = {**OPS[op_type].attrs, **settings}
    options = {p.name: values[attribute_name(p.name)] for p in params if p.kind is p.KEYWORD_ONLY}
    return lambda *operands: scalar(*operands, **options)


def binary_is_outer(functor_list: Sequence[str]) -> bool:
    """Tell whether the sum or product is applied last: X + act(Y)."""
    return functor_list[0].startswith((ADD, MUL))


def sums(functor_list: Sequence[str]) -> bool:
    """Tell whether the operands are added, not multiplied."""
    return any(name.startswith(ADD) for name in functor_list)


def activation_in(functor_list: Sequence[str]) -> str:
    """Return the activation's op type."""
    functor = functor_list[1] if binary_is_outer(functor_list) else functor_list[0]
    return functor.removesuffix("_grad")


def settings_in(
    functor_list: Sequence[str], act_attrs: Mapping[str, Any], scale: float
) -> Mapping[str, Any]:
    """Return the activation's attributes; Paddle's own op has those of a scale alone."""
    if activation_in(functor_list) == "scale" and not act_attrs:
        return {"scale": scale, "bias": 0.0, "bias_after_scale": True}
    return act_attrs


def fused(
    x: Any, y: Any, *, functor_list: Sequence[str], act_attrs: Mapping[str, Any], scale: float
) -> tuple[Expr, Expr]:
    """Return the result, and what stands between."""
    act = value_of(activation_in(functor_list), settings_in(functor_list, act_attrs, scale))
    join = add if sums(functor_list) else mul
    middle = act(y) if binary_is_outer(functor_list) else join(x, y)
    return (join(x, middle) if binary_is_outer(functor_list) else act(middle)), middle


def fused_slopes(
    x: Any,
    y: Any,
    out: Any,
    intermediate_out: Any,
    d_out: Any,
    *,
    functor_list: Sequence[str],
    act_attrs: Mapping[str, Any],
    scale: float,
) -> tuple[Expr, Expr]:
    """Return the gradients of X and of Y; those of a sum that was not kept may form it again."""
    act, settings = activation_in(functor_list), settings_in(functor_list, act_attrs, scale)
    slope, reads, added = slope_of(act, settings), slope_reads(act), sums(functor_list)
    outer, middle = binary_is_outer(functor_list), intermediate_out
    if middle is None and (outer or x is not None):
        middle = value_of(act, settings)(y) if outer else (add if added else mul)(x, y)
    sides = {"X": y, "Out": middle} if outer else {"X": middle, "Out": out}

    def through(d: Any) -> Any:
        return slope(sides[reads], d) if reads else slope(d)

    if outer:
        return (copy(d_out), through(d_out)) if added else (d_out * middle, through(d_out * x))
    d = through(d_out)
    return (d, d) if added else (d * y, d * x)


def fused_shape(op: Inference) -> Mapping[str, Specs]:
    """The broadcast shape; what stands between is like Y (X + act(Y)) or like Out."""
    functors = op.attr("functor_list")
    op.require(
        len(functors) == 2
        and len({ADD, MUL}.intersection(functors)) == 1
        and foldable(activation_in(functors)),
        f"functor_list={functors} must hold elementwise_add or elementwise_mul, and an activation",
    )
    out = Spec(broadcast_shape(op), op.spec("X").dtype)
    return {"Out": out, "IntermediateOut": op.spec("Y") if binary_is_outer(functors) else out}


def fused_grad_shape(op: Inference) -> Mapping[str, Specs]:
    """Gradients are like their operands; an X that is left out has the shape of the result."""
    x = op.spec("X") if op.has("X") else op.spec("Out@GRAD")
    return {"X@GRAD": x, "Y@GRAD": op.spec("Y")}


def _equal_gradients(attrs: Mapping[str, Any]) -> Mapping[str, str]:
    """The operands of act(X + Y) have one gradient, where neither was broadcast."""
    functors = attrs["functor_list"]
    return {"Y@GRAD": "X@GRAD"} if sums(functors) and not binary_is_outer(functors) else {}


def _shape_slots(attrs: Mapping[str, Any], slots: Container[str]) -> Sequence[str]:
    """A sum's gradient reads no operand; the slope may read X + Y, which it may have to form, or Y."""
    functors = attrs["functor_list"]
    at_operand = slope_reads(activation_in(functors)) == "X"
    if not sums(functors):
        return ()
    if binary_is_outer(functors):
        return ("X",) if at_operand else ("X", "Y")
    return () if at_operand and "IntermediateOut" not in slots else ("X", "Y")


def backward_attrs(forward: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the gradient op."""
    functors = [f"{name}_grad" for name in forward["functor_list"]]
    return {**forward, "functor_list": functors, "save_intermediate_out": False}


_WITH_BIAS = "X [2 3 4], Y [3]"
_LINE = {"scale": 2.0, "bias": 0.5, "bias_after_scale": True}


class FusedElemwiseActivation(Binary):
    intermediate_out: Output | None
    axis: int = -1
    scale: float = 0.0
    save_intermediate_out: bool = False
    functor_list: Sequence[str] = []
    act_attrs: Mapping[str, Any] = {}


class FusedElemwiseActivationGrad(FusedElemwiseActivation, reads="x? y out? intermediate_out"):
    d_out: Input
    d_x: Output | None
    d_y: Output | None


define(
    FUSED,
    FusedElemwiseActivation,
    fused_shape,
    grad=Grad(
        f"{FUSED}_grad",
        ("X", "Y", "Out", "IntermediateOut", "Out@GRAD"),
        ("X@GRAD", "Y@GRAD"),
        attrs=backward_attrs,
    ),
    scalar=fused,
    aligned=beside,
    in_place={"Out": "X"},
    samples=(
        sample(_WITH_BIAS, axis=1, functor_list=["tanh", ADD]),
        sample("X [3 4], Y [3 4]", functor_list=["sigmoid", ADD]),
        sample("X [2 4], Y [4]", functor_list=["gelu", ADD], act_attrs={"approximate": True}),
        sample(_WITH_BIAS, axis=1, functor_list=["scale", ADD], act_attrs=_LINE),
        sample(_WITH_BIAS, axis=1, functor_list=[ADD, "tanh"]),
        sample("X [3 4], Y [3 4]", functor_list=[ADD, "leaky_relu"], act_attrs={"alpha": 0.1}),
        sample(_WITH_BIAS, axis=1, functor_list=[ADD, "scale"], scale=2.0),
        sample(_WITH_BIAS, axis=1, functor_list=[MUL, "scale"], scale=-0.5),
        sample(_WITH_BIAS, axis=1, functor_list=[MUL, "tanh"]),
        sample("X [3 4], Y [3 4]", functor_list=[MUL, "sigmoid"]),
        sample(_WITH_BIAS, axis=1, functor_list=["gelu", MUL]),
        sample("X [2 4], Y [4]", functor_list=["sigmoid", MUL]),
    ),
    refuses=(
        sample("X [3 4], Y [3]", functor_list=["relu", ADD]),
        sample("X [3 4], Y [4]", functor_list=["relu", "mul"]),
    ),
)
define(
    f"{FUSED}_grad",
    FusedElemwiseActivationGrad,
    fused_grad_shape,
    scalar=fused_slopes,
    aligned=beside,
    in_place={"X@GRAD": "Out@GRAD"},
    twins=_equal_gradients,
    shapes_of=_shape_slots,
)
