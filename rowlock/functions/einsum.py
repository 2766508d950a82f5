"""``paddle.einsum``: products of tensors summed over some dimensions, made of transpose, reshape and matmul."""

from __future__ import annotations

import string
from collections.abc import Sequence

from ..graph.layers import shape as layers
from ..graph.layers.arguments import check_variable
from ..graph.ops.rules import product
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue, Unsupported, require_type
from .manipulation import reshape, transpose
from .math import matmul


def einsum(equation: str, *operands: Variable) -> Variable:
    """Products of operands with the sum over labels that the result lacks, such as "bij,jk->bik".

    A label stands for a dimension, ``...`` for those that remain. Without ``->`` the result has the labels that
    occur once, in order. A result without dimensions has shape [1]. Operands are joined from left to right.

    Raises:
        InvalidType: the equation is no str, or an operand no Variable.
        InvalidValue: the equation does not fit the operands, or a label has several sizes.
        Unsupported: a label occurs twice in an operand, or unknown sizes would be joined into one dimension.
    """
    require_type(equation, str, "einsum: equation must be a str")
    for x in operands:
        check_variable(x, "operands", "einsum")
    labels, result = _parse(equation, operands)
    _check_sizes(equation, labels, operands)
    pairs = list(zip(operands, labels, strict=True))
    x, have = pairs[0]
    for i, (y, other) in enumerate(pairs[1:], 1):
        rest = set(result).union(*labels[i + 1 :])
        x, have = _joined(equation, (x, have), (y, other), rest)
    x, have = _summed(x, have, set(result))
    if not result:
        return reshape(x, [1])
    order = [have.index(label) for label in result]
    return x if order == sorted(order) else transpose(x, order)


def _parse(equation: str, operands: Sequence[Variable]) -> tuple[list[str], str]:
    """Return the labels of the operands and of the result; ``...`` becomes letters that no label is."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise InvalidValue(
            f"einsum: {equation!r} is of {len(terms)} operands, got {len(operands)}."
        )
    free = [letter for letter in string.ascii_letters if letter not in equation]
    dots = max(
        (
            x.ndim - len(t.replace("...", ""))
            for t, x in zip(terms, operands, strict=True)
            if "..." in t
        ),
        default=0,
    )
    rest = "".join(free[:dots])
    labels = []
    for term, x in zip(terms, operands, strict=True):
        count = x.ndim - len(term.replace("...", ""))
        if count < 0 or (count and "..." not in term):
            raise InvalidValue(f"einsum: {term!r} of {equation!r} does not fit {x!r}.")
        full = term.replace("...", rest[len(rest) - count :])
        if len(set(full)) < len(full):
            raise Unsupported(
                f"einsum: a label occurs twice in {term!r}. Take paddle.diagonal first."
            )
        labels.append(full)
    every = "".join(labels)
    once = "".join(sorted(label for label in set(every) - set(rest) if every.count(label) == 1))
    result = right.replace("...", rest) if arrow else rest + once
    if not set(result) <= set(every) or len(set(result)) < len(result):
        raise InvalidValue(f"einsum: {right!r} of {equation!r} has labels twice, or of no operand.")
    return labels, result


def _check_sizes(equation: str, labels: Sequence[str], operands: Sequence[Variable]) -> None:
    sizes: dict[str, int] = {}
    for term, x in zip(labels, operands, strict=True):
        for label, size in zip(term, x.shape or (), strict=True):
            if size > 0 and sizes.setdefault(label, size) != size:
                raise InvalidValue(
                    f"einsum: {label!r} of {equation!r} has {sizes[label]} elements and, in {x!r}, {size}."
                )


def _summed(x: Variable, have: str, keep: set[str]) -> tuple[Variable, str]:
    """Sum over the labels that are not wanted."""
    axes = [i for i, label in enumerate(have) if label not in keep]
    if not axes:
        return x, have
    rest = "".join(label for label in have if label in keep)
    return layers.reduce_sum(x, dim=axes), rest


def _joined(
    equation: str, left: tuple[Variable, str], right: tuple[Variable, str], keep: set[str]
) -> tuple[Variable, str]:
    """Return the product of two operands: a matmul of [batch..., rows, sum] and [batch..., sum, columns]."""
    (x, of_x), (y, of_y) = (
        _summed(*left, keep | set(right[1])),
        _summed(*right, keep | set(left[1])),
    )
    both = [label for label in of_x if label in of_y]
    batch = [label for label in both if label in keep]
    total = [label for label in both if label not in keep]
    rows = [label for label in of_x if label not in both]
    columns = [label for label in of_y if label not in both]
    sizes = dict(zip(of_y, y.shape or (), strict=True)) | dict(
        zip(of_x, x.shape or (), strict=True)
    )
    a = _matrices(equation, x, of_x, batch, (rows, total), sizes)
    b = _matrices(equation, y, of_y, batch, (total, columns), sizes)
    out = matmul(a, b)
    if len(rows) == len(columns) == 1:
        return out, "".join(batch + rows + columns)
    inner = [sizes[label] for label in rows + columns]
    if sum(size < 0 for size in inner) > 1:
        raise _unknown(equation, rows + columns)
    shape = [0] * len(batch) + inner
    return reshape(out, shape or [1]), "".join(batch + rows + columns)


def _matrices(
    equation: str,
    x: Variable,
    have: str,
    batch: list[str],
    sides: tuple[list[str], list[str]],
    sizes: dict[str, int],
) -> Variable:
    """Return x with its dimensions in the order batch, first side, second side, each side as one."""
    order = [have.index(label) for label in batch + sides[0] + sides[1]]
    x = x if order == sorted(order) else transpose(x, order)
    if len(sides[0]) == len(sides[1]) == 1:
        return x
    sizes_of = [[sizes[label] for label in side] for side in sides]
    if sum(size < 0 for side in sizes_of for size in side) > 1:
        raise _unknown(equation, sides[0] + sides[1])
    matrix = [-1 if min(side, default=1) < 0 else product(tuple(side)) for side in sizes_of]
    return reshape(x, [0] * len(batch) + matrix)


def _unknown(equation: str, labels: list[str]) -> Unsupported:
    return Unsupported(
        f"einsum: {equation!r} joins dimensions {', '.join(labels)}, of which several have no known size. "
        f"Declare the data with sizes."
    )


publish_definitions(__name__)
