"""Checks of arguments. Annotations say what is checked, before a public function or constructor begins.

``x: Variable`` must be a Variable, ``x: Floats`` one that may hold floats, ``x: Integers`` one of integers,
``x: Int64`` one of int64; ``bool``, ``int`` and ``float`` are a flag, an integer and a number of Python's or
NumPy's, ``Sequence[int]`` is a list, a tuple or an array of integers (``int | Sequence[int]``: or one integer),
``Generator`` a function such as a reader, ``Literal`` lists the values that may be; None will do where
``| None`` follows. ``rowlock/names.py`` publishes functions and classes as :func:`checked` returns them; the
type checker holds those to it that are not published.
"""

from __future__ import annotations

import reprlib
import sys
from ast import literal_eval
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial, wraps
from inspect import Parameter, signature
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar
from weakref import WeakSet

import numpy as np

from ...strategies.errors import InvalidType, InvalidValue, NotANumber, require_type
from ...strategies.types import FLOATS, INTEGERS, VarType
from ..program.variable import Variable

_LEFT_OUT = object()

Floats: TypeAlias = Variable
Integers: TypeAlias = Variable
Int64: TypeAlias = Variable


def check_variable(x: Any, argument: str, layer: str) -> None:
    """Raise InvalidType unless ``x`` is a Variable."""
    require_type(x, Variable, f"{layer}: {argument} must be a Variable")


def _holding(dtypes: Collection[VarType], text: str) -> Callable[[Any, str, str], None]:
    """Return a check that raises InvalidType unless ``x`` is a Variable that may hold such elements."""

    def check(x: Any, argument: str, layer: str) -> None:
        check_variable(x, argument, layer)
        if x.dtype is not None and x.dtype not in dtypes:
            raise InvalidType(
                f"{layer}: {argument} must hold {text}, and {x.name!r} holds {x.dtype.name}: cast it."
            )

    return check


check_float = _holding(FLOATS, "floats")
check_integers = _holding(INTEGERS, "integers")


