"""Operators of Python on variables: each appends the ops that Paddle 1.8 appends for it.

A program written for Paddle 2.x says so by ``paddle.enable_static()``, which 1.8 does not have. From there on
the element type of a result is that of 2.x: whole numbers are not cut where an operand, or a quotient, is a
fraction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ...strategies.errors import InvalidArgument, InvalidType, Unsupported
from ...strategies.types import FLOATS, INTEGERS, VarType, to_numpy, to_var_type
from ..program import unique_name
from ..program.variable import Variable
from . import binary, shape, unary
from .arguments import check_variable
from .helper import layer


class Promotion:
    """Whether operators choose element types as Paddle 2.x does."""

    def __init__(self) -> None:
        self.is_on = False


PROMOTION = Promotion()


def _temporary(like: Variable, dtype: Any) -> Variable:
    block = like.block.program.current_block()
    return block.create_var(name=unique_name.generate("tmp"), dtype=dtype)


def _append(like: Variable, op_type: str, inputs: Any, dtype: Any, attrs: Any) -> Variable:
    out = _temporary(like, dtype)
    like.block.program.current_block().append_op(op_type, inputs, {"Out": out}, attrs)
    return out


def _scaled(x: Variable, factor: float, bias: float) -> Variable:
    return _append(x, "scale", {"X": x}, x.dtype, {"scale": factor, "bias": bias})


def astype(self: Variable, dtype: Any) -> Variable:
    """Return the elements as another type."""
    check_variable(self, "self", "astype")
    kind = to_var_type(dtype)
    if self.dtype is None:
        raise InvalidType(f"astype: the element type of {self.name!r} is not known yet.")
    attrs = {"in_dtype": int(self.dtype), "out_dtype": int(kind)}
    return _append(self, "cast", {"X": self}, kind, attrs)


def _check_in_range(like: Variable, value: float) -> None:
    """Refuse a number that a tensor of integers cannot hold beside ``like``."""
    if like.dtype in INTEGERS:
        limits = np.iinfo(to_numpy(like.dtype))
        if not limits.min <= value <= limits.max:
            raise InvalidArgument(
                f"{like.name!r} holds {like.dtype.name}, from {limits.min} to {limits.max}, and the other "
                f"operand, {value:g}, lies outside: cast it first, as by {like.name}.astype('int64')."
            )


def _one_number(like: Variable, value: float) -> Variable:
    assert like.dtype is not None
    _check_in_range(like, value)
    attrs = {"shape": [1], "dtype": int(like.dtype), "value": value}
    out = _append(like, "fill_constant", None, like.dtype, attrs)
    out.stop_gradient = True
    return out


def _filled(like: Variable, value: float) -> Variable:
    """Return ``value`` in the shape of ``like``: the left operand decides the shape."""
    assert like.dtype is not None and like.shape is not None
    _check_in_range(like, value)
    sizes = list(like.shape)
    if not any(size < 0 for size in sizes):
        attrs = {"shape": sizes, "dtype": int(like.dtype), "value": value}
        out = _append(like, "fill_constant", None, like.dtype, attrs)
    else:
        batch = next(i for i, size in enumerate(sizes) if size < 0)
        shape = [1 if size < 0 and i != batch else size for i, size in enumerate(sizes)]
        attrs = {"shape": shape, "value": value, "input_dim_idx": batch, "output_dim_idx": batch}
        op_type = "fill_constant_batch_size_like"  # of float32, as its attribute is by default
        out = _append(like, op_type, {"Input": like}, VarType.FP32, attrs)
    out.stop_gradient = True
    return out


_BY_SCALE: dict[str, Callable[[Variable, float], Variable]] = {
    "__add__": lambda x, value: _scaled(x, 1.0, value),
    "__radd__": lambda x, value: _scaled(x, 1.0, value),
    "__sub__": lambda x, value: _scaled(x, 1.0, -value),
    "__rsub__": lambda x, value: _scaled(x, -1.0, value),
    "__mul__": lambda x, value: _scaled(x, value, 0.0),
    "__rmul__": lambda x, value: _scaled(x, value, 0.0),
    "__truediv__": lambda x, value: _scaled(x, 1.0 / value, 0.0),
}


def _by_scale(name: str, x: Variable, value: Any) -> Variable | None:
    """Return x and a number combined by one ``scale``, or None where Paddle takes another op."""
    simple = _BY_SCALE.get(name)
    if simple is None or (name == "__truediv__" and (x.dtype in INTEGERS or value == 0)):
        return None
    if x.dtype in (VarType.BOOL, VarType.UINT8) and name.endswith("sub__"):
        return None  # a scale cannot hold what is below 0
    if x.dtype in INTEGERS and float(value) != int(value):
        raise InvalidArgument(
            f"{x.name!r} holds integers ({x.dtype.name}), and {value!r} is none: "
            "cast it first, as by x.astype('float32')."
        )
    return simple(x, float(value))


def wider(x: VarType | None, y: VarType | None) -> VarType | None:
    """Return the element type that holds the floats of both, or None where one of them has no floats."""
    if x not in FLOATS or y not in FLOATS:
        return None
    if {x, y} == {VarType.FP16, VarType.BF16}:
        return VarType.FP32
    return max(x, y, key=lambda kind: np.dtype(to_numpy(kind)).itemsize)


def _promoted(name: str, x: Variable, other: Any) -> VarType | None:
    """Return the element type in which Paddle 2.x computes."""
    is_whole = x.dtype in INTEGERS or x.dtype == VarType.BOOL
    if isinstance(other, Variable):
        kind = x.dtype if other.dtype == x.dtype else wider(x.dtype, other.dtype)
        if kind is None and is_whole and other.dtype in FLOATS and other.shape in ((), (1,)):
            kind = other.dtype
        kind = x.dtype if kind is None else kind
    elif is_whole and not isinstance(other, (bool, int, np.integer, np.bool_)):
        kind = VarType.FP32
    else:
        kind = VarType.INT64 if x.dtype == VarType.BOOL else x.dtype
    if name.endswith("truediv__") and kind not in FLOATS:
        kind = VarType.FP32
    return kind


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.number, np.bool_))


def _operator(name: str, op_type: str, reverse: bool, boolean: bool) -> Callable[..., Any]:
    def method(self: Variable, other: Any) -> Any:
        if not isinstance(other, Variable) and not _is_number(other):
            # == and != look for a variable in a list, too
            if isinstance(other, np.ndarray) and name not in ("__eq__", "__ne__"):
                raise InvalidType(
                    f"{op_type}: {self.name!r} meets a NumPy array {list(other.shape)}, and the program "
                    f"computes with variables. Make a constant of it by layers.assign(array), or feed it."
                )
            return NotImplemented  # Python tries the other operand, and raises TypeError
        if PROMOTION.is_on:
            kind = _promoted(name, self, other)
            self = self if self.dtype == kind else astype(self, kind)
        if not isinstance(other, Variable):
            result = _by_scale(name, self, other) if isinstance(other, (int, float)) else None
            if result is not None:
                return result
            other = (_filled if reverse else _one_number)(self, float(other))
        if other.dtype != self.dtype:
            other = astype(other, self.dtype)
        x, y = (other, self) if reverse else (self, other)
        if op_type == "elementwise_floordiv" and (PROMOTION.is_on or x.dtype in FLOATS):
            return floor_divide(x, y)
        if op_type == "elementwise_mod" and PROMOTION.is_on:
            return remainder(x, y)
        axis = 0 if y.shape and y.shape[0] == -1 else -1  # a batch is aligned at the front
        dtype = VarType.BOOL if boolean else self.dtype
        return _append(self, op_type, {"X": x, "Y": y}, dtype, {"axis": axis})

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Append ``{op_type}``; a number becomes a tensor of this one's element type."
    return method


def floor_divide(x: Variable, y: Variable) -> Variable:
    """Return x / y rounded down."""
    if x.dtype not in INTEGERS:
        quotient = unary.floor(binary.elementwise_div(x, y))
        quotient.stop_gradient = True
        return quotient
    quotient = binary.elementwise_floordiv(x, y)
    # The op truncates; rounding down is one less where there is a remainder and the signs differ.
    rest = binary.elementwise_sub(x, binary.elementwise_mul(quotient, y))
    return binary.elementwise_sub(quotient, _signs_differ(rest, y))


def remainder(x: Variable, y: Variable) -> Variable:
    """Return what :func:`floor_divide` leaves of x: it has the sign of y."""
    rest = binary.elementwise_mod(x, y)
    if x.dtype not in INTEGERS:
        return rest
    # Of integers the op takes the sign of x.
    return binary.elementwise_add(rest, binary.elementwise_mul(y, _signs_differ(rest, y)))


def _signs_differ(x: Variable, y: Variable) -> Variable:
    """Return 1 where one of two integers is below 0 and the other above it, else 0."""
    below = binary.elementwise_mul(x, y)
    return shape.cast(binary.less_than(below, shape.zeros_like(below)), x.dtype)


def _bits(name: str, op_type: str, reverse: bool) -> Callable[..., Any]:
    def method(self: Variable, other: Any) -> Any:
        if not isinstance(other, Variable):
            if not isinstance(other, (bool, int, np.integer, np.bool_)):
                return NotImplemented
            other = _one_number(self, float(other))
        x, y = (other, self) if reverse else (self, other)
        return layer(op_type, x=x, y=y)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Append ``{op_type}``: of booleans it is logic."
    return method


_BITS = {
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
_ARITHMETIC = {
    "add": "elementwise_add",
    "sub": "elementwise_sub",
    "mul": "elementwise_mul",
    "truediv": "elementwise_div",
    "floordiv": "elementwise_floordiv",
    "mod": "elementwise_mod",
    "pow": "elementwise_pow",
}
_COMPARISONS = {
    "__eq__": "equal",
    "__ne__": "not_equal",
    "__lt__": "less_than",
    "__le__": "less_equal",
    "__gt__": "greater_than",
    "__ge__": "greater_equal",
}
_COMMUTATIVE = ("__radd__", "__rmul__")  # these swap the operands


def _matmul(self: Variable, other: Any) -> Any:
    """Append ``matmul``."""
    if not isinstance(other, Variable):
        return NotImplemented
    return _append(self, "matmul", {"X": self, "Y": other}, self.dtype, {})


def _negative(self: Variable) -> Variable:
    """Append ``scale`` by -1: what is below 0 wraps around in unsigned integers.

    Raises:
        InvalidType: of booleans.
    """
    if self.dtype == VarType.BOOL:
        raise InvalidType(
            f"-{self.name}: booleans have no opposite number. ~{self.name} is their logical not; "
            f"{self.name}.astype('float32') holds numbers."
        )
    return _scaled(self, -1.0, 0.0)


def _absolute(self: Variable) -> Variable:
    """Append ``abs``."""
    return unary.abs(self)


def _inverted(self: Variable) -> Variable:
    """Append ``bitwise_not``: of booleans it is the opposite."""
    return layer("bitwise_not", x=self)


def _transposed(self: Variable) -> Variable:
    """The dimensions in reverse order."""
    return self if self.ndim < 2 else shape.transpose(self, list(range(self.ndim))[::-1])


def numel(self: Variable) -> Variable:
    """Return the number of elements, as an int64 of one element."""
    check_variable(self, "x", "numel")
    if self.shape is not None and all(size >= 0 for size in self.shape):
        return shape.fill_constant([1], "int64", int(np.prod(self.shape)))
    sizes = shape.cast(shape.shape(self), "int64")
    count = shape.reduce_prod(sizes)
    count.stop_gradient = True
    return count


def detach(self: Variable) -> Variable:
    """Return the elements as a variable that no gradient flows through."""
    out = shape.assign(self)
    out.stop_gradient = True
    return out


def rank(self: Variable) -> int:
    """Return the number of dimensions."""
    return self.ndim


def itself(self: Variable, *args: Any, **kwargs: Any) -> Variable:
    """Return the variable: its elements lie where the executor runs."""
    return self


_CASTS = {
    "bool": "bool",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
}


def _cast(name: str, dtype: str) -> Callable[[Variable], Variable]:
    def method(self: Variable) -> Variable:
        return astype(self, dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Return the elements as {dtype}."
    return method


_FETCH = "Fetch it, as by exe.run(fetch_list=[variable])"
_IMPERATIVE = {
    "__array__": _FETCH,
    "__float__": _FETCH,
    "__int__": _FETCH,
    "item": _FETCH,
    "backward": "Build gradients by append_backward, static.gradients or an optimizer's minimize",
    "clear_gradient": "Gradients are computed anew in each step, so there is nothing to clear",
    "gradient": "Fetch its gradient: the variable that append_backward or static.gradients returns",
    "numpy": _FETCH,
    "register_hook": "Fetch its gradient, or change it between backward and apply_gradients",
    "tolist": _FETCH,
}


def _array_function(
    self: Variable, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
) -> Any:
    """Refuse what NumPy computes of elements; ``np.shape`` and ``np.ndim`` read the declaration."""
    if function in (np.shape, np.ndim):
        return self.shape if function is np.shape else self.ndim
    raise _without_elements(self, function.__name__)


# What a Variable does where a NumPy number or array stands on the left of an operator
_REFLECTED: dict[np.ufunc, str] = {
    np.add: "__radd__",
    np.subtract: "__rsub__",
    np.multiply: "__rmul__",
    np.divide: "__rtruediv__",
    np.floor_divide: "__rfloordiv__",
    np.remainder: "__rmod__",
    np.power: "__rpow__",
    np.bitwise_and: "__rand__",
    np.bitwise_or: "__ror__",
    np.bitwise_xor: "__rxor__",
    np.left_shift: "__rlshift__",
    np.right_shift: "__rrshift__",
    np.equal: "__eq__",
    np.not_equal: "__ne__",
    np.less: "__gt__",
    np.less_equal: "__ge__",
    np.greater: "__lt__",
    np.greater_equal: "__le__",
}


def _array_ufunc(
    self: Variable, ufunc: np.ufunc, method: str, *operands: Any, **options: Any
) -> Any:
    """Leave operators to the variable on their right; refuse what NumPy computes of elements."""
    reflected, result = _REFLECTED.get(ufunc), NotImplemented
    if reflected is not None and method == "__call__" and not options and operands[1] is self:
        (left, _) = operands  # of a comparison, a number comes as an array
        result = getattr(self, reflected)(left[()] if np.ndim(left) == 0 else left)
    if result is NotImplemented and ufunc in (np.equal, np.not_equal):
        return ufunc is np.not_equal  # a list of arrays and variables is searched for a variable
    if result is NotImplemented:
        raise _without_elements(self, ufunc.__name__)
    return result


def _without_elements(variable: Variable, function: str) -> InvalidType:
    return InvalidType(
        f"np.{function} cannot compute with {variable.name!r}, which has no elements while the program is "
        f"built: compute with layers or operators, or fetch it and call np.{function} on the array."
    )


def _format(self: Variable, spec: str) -> str:
    """Describe the variable; a format for numbers is refused."""
    if not spec:
        return str(self)
    raise InvalidType(
        f"{self.name!r} cannot be formatted as {spec!r}, because it has no elements while the program is "
        "built: fetch it, and format the array, or print it in each step by layers.Print."
    )


def _imperative(name: str, cure: str) -> Callable[..., NoReturn]:
    def refuse(self: Variable, *args: Any, **kwargs: Any) -> NoReturn:
        raise Unsupported(
            f"Variable.{name} needs the imperative (dygraph) mode, and Rowlock runs static-graph "
            f"programs: {self.name!r} has no elements while the program is built. {cure}."
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Refuse: there is no imperative mode."
    return refuse


def install() -> None:
    """Give Variable its operators."""
    for kind, op_type in _ARITHMETIC.items():
        for name, reverse in ((f"__{kind}__", False), (f"__r{kind}__", True)):
            swapped = reverse and name not in _COMMUTATIVE
            setattr(Variable, name, _operator(name, op_type, swapped, False))
    for kind, op_type in _BITS.items():
        for name, reverse in ((f"__{kind}__", False), (f"__r{kind}__", True)):
            setattr(Variable, name, _bits(name, op_type, reverse))
    for name, op_type in _COMPARISONS.items():
        setattr(Variable, name, _operator(name, op_type, False, True))
    methods: dict[str, Any] = {
        "__matmul__": _matmul,
        "__neg__": _negative,
        "__pos__": itself,
        "__abs__": _absolute,
        "__array_function__": _array_function,
        "__array_ufunc__": _array_ufunc,
        "__format__": _format,
        "__invert__": _inverted,
        "astype": astype,
        "numel": numel,
    }
    methods |= {"detach": detach, "dim": rank, "ndimension": rank, "cpu": itself, "cuda": itself}
    methods |= {name: _cast(name, dtype) for name, dtype in _CASTS.items()}
    methods |= {name: _imperative(name, cure) for name, cure in _IMPERATIVE.items()}
    for name, method in methods.items():
        setattr(Variable, name, method)
    setattr(Variable, "T", property(_transposed))  # noqa: B010 - declared for type checkers


install()
