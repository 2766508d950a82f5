"""Arithmetic of sizes, as lines of shape rules write it (``shapes.py``): of attributes, sizes and shapes.

Expressions are Python's: ``prod(X[axis:]) + groups``, but that ``C / groups`` is refused unless it is whole.
Sizes that only the running program knows take part: what is computed of them is not known either, and a
comparison with them is not decided.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from math import prod
from typing import Any, NoReturn


class Undecided(Exception):
    """A comparison with a size that is not known yet."""


class _Open:
    """What a comparison with a size that is not known yet comes to."""

    def __bool__(self) -> NoReturn:
        raise Undecided


_OPEN = _Open()


class Unknown(int):
    """A size that is not known yet, -1."""

    def _computed(self, *others: Any) -> Unknown:
        return self

    def _compared(self, *others: Any) -> Any:
        return _OPEN

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _computed
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = __neg__ = (
        _computed
    )
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compared
    __bool__ = _Open.__bool__
    __hash__ = int.__hash__


UNKNOWN = Unknown(-1)


def as_size(size: int) -> int:
    """Return a size for expressions, in which -1 is none."""
    return UNKNOWN if size < 0 else size


def known(size: int) -> bool:
    """Tell whether a size is known."""
    return not isinstance(size, Unknown)


def plain(value: Any) -> Any:
    """Return what an expression comes to, in which -1 stands for sizes that are not known."""
    several = isinstance(value, (tuple, list))
    return tuple(map(plain, value)) if several else value if known(value) else -1


def front(axis: int, shape: Sequence[int]) -> int:
    """Return a dimension counted from the front; one that ``shape`` does not have is a ValueError."""
    if not -len(shape) <= axis < max(len(shape), 1):
        raise ValueError(f"axis {axis} is outside the {len(shape)} dimensions")
    return axis + len(shape) if axis < 0 else axis


def every(values: Iterable[Any]) -> Any:
    """Tell whether all values are true: one that is not decides, whatever is not known of others."""
    several = list(values)
    return all(value for value in several if value is not _OPEN) and (_OPEN not in several or _OPEN)


def quotient(whole: int, divisor: int, text: str) -> int:
    """Return how often a number has another one as its factor; one that has not is a ValueError."""
    if not (known(whole) and known(divisor)):
        return UNKNOWN
    if divisor == 0 or whole % divisor:
        raise ValueError(text.format(whole, divisor))
    return whole // divisor


class _Quotients(ast.NodeTransformer):
    """Puts :func:`quotient` in the place of divisions."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if not isinstance(node.op, ast.Div):
            return self.generic_visit(node)
        whole, divisor = ast.unparse(node.left), ast.unparse(node.right)
        text = ast.Constant(f"{whole} = {{}} does not divide by {divisor} = {{}}")
        return ast.Call(
            ast.Name("quotient", ast.Load()), [*map(self.visit, (node.left, node.right)), text], []
        )


_FUNCTIONS: dict[str, Any] = {
    "__builtins__": {},
    **{f.__name__: f for f in (abs, any, enumerate, len, max, min, range, set, sorted, sum, zip)},
    **{f.__name__: f for f in (every, front, known, prod, quotient)},
}


class Expression:
    """A text in Python's syntax, computed of the values of its ``names``.

    ``sequences(X)`` is the name ``sequences_X``.
    """

    def __init__(self, text: str) -> None:
        text = re.sub(r"sequences\((\w+)\)", r"sequences_\1", text)
        self._tree = ast.parse(text, mode="eval").body
        self.names, self.text = _names(self._tree), _shown(text)
        body = _Quotients().visit(ast.parse(text, mode="eval").body) if "/" in text else self._tree
        names = ast.arguments([], [ast.arg(name) for name in self.names], None, [], [], None, [])
        function = ast.fix_missing_locations(ast.Expression(ast.Lambda(names, body)))
        # Texts are declarations' own; no one else's come here.
        self.value = eval(compile(function, text, "eval"), _FUNCTIONS)

    def explained(self, value_of: Callable[[str], Any]) -> str:
        """Return what its parts come to: names, and what is taken or counted of them."""
        lists = [name for name in self.names if isinstance(value_of(name), list)]
        values: dict[str, Any] = {}
        for text in (*_parts(self._tree), *lists):
            part = expression(text)
            with suppress(Undecided, IndexError, TypeError, ValueError):  # what has no value
                values[_shown(text)] = part.value(*map(value_of, part.names))
        return ", ".join(f"{text} = {value!r}" for text, value in values.items())


@cache
def expression(text: str) -> Expression:
    """Return the expression of a text."""
    return Expression(text)


def _shown(text: str) -> str:
    return re.sub(r"sequences_(\w+)", r"sequences(\1)", text)


def _names(tree: ast.AST) -> tuple[str, ...]:
    """Return the names of values: functions have their own, as ``min`` of an attribute ``min`` has."""
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in functions]
    own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return tuple(dict.fromkeys(name.id for name in names if name.id not in own))


def _parts(node: ast.AST) -> Iterable[str]:
    """Yield the parts of an expression whose values explain it."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("every", "any"):
        yield from _names(node)
    elif not isinstance(node, (ast.Name, ast.Call, ast.Subscript, ast.comprehension)):
        for part in ast.iter_child_nodes(node):
            yield from _parts(part)
    elif _names(node):
        yield ast.unparse(node)
