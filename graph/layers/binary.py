"""Functions of two tensors, and arithmetic on variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...strategies.errors import InvalidType
from ...strategies.types import FLOATS
from .. import unique_name
from ..variable import Variable
from .helper import LayerHelper, check_variable


def _elementwise(op_type: str) -> Callable[..., Variable]:
    def layer(
        x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
    ) -> Variable:
        check_variable(x, "x", op_type)
        check_variable(y, "y", op_type)
        helper = LayerHelper(op_type, name)
        return helper.activate(
            helper.apply(op_type, {"X": x, "Y": y}, {"axis": axis}, dtype=x.dtype), act
        )

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"``{op_type}`` of x and y; y is aligned with x at ``axis`` and broadcast."
    return layer


elementwise_add = _elementwise("elementwise_add")
elementwise_sub = _elementwise("elementwise_sub")
elementwise_mul = _elementwise("elementwise_mul")
elementwise_div = _elementwise("elementwise_div")
elementwise_max = _elementwise("elementwise_max")
elementwise_min = _elementwise("elementwise_min")
elementwise_pow = _elementwise("elementwise_pow")


def _boolean(op_type: str, unary: bool = False) -> Callable[..., Variable]:
    def layer(x: Variable, y: Variable | None = None, *, name: str | None = None) -> Variable:
        check_variable(x, "x", op_type)
        inputs = {"X": x}
        if not unary:
            check_variable(y, "y", op_type)
            inputs["Y"] = y  # type: ignore[assignment]  # checked above
        return LayerHelper(op_type, name).apply(op_type, inputs, dtype="bool", stop_gradient=True)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"``{op_type}``, element by element; the result is boolean."
    return layer


less_than = _boolean("less_than")
less_equal = _boolean("less_equal")
greater_than = _boolean("greater_than")
greater_equal = _boolean("greater_equal")
equal = _boolean("equal")
not_equal = _boolean("not_equal")
logical_and = _boolean("logical_and")
logical_or = _boolean("logical_or")
logical_xor = _boolean("logical_xor")
logical_not = _boolean("logical_not", unary=True)


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """alpha * x @ y, leading dimensions broadcast, after the transposes."""
    check_variable(x, "x", "matmul")
    check_variable(y, "y", "matmul")
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": float(alpha)}
    return LayerHelper("matmul", name).apply("matmul", {"X": x, "Y": y}, attrs, dtype=x.dtype)


def mul(
    x: Variable,
    y: Variable,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    name: str | None = None,
) -> Variable:
    """x @ y, each flattened to a matrix after its first ``num_col_dims`` dimensions."""
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return LayerHelper("mul", name).apply("mul", {"X": x, "Y": y}, attrs, dtype=x.dtype)


# -- operators on Variable ------------------------------------------------------------------------


def _temporary(like: Variable, dtype: Any = None) -> Variable:
    block = like.block.program.current_block()
    return block.create_var(
        name=unique_name.generate("tmp"), dtype=like.dtype if dtype is None else dtype
    )


def _scaled(x: Variable, factor: float, bias: float) -> Variable:
    out = _temporary(x)
    x.block.program.current_block().append_op(
        "scale", {"X": x}, {"Out": out}, {"scale": float(factor), "bias": float(bias)}
    )
    return out


def _filled(like: Variable, value: float) -> Variable:
    """Return a tensor of one element that holds ``value``, in the dtype of ``like``."""
    out = _temporary(like)
    assert like.dtype is not None
    attrs = {"shape": [1], "dtype": int(like.dtype), "value": float(value)}
    like.block.program.current_block().append_op("fill_constant", None, {"Out": out}, attrs)
    out.stop_gradient = True
    return out


_BY_SCALE: dict[str, Callable[[Variable, float], Variable]] = {
    "elementwise_add": lambda x, value: _scaled(x, 1.0, value),
    "elementwise_sub": lambda x, value: _scaled(x, 1.0, -value),
    "elementwise_mul": lambda x, value: _scaled(x, value, 0.0),
    "elementwise_div": lambda x, value: _scaled(x, 1.0 / value, 0.0),
}


def _operator(op_type: str, reverse: bool = False, boolean: bool = False) -> Callable[..., Any]:
    def method(self: Variable, other: Any) -> Any:
        if isinstance(other, (bool, int, float)):
            simple = _BY_SCALE.get(op_type)
            if (
                simple
                and self.dtype in FLOATS
                and (not reverse or op_type in ("elementwise_add", "elementwise_mul"))
            ):
                return simple(self, float(other))
            if reverse and op_type == "elementwise_sub" and self.dtype in FLOATS:
                return _scaled(self, -1.0, float(other))
            other = _filled(self, float(other))
        elif not isinstance(other, Variable):
            raise InvalidType(f"{op_type}: cannot combine a Variable with {type(other).__name__}.")
        x, y = (other, self) if reverse else (self, other)
        out = _temporary(x, "bool" if boolean else None)
        block = self.block.program.current_block()
        axis = 0 if y.shape and y.shape[0] == -1 else -1  # a batch is aligned at the front
        block.append_op(op_type, {"X": x, "Y": y}, {"Out": out}, {"axis": axis})
        return out

    return method


_METHODS = {
    "__add__": ("elementwise_add", False),
    "__radd__": ("elementwise_add", True),
    "__sub__": ("elementwise_sub", False),
    "__rsub__": ("elementwise_sub", True),
    "__mul__": ("elementwise_mul", False),
    "__rmul__": ("elementwise_mul", True),
    "__truediv__": ("elementwise_div", False),
    "__rtruediv__": ("elementwise_div", True),
    "__pow__": ("elementwise_pow", False),
    "__rpow__": ("elementwise_pow", True),
}
for _method, (_type, _reverse) in _METHODS.items():
    setattr(Variable, _method, _operator(_type, _reverse))
for _method, _type in (
    ("__lt__", "less_than"),
    ("__le__", "less_equal"),
    ("__gt__", "greater_than"),
    ("__ge__", "greater_equal"),
):
    setattr(Variable, _method, _operator(_type, boolean=True))
setattr(Variable, "__neg__", lambda self: _scaled(self, -1.0, 0.0))  # noqa: B010 - declared for type checkers