def integer(value: Any, argument: str, layer: str) -> int:
    """Return an integer as a Python int.

    Raises:
        InvalidType: ``value`` is no integer.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidType(
            f"{layer}: {argument} must be an int, got {value!r} ({type(value).__name__})."
        )
    return int(value)


def integers(value: Any, argument: str, layer: str, count: int = 1) -> list[int]:
    """Return integers of a list, a tuple or an array as Python's.

    One integer stands for ``count`` of them; where that is 0 there must be several.

    Raises:
        InvalidType: something else is there.
    """
    if (isinstance(value, np.ndarray) and value.ndim) or (
        isinstance(value, Sequence) and not isinstance(value, str)
    ):
        return [integer(item, f"a number of {argument}", layer) for item in value]
    if not count:
        raise InvalidType(
            f"{layer}: {argument} must be a list or a tuple of ints, got {value!r} ({type(value).__name__})."
        )
    return [integer(value, argument, layer)] * count


def number(value: Any, argument: str, layer: str) -> float:
    """Return a number as a Python float.

    Raises:
        NotANumber: ``value`` is none.
    """
    wrong = isinstance(value, (str, bytes, Variable, bool, np.bool_))
    if wrong or not hasattr(value, "__float__") or np.ndim(value) > 0:
        raise NotANumber(
            f"{layer}: {argument} must be a number, got {value!r} ({type(value).__name__})."
        )
    return float(value)


def flag(value: Any, argument: str, layer: str) -> bool:
    """Return True or False, also written 1 or 0, as a Python bool.

    Raises:
        InvalidType: ``value`` is neither.
    """
    if not isinstance(value, (bool, np.bool_, int, np.integer)) or value not in (0, 1):
        raise InvalidType(
            f"{layer}: {argument} must be True or False, got {value!r} ({type(value).__name__})."
        )
    return bool(value)


def check_function(value: Any, argument: str, layer: str) -> None:
    """Raise InvalidType unless ``value`` is a function."""
    if not callable(value):
        raise InvalidType(
            f"{layer}: {argument} must be a function, got {reprlib.repr(value)} ({type(value).__name__})."
        )


def axis_of(x: Variable, axis: int, layer: str) -> int:
    """Return a dimension counted from the front.

    Raises:
        InvalidValue: x has no such dimension.
    """
    if not -x.ndim <= integer(axis, "axis", layer) < x.ndim:
        raise InvalidValue(
            f"{layer}: axis {axis} is outside the {x.ndim} dimensions of {x.name!r}."
        )
    return axis % x.ndim


def variables_of(x: Any, argument: str, layer: str) -> list[Variable]:
    """Return a Variable, or several, as a list.

    Raises:
        InvalidType: there is none, or something else among them.
    """
    variables = list(x) if isinstance(x, (list, tuple)) else [x]
    if not variables:
        raise InvalidType(f"{layer}: {argument} must hold one Variable or more, got {x!r}.")
    for variable in variables:
        check_variable(variable, argument, layer)
    return variables


TENSORS = {
    "Variable": check_variable,
    "Floats": check_float,
    "Integers": check_integers,
    "Int64": _holding({VarType.INT64}, "int64"),
}
_CHECKS: dict[str, Callable[[Any, str, str], Any]] = {
    **TENSORS,
    "bool": flag,
    "int": integer,
    "float": number,
    "Generator": check_function,
    "Sequence[int]": partial(integers, count=0),
    "int | Sequence[int]": integers,
}


def _one_of(values: Sequence[Any]) -> Callable[[Any, str, str], None]:
    """Return a check that raises InvalidValue unless ``x`` is among several values."""
    *others, last = map(repr, values)
    text = f"{', '.join(others)} or {last}"

    def check(x: Any, argument: str, layer: str) -> None:
        if x not in values:
            raise InvalidValue(f"{layer}: {argument} must be {text}, got {x!r}.")

    return check


@cache
def _check_of(annotation: str) -> tuple[Callable[[Any, str, str], Any] | None, bool]:
    """Return the check that an annotation asks for, if any, and whether None will do, too."""
    kind, optional, _ = annotation.partition(" | None")
    if kind.startswith("Literal["):
        return _one_of(literal_eval(f"({kind.removeprefix('Literal')[1:-1]},)")), bool(optional)
    return _CHECKS.get(kind), bool(optional)


def _annotated(function: FunctionType) -> Iterator[tuple[int, str, str]]:
    """Yield the position, the name and the annotation of each parameter."""
    # That of another function. Reading a function's own code is much faster.
    if "__signature__" in vars(function):
        for position, parameter in enumerate(signature(function).parameters.values()):
            if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD:
                yield position, parameter.name, str(parameter.annotation)
            elif parameter.kind is Parameter.KEYWORD_ONLY:
                yield sys.maxsize, parameter.name, str(parameter.annotation)
        return
    code, annotations = function.__code__, function.__annotations__
    for position, name in enumerate(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        place = position if position < code.co_argcount else sys.maxsize
        yield place, name, str(annotations.get(name))


_CHECKED: WeakSet[Callable[..., Any]] = WeakSet()


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that refuses arguments that do not match their annotations (see above).

    A class is returned itself, with a constructor that refuses so; a function whose annotations ask for no
    check is returned unchanged.
    """
    if isinstance(function, type):
        construct = vars(function).get("__init__")
        if isinstance(construct, FunctionType):
            function.__init__ = checked(construct)  # type: ignore[misc]
        return function
    if not isinstance(function, FunctionType) or function in _CHECKED:
        return function
    name = "" if function.__name__ == "__init__" else function.__name__
    contract = []
    for place, argument, annotation in _annotated(function):
        check, optional = _check_of(annotation)
        if check is not None:
            contract.append((place, argument, check, optional))
    if not contract:
        return function

    @wraps(function)
    def layer(*args: Any, **settings: Any) -> Any:
        for position, argument, check, optional in contract:
            value = args[position] if position < len(args) else settings.get(argument, _LEFT_OUT)
            if value is not _LEFT_OUT and not (optional and value is None):
                check(value, argument, name or type(args[0]).__name__.removesuffix("Optimizer"))
        return function(*args, **settings)

    _CHECKED.add(layer)
    return layer


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def of_family(
    function: Callable[Concatenate[T, P], R],
    member: T,
    name: str = "",
    text: str = "",
    **defaults: Any,
) -> Callable[P, R]:
    """Return one layer of a family: ``function`` with ``member`` as its first argument.

    ``name`` is the layer's (default: ``member``), ``text`` its documentation (default: the function's, with the
    name in the place of ``{name}``); ``defaults`` are default values that differ from the function's.
    """
    assert isinstance(function, FunctionType)
    name = name or str(member)
    family = signature(function)
    parameters = [
        p.replace(default=defaults.get(p.name, p.default))
        for p in [*family.parameters.values()][1:]
    ]
    optional = [p for p in parameters if p.default is not p.empty]
    values = tuple(p.default for p in optional if p.kind is not p.KEYWORD_ONLY)
    code, namespace = function.__code__, function.__globals__
    own = FunctionType(code, namespace, name, values, function.__closure__)
    own.__kwdefaults__ = {p.name: p.default for p in optional if p.kind is p.KEYWORD_ONLY}
    own.__annotations__, own.__qualname__ = function.__annotations__, name
    call: Any = checked(own)

    @wraps(function)
    def layer(*args: P.args, **settings: P.kwargs) -> R:
        result: R = call(member, *args, **settings)
        return result

    layer.__name__ = layer.__qualname__ = name
    layer.__doc__ = text or (function.__doc__ or "").replace("{name}", name)
    layer.__signature__ = family.replace(parameters=parameters)  # type: ignore[attr-defined]
    _CHECKED.add(layer)
    return layer


def known_sizes(layer: str, input: Variable, dims: slice | int, sizes: str) -> list[int]:
    """Return sizes of a variable that a layer's parameters share; ``sizes`` names them in errors.

    Raises:
        InvalidValue: there are too few dimensions, or a size is unknown; the error names the op behind which
            sizes are unknown.
    """
    shape = list(input.shape or ())
    if isinstance(dims, int) and not -len(shape) <= dims < len(shape):
        raise InvalidValue(
            f"{layer}: {input.name!r}, of shape {shape}, has too few dimensions: {sizes} are missing."
        )
    wanted = shape[dims] if isinstance(dims, slice) else [shape[dims]]
    if min(wanted, default=0) >= 0:
        return wanted
    op, maker = input.op, None
    while op is not None and op is not maker:  # an op that keeps the shape did not lose them
        maker, operands = op, map(op.block.find_var_recursive, op.input_arg_names)
        op = next((x.op for x in operands if x is not None and list(x.shape or ()) == shape), None)
    cure = "Declare them."
    if maker is not None:
        place = f", built at {maker.where}" if maker.where else ""
        cure = f"They are unknown behind {maker.type}{place}: give it the numbers, or reshape its result."
    raise InvalidValue(
        f"{layer}: {sizes} of {input.name!r}, of shape {shape}, must be known: parameters have them. {cure}"
    )
