"""Shape rules that many declarations share."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from ...strategies.errors import InvalidValue
from ...strategies.types import FLOATS, INTEGERS, LOW, VarType
from .operands import Operands
from .registry import Inference, ShapeRule, Spec, Specs
from .sizes import Expression, as_size, expression

UNKNOWN_SIZE = -(2**63)  # a size, in a variable, that is known only when the program runs


def same(source: str = "X", *outputs: str) -> ShapeRule:
    """Outputs (``Out`` unless named) have the shape and dtype of input ``source``."""

    def rule(op: Inference) -> Mapping[str, Specs]:
        return dict.fromkeys(outputs or ("Out",), op.spec(source))

    return rule


def as_declared(op: Inference) -> Mapping[str, Specs]:
    """Results have the shapes that the program declares: a block around, or another host, decides them."""
    return {}


def merge_dims(a: int, b: int) -> int | None:
    """Return the size two dimensions agree on (-1 agrees with anything), or None."""
    if a == b or b == -1:
        return a
    return b if a == -1 else None


def is_column(shape: Sequence[int]) -> bool:
    """Tell whether a tensor has one element in a row: [N] or [N, 1], sizes of -1 being unknown."""
    return len(shape) == 1 or (len(shape) == 2 and shape[1] in (1, -1))


def same_shape(op: Inference, x: str, y: str) -> tuple[int, ...]:
    """Return the shape that two inputs agree on; refuse the op if they differ."""
    left, right = op.shape(x), op.shape(y)
    dims = [merge_dims(a, b) for a, b in zip(left, right, strict=False)]
    op.require(
        len(left) == len(right) and None not in dims, f"{x} and {y} must have the same shape"
    )
    return tuple(d for d in dims if d is not None)


def match(
    op: Inference, numbers: Mapping[str, Any] | None = None, /, **shapes: str | Sequence[int | str]
) -> dict[str, Any]:
    """Return the sizes that words stand for in inputs of these shapes; refuse others.

    ``match(op, {"classes": count}, X="N C", Label="N 1", Weight="classes C")``: a word is a size, one of
    ``numbers`` or the same wherever it stands; ``4*C`` and ``C+1`` are made of such, ``*rest`` are several.
    ``...`` stands for any number of sizes, the same wherever it stands, ``1?`` at the end for a
    dimension of one element that may be missing. Sizes of -1 fit anything. Inputs that are not in use are
    passed over.
    """
    sizes = dict(numbers or {})
    operands = [(slot, spec.shape) for slot in shapes if op.has(slot) for spec in op.specs(slot)]
    again: list[tuple[str, tuple[int, ...]]] = []  # words of a product may stand further on
    several: set[str] = set()  # words that stand for several sizes
    for slot, shape in chain(operands, again):
        form = shapes[slot]
        words = form.split() if isinstance(form, str) else [*map(str, form)]
        for word in words:
            if word == "..." or (word[0] == "*" and word[1:] not in sizes):
                sizes.setdefault(word, len(shape) - len(words) + 1)
                several.add(word)
        spread = spread_words(words, sizes)
        if words[-1] == "1?":
            spread[-1:] = ["1"] * (len(shape) == len(spread))
        fits = len(spread) == len(shape)
        for word, size in zip(spread, shape, strict=False):
            number = size_of(word, sizes)
            if number < 0 and (slot, shape) not in again and _expression(word):
                again.append((slot, shape))
            merged = merge_dims(number, size)
            fits = fits and merged is not None
            sizes[word] = number if merged is None else merged
        if not fits:
            op.fail(f"{slot} must {_described(words, spread, shape, sizes)}")
    for word in several - {"..."}:
        sizes[word[1:]] = tuple(sizes[each] for each in spread_words([word], sizes))
    return sizes


def _described(
    words: Sequence[str], spread: Sequence[str], shape: Sequence[int], sizes: Mapping[str, Any]
) -> str:
    """Return what a shape does not fit, for errors: words, and the sizes they have."""
    names = [w for w in dict.fromkeys(words) if re.search("[a-zA-Z]", w) and w[0] != "*"]
    known = ", ".join(f"{name} = {sizes[name]}" for name in names if sizes.get(name, -1) >= 0)
    shown = [str(sizes[w]) if w.startswith(("...", "*")) else w for w in spread]
    text = f"[{', '.join(shown)}]{f', where {known}' if known else ''}"
    if spread[1:] == ["1"]:
        return f"have {'as many rows' if shape[1:] == (1,) else 'one number in a row'}: {text}"
    if len(spread) == 1 != len(shape):
        return f"be a vector {text}"
    return f"be {text}" if len(spread) == len(shape) else f"be {text}: {len(spread)} dimensions"


def spread_words(words: Sequence[str], sizes: Mapping[str, Any]) -> list[str]:
    """Return words with one for each of the sizes that ``...`` and words behind a star stand for."""
    spread: list[str] = []
    for word in words:
        if word in sizes and (word == "..." or word[0] == "*"):
            spread.extend(f"{word}{i}" for i in range(sizes[word]))
        elif word[0] == "*":
            spread.extend(str(int(size)) for size in sizes[word[1:]])
        else:
            spread.append(word)
    return spread


@cache
def _expression(word: str) -> Expression | None:
    """Return the expression of a word that is neither a name nor a number."""
    return expression(word) if re.search(r"[\w)][*+/-]", word) else None


def size_of(word: str, sizes: Mapping[str, Any]) -> int:
    """Return the size that a word, or an expression of words, stands for (-1: not known)."""
    terms = _expression(word)
    if terms is None:
        return int(word) if word.lstrip("-").isdigit() else sizes.get(word, -1)
    size = int(terms.value(*(as_size(sizes.get(name, -1)) for name in terms.names)))
    return sizes.get(word, -1) if size < 0 else size


def known_operands(op: Inference, record: type[Operands], reads: str = "") -> Operands | None:
    """Return the record of an op's operands, offsets and attributes; None if some elements are not known yet.

    ``reads`` are the fields that are needed; all, unless told. This serves ops whose results have sizes that
    follow from elements (``reads_values``), and that compute both alike.
    """
    values: dict[str, Any] = {}
    for slot in record.declared().read(reads):
        elements = op.values(slot.name) if op.has(slot.name) else ()
        if any(value is None for value in elements) or len(elements) < op.count(slot.name):
            return None
        values[slot.parameter] = list(elements) if slot.duplicable else next(iter(elements), None)
    return record.of({**op.attrs, **values})


def are_classes(labels: np.ndarray, count: int) -> np.ndarray:
    """Tell which labels are numbers of classes, 0 to ``count`` - 1, when they are cut to whole ones."""
    return np.asarray((labels > -1) & (labels < count))


def check_classes(labels: np.ndarray, count: int, slot: str, attr: str) -> None:
    """Refuse labels that are no numbers of ``count`` classes, as the attribute ``attr`` tells.

    Raises:
        InvalidValue: it names the first such label, and its row.
    """
    labels = labels.reshape(-1)
    for k in np.flatnonzero(~are_classes(labels, count))[:1]:
        raise InvalidValue(
            f"{slot} has class {labels[k]:g} in row {k}, and {attr}={count}: classes are 0 to {count - 1}"
        )


def one_dtype(op: Inference, *slots: str) -> None:
    """Refuse inputs of different types, of those in use."""
    types = {spec.dtype for slot in filter(op.has, slots) for spec in op.specs(slot)}
    op.require(len(types) <= 1, f"{', '.join(dict.fromkeys(slots))} must have one dtype")


def hold_floats(op: Inference, *slots: str) -> None:
    """Refuse inputs, of those in use, that do not hold floats of one type."""
    if len(slots) > 1:
        one_dtype(op, *slots)
    _hold(op, slots, FLOATS, "floats: cast it first")


def hold_integers(op: Inference, *slots: str) -> None:
    """Refuse inputs, of those in use, that do not hold integers."""
    _hold(op, slots, INTEGERS, "integers")


def hold_numbers(op: Inference, *slots: str) -> None:
    """Refuse inputs, of those in use, that hold neither floats nor integers."""
    _hold(op, slots, (*FLOATS, *INTEGERS), "numbers")


def _hold(op: Inference, slots: Sequence[str], types: Collection[VarType], what: str) -> None:
    for slot in filter(op.has, slots):
        fits = all(spec.dtype in types for spec in op.specs(slot))
        op.require(fits, f"{slot} must hold {what}")


def one_level(op: Inference, slot: str) -> None:
    """Refuse sequences of sequences."""
    levels = op.specs(f"{slot}@LOD") if op.has(f"{slot}@LOD") else ()
    op.require(len(levels) <= 1, f"{slot} must have one level of sequences, has {len(levels)}")


def normal_axis(op: Inference, axis: int, rank: int, *, extra: int = 0) -> int:
    """Return ``axis`` counted from the front; refuse one outside ``rank`` (+ ``extra``) dimensions."""
    limit = rank + extra
    op.require(-limit <= axis < max(limit, 1), f"axis {axis} is outside the {rank} dimensions")
    return axis + limit if axis < 0 else axis


def as_many(op: Inference, **lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return tuples of the elements at the same index of lists; refuse lists of different lengths."""
    listed = ", ".join(f"{name}={list(numbers)}" for name, numbers in lists.items())
    same_length = len({len(numbers) for numbers in lists.values()}) == 1
    op.require(same_length, f"{listed} must have as many numbers each")
    return list(zip(*lists.values(), strict=True))


def product(dims: tuple[int, ...]) -> int:
    """Return the product of sizes, -1 if any of them is unknown."""
    total = 1
    for dim in dims:
        if dim < 0:
            return -1
        total *= dim
    return total


def statistic(dtype: VarType) -> VarType:
    """Return the element type of what is kept about elements of ``dtype``: low precision is too coarse."""
    return VarType.FP32 if dtype in LOW else dtype


def sizes_read(op: Inference, whole: str, each: str, declared: Sequence[int]) -> list[int | None]:
    """Return sizes from the elements of a tensor, or from one element of each of several; None: not known yet.

    Without a tensor they are the sizes that the op declares. Beside several tensors the op declares the sizes
    that the program knows; beside one, sizes above 0 hold until the tensor is known.
    """
    if op.has(each):
        values = [op.value(each, k) for k in range(len(op.specs(each)))]
        known = declared if len(declared) == len(values) else [-1] * len(values)
        return [
            int(np.ravel(value)[0]) if value is not None else number if number >= 0 else None
            for value, number in zip(values, known, strict=True)
        ]
    if not op.has(whole):
        return list(declared)
    value, (count,) = op.value(whole), op.shape(whole)
    if value is None:
        if count >= 0 and count != len(declared):
            return [None] * count
        return [size if size > 0 else None for size in declared]
    sizes: list[int | None] = np.ravel(value).tolist()
    return sizes


def of_shape(shape: tuple[int, ...], like: Spec) -> Spec:
    """Return ``like`` with another shape."""
    return Spec(shape, like.dtype)
