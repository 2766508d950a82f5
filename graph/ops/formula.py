"""The language of formulas: what an op computes, as a function of whole arrays.

A formula gets the record of an op whose slots are terms, and returns its results by field. It is written as one
writes NumPy::

    def instance_norm(a: InstanceNorm) -> Results:
        x_NCS = a.x.reshape(*a.x.shape[:2], -1)
        mean = x_NCS.mean(-1, keepdims=True)
        ...
        return {"y": y_NCS.reshape(a.x.shape), "saved_mean": mean.reshape(-1)}

Sizes are known: formulas are traced when an op is bound. What they return is a graph of terms, from which
``executor/codegen/array_program.py`` makes calls and loops for every back end. :func:`gradient` is the formula
of the gradient op: derived from that of the op, and so a formula itself, which has a derivative, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product, starmap
from typing import Any, NoReturn, cast

import numpy as np

from . import expr as e
from .operands import Array, Operands, Slot
from .slopes import FLAT, SLOPES

Results = Mapping[str, Any]  # field -> term; a list of them where the slot takes any number
Formula = Callable[[Any], Results]
_TRUTHS = FLAT - {"sign", "floor", "ceil", "trunc", "rint", "floor_divide"}


class Term(e.Arithmetic):
    """An array that is computed: a function of other terms, with its shape and element type.

    ``fn`` is a NumPy ufunc's name or ``where`` (element by element, operands broadcast), or one of these:

    ``arg`` (an operand), ``number``, ``table`` (an array known when the op is bound), ``unread`` (an operand of
    which a gradient op knows the shape alone), ``constant`` (no gradient passes), ``cast``;
    ``sum``, ``max``, ``min`` (axes keep size 1), ``argmax``;
    ``reshape``, ``transpose``, ``broadcast``, ``slice``, ``place`` (zeros, but for operands in the parts that
    ``slice`` would take), ``concat``;
    ``matmul``, ``inverse``, ``cholesky``, of stacks of matrices;
    ``rows`` (those of a stack of matrices that the second operand names), ``row_sums`` (sums of rows in the
    second operand by the numbers in the first), ``checked`` (whole numbers below a limit);
    ``offsets`` (a zero, and running sums behind it), ``segments`` (the number of each row's sequence) and
    ``segment_argmax`` (the row of the largest element by sequence and column).

    ``options`` say the rest. Operators take plain arrays, too, as a ``table``.
    """

    __slots__ = ("args", "dtype", "fn", "options", "shape")
    __array_ufunc__ = None  # leaves ``array + term`` to the term

    def __init__(
        self, fn: str, args: Sequence[Term], shape: Sequence[int], dtype: Any, options: Any = None
    ) -> None:
        self.fn, self.args, self.options = fn, tuple(args), options
        self.shape: tuple[int, ...] = tuple(map(int, shape))
        self.dtype = np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def T(self) -> Term:
        """The term with its dimensions reversed."""
        return self.transpose()

    def apply(self, fn: str, args: tuple[Any, ...]) -> Term:
        """Return a function of terms and numbers, element by element."""
        args = tuple(map(_tabled, args))
        kinds = [a.dtype if isinstance(a, Term) else a for a in args]
        dtype = np.result_type(*(kinds[1:] if fn == "where" else kinds))
        terms = [a if isinstance(a, Term) else Term("number", (), (), dtype, a) for a in args]
        if fn in _TRUTHS:
            dtype = np.dtype(np.bool_)
        shapes = {t.shape for t in terms if t.shape}
        shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
        plain = _plain(fn, terms, shape, dtype)
        return Term(fn, terms, shape, dtype) if plain is None else plain

    def reshape(self, *shape: Any) -> Term:
        """Return the elements in their order in another shape; one size may be -1."""
        sizes = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)
        if -1 in sizes:
            known = math.prod(n for n in sizes if n != -1)
            sizes[sizes.index(-1)] = self.size // known if known else 0
        if self.fn == "unread" and not self.shape:  # not even its shape is known
            return Term("unread", (), sizes, self.dtype)
        assert math.prod(sizes) == self.size, f"{self.shape} does not fill {sizes}"
        source = self.args[0] if self.fn == "reshape" else self
        return (
            source if tuple(sizes) == source.shape else Term("reshape", [source], sizes, self.dtype)
        )

    def transpose(self, *axes: Any) -> Term:
        """Return the dimensions in another order (reversed unless told)."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        order = tuple(a % self.ndim for a in order) or tuple(reversed(range(self.ndim)))
        if order == tuple(range(self.ndim)):
            return self
        return Term("transpose", [self], [self.shape[a] for a in order], self.dtype, order)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Term:
        """Return the sum over axes (all unless told)."""
        return self._reduced("sum", axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Term:
        """Return the largest along axes; equal ones share the gradient in full, each."""
        return self._reduced("max", axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Term:
        """Return the least along axes."""
        return self._reduced("min", axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Term:
        """Return the mean over axes; of nothing it is 0."""
        total = self.sum(axis, keepdims)
        return total * (1.0 / max(self.size // max(total.size, 1), 1))

    def argmax(self, axis: int) -> Term:
        """Return the position of the first of the largest along an axis, which goes."""
        axis %= self.ndim
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        return Term("argmax", [self], shape, np.int64, axis)

    def astype(self, dtype: Any) -> Term:
        """Return the elements in another type."""
        return self if self.dtype == dtype else Term("cast", [self], self.shape, dtype)

    def __getitem__(self, index: Any) -> Term:
        """Return what whole numbers, slices, ``None`` and ``...`` take."""
        items = list(index) if isinstance(index, tuple) else [index]
        dims = sum(i is not None and i is not Ellipsis for i in items)
        rest = [slice(None)] * (self.ndim - dims)
        at = items.index(Ellipsis) if Ellipsis in items else len(items)
        items[at : at + 1] = rest
        cuts, shape = [], []
        sizes = iter(self.shape)
        for item in items:
            if item is None:
                shape.append(1)
                continue
            n = next(sizes)
            if isinstance(item, slice):
                cuts.append(item.indices(n))
                shape.append(len(range(*cuts[-1])))
            else:
                assert -n <= item < n, f"{item} is outside {n}"
                cuts.append((item % n, item % n + 1, 1))
        return sliced(self, cuts).reshape(shape)

    def __matmul__(self, other: Any) -> Term:
        """Return products of matrices; leading dimensions broadcast."""
        other = _tabled(other)
        lead = np.broadcast_shapes(self.shape[:-2], other.shape[:-2])
        assert self.shape[-1] == other.shape[-2], f"{self.shape} @ {other.shape}"
        shape = (*lead, self.shape[-2], other.shape[-1])
        return Term("matmul", [self, other], shape, np.result_type(self.dtype, other.dtype))

    def __rmatmul__(self, other: np.ndarray) -> Term:
        return cast(Term, _tabled(other)) @ self

    def __bool__(self) -> NoReturn:
        raise TypeError("a term has no value yet")

    def _reduced(self, fn: str, axis: Any, keepdims: bool) -> Term:
        axes = range(self.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        axes = tuple(sorted({a % self.ndim for a in axes}))
        if fn == "sum" and self.fn == "broadcast":
            return self._repeated(axes, keepdims)
        shape = [1 if i in axes else n for i, n in enumerate(self.shape)]
        total = self
        if tuple(shape) != self.shape:
            total = Term(fn, [self], shape, self.dtype, axes)
        if keepdims:
            return total
        return total.reshape([n for i, n in enumerate(self.shape) if i not in axes])

    def _repeated(self, axes: tuple[int, ...], keepdims: bool) -> Term:
        """Return the sum of what is the same along some axes: as many times that."""
        source = self.args[0].reshape((1,) * (self.ndim - self.args[0].ndim) + self.args[0].shape)
        count = math.prod(self.shape[a] for a in axes if source.shape[a] == 1)
        total = source.sum([a for a in axes if source.shape[a] != 1], keepdims=True) * count
        shape = [1 if i in axes else n for i, n in enumerate(self.shape)]
        total = cast(Term, broadcast(cast(Array, total), shape))
        return total.reshape([n for i, n in enumerate(shape) if keepdims or i not in axes])


def _tabled(operand: Any) -> Any:
    """Return an array as a term; what is none as it is."""
    return table(operand) if isinstance(operand, np.ndarray) else operand


def _plain(fn: str, args: list[Term], shape: tuple[int, ...], dtype: Any) -> Term | None:
    """Return what a function of neutral numbers comes to without computing."""
    first, *others = args
    if fn == "positive":
        return first
    if not others or fn == "where":
        return None
    last = others[0]
    for x, y, sides in ((first, last, "+*-/"), (last, first, "+*")):
        neutral = {"add": ("+", 0), "multiply": ("*", 1), "subtract": ("-", 0), "divide": ("/", 1)}
        sign, number = neutral.get(fn, ("", 0))
        if sign and sign in sides and y.fn == "number" and y.options == number:
            return x if x.shape == shape and x.dtype == dtype else None
    return None


def _function(function: Callable[..., Any]) -> Callable[..., Array]:
    """Return a function of ``expr.py`` as one of arrays, which is what formulas take terms for."""
    return cast(Callable[..., Array], function)


absolute = _function(e.abs_)
equal = _function(e.equal)
exp = _function(e.exp)
floor = _function(e.floor)
floor_divide = _function(e.floor_divide)
log = _function(e.log)
log1p = _function(e.log1p)
maximum = _function(e.maximum)
minimum = _function(e.minimum)
not_equal = _function(e.not_equal)
sigmoid = _function(e.sigmoid)
sign = _function(e.sign)
softplus = _function(e.softplus)
sqrt = _function(e.sqrt)
tanh = _function(e.tanh)
where = _function(e.where)


def table(values: Any, dtype: Any = None) -> Array:
    """Return numbers that follow from shapes and attributes: indices, weights, masks."""
    array = np.asarray(values, dtype)
    return cast(Array, Term("table", (), array.shape, array.dtype, array))


def full(shape: Sequence[int], value: float, dtype: Any) -> Array:
    """Return an array of one number."""
    return broadcast(cast(Array, Term("number", (), (), dtype, value)), shape)


def broadcast(x: Array, shape: Sequence[int]) -> Array:
    """Return an array repeated to a shape, by NumPy's rule."""
    term = cast(Term, x)
    shape = tuple(shape)
    if term.shape == shape:
        return x
    return cast(Array, Term("broadcast", [term], shape, term.dtype))


def concatenate(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Return arrays behind each other along an axis."""
    terms = cast(Sequence[Term], arrays)
    if len(terms) == 1:
        return arrays[0]
    axis %= terms[0].ndim
    shape = list(terms[0].shape)
    shape[axis] = sum(t.shape[axis] for t in terms)
    dtype = np.result_type(*(t.dtype for t in terms))
    return cast(Array, Term("concat", terms, shape, dtype, axis))


def padded(x: Array, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Array:
    """Return an array with elements of one number before and behind it, by dimension."""
    shape = [low + n + high for n, (low, high) in zip(x.shape, widths, strict=True)]
    cuts = [(low, low + n, 1) for n, (low, _) in zip(x.shape, widths, strict=True)]
    inside = cast(Array, placed(cast(Term, x), cuts, shape))
    if not value:
        return inside
    mask = np.full(shape, value, x.dtype)
    mask[tuple(slice(*cut) for cut in cuts)] = 0
    return inside + table(mask)


def take(x: Array, index: Any, axis: int = 0) -> Array:
    """Return what whole numbers pick along an axis: their dimensions take its place.

    ``index`` is known when the op is bound, or a term: see :func:`checked`. Where there is nothing to pick
    from, a zero stands for each: of what no sequence has, a formula shows its padding.
    """
    term = cast(Term, x)
    at = index if isinstance(index, Term) else cast(Term, table(index, np.int64))
    axis %= term.ndim
    before, after = term.shape[:axis], term.shape[axis + 1 :]
    if not term.shape[axis]:
        term, at = cast(Term, full((*before, 1, *after), 0, term.dtype)), at * 0
    source = term.reshape(math.prod(before), term.shape[axis], math.prod(after))
    shape = (source.shape[0], at.size, source.shape[2])
    picked = Term("rows", [source, at.reshape(-1)], shape, term.dtype)
    return cast(Array, picked.reshape(*before, *at.shape, *after))


def turned(x: Array) -> Array:
    """Return matrices with their last two dimensions exchanged."""
    return x.transpose([*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def inverse(x: Array) -> Array:
    """Return the inverses of matrices; a step fails where there is none."""
    return cast(Array, Term("inverse", [cast(Term, x)], x.shape, x.dtype))


def cholesky(x: Array) -> Array:
    """Return lower triangles L of which x is L L^T; a step fails where there is none."""
    return cast(Array, Term("cholesky", [cast(Term, x)], x.shape, x.dtype))


def row_sums(index: Array, values: Array, rows: int) -> Array:
    """Return sums of rows by number: result[index[k]] is the sum of its values[k]; 0 without any."""
    first, second = cast(Term, index), cast(Term, values)
    after = second.shape[first.ndim :]
    total = _row_sums(first.reshape(-1), second.reshape(1, first.size, math.prod(after)), rows)
    return cast(Array, total.reshape(rows, *after))


def _row_sums(index: Term, values: Term, rows: int) -> Term:
    shape = (values.shape[0], rows, values.shape[2])
    return Term("row_sums", [index, values], shape, values.dtype)


def checked(index: Array, limit: int, what: str = "index", of: str = "rows", op: str = "") -> Array:
    """Return whole numbers that must lie in 0 .. ``limit`` - 1; a step fails otherwise.

    In the error ``what`` names a number, ``of`` the things that it counts, and ``op`` the op (default: the op
    that computes).
    """
    term = cast(Term, index)
    return cast(Array, Term("checked", [term], term.shape, term.dtype, (limit, what, of, op)))


def outside(op: str, limit: int, what: str = "index", of: str = "rows") -> str:
    """Return the sentence for a number, to stand in place of ``{}``, that is not in 0 .. ``limit`` - 1.

    Without ``of``, ``what`` tells all.
    """
    if not of:
        return f"{op}: {what} {{}}"
    extent = f" (0 to {limit - 1})" if limit else ""
    return f"{op}: {what} {{}} is outside the {limit} {of}{extent}"


def offsets(lengths: Array) -> Array:
    """Return where sequences of these lengths begin and end: a zero, and running sums, int64 [lengths + 1]."""
    term = cast(Term, lengths)
    return cast(Array, Term("offsets", [term.reshape(-1)], (term.size + 1,), np.int64))


def lengths(offsets: Array) -> Array:
    """Return how many rows each sequence has."""
    return offsets[1:] - offsets[:-1]


def sequence_of(offsets: Array, rows: int, what: str = "X") -> Array:
    """Return the number of the sequence that each of so many rows belongs to, int64 [rows].

    A step fails if the sequences do not end where the rows of ``what`` do.
    """
    return cast(Array, Term("segments", [cast(Term, offsets)], (rows,), np.int64, what))


def row_of_largest(offsets: Array, x: Array) -> Array:
    """Return, by sequence and column, the first row that has the largest element; -1 of no rows.

    ``x`` is [rows, columns], the result int64 [sequences, columns].
    """
    terms = [cast(Term, offsets), cast(Term, x)]
    shape = (terms[0].shape[0] - 1, terms[1].shape[1])
    return cast(Array, Term("segment_argmax", terms, shape, np.int64))


def constant(x: Array) -> Array:
    """Return an array through which no gradient passes."""
    term = cast(Term, x)
    return cast(Array, Term("constant", [term], term.shape, term.dtype))


def sliced(x: Term, cuts: Sequence[tuple[int, int, int]]) -> Term:
    """Return what (start, stop, step) takes of each dimension."""
    if all(cut == (0, n, 1) for cut, n in zip(cuts, x.shape, strict=True)):
        return x
    return Term("slice", [x], [len(range(*cut)) for cut in cuts], x.dtype, tuple(cuts))


def placed(x: Term, cuts: Sequence[tuple[int, int, int]], shape: Sequence[int]) -> Term:
    """Return zeros of a shape, with an array where (start, stop, step) leads in each dimension."""
    if tuple(shape) == x.shape and all(c == (0, n, 1) for c, n in zip(cuts, shape, strict=True)):
        return x
    return Term("place", [x], shape, x.dtype, (tuple(cuts),))


def _added(x: Term, y: Term) -> Term:
    """Return a sum; what lies beside each other in zeros is not added."""
    both = x.fn == y.fn == "place"
    if not both or any(starmap(_overlap, product(x.options, y.options))):
        total: Term = x + y
        return total
    cuts = (*x.options, *y.options)
    return Term("place", (*x.args, *y.args), x.shape, np.result_type(x.dtype, y.dtype), cuts)


def _overlap(first: Sequence[tuple[int, int, int]], second: Sequence[tuple[int, int, int]]) -> bool:
    """Tell whether two parts of an array may have elements in common."""
    return all(
        min(a[2], b[2]) < 0 or (a[0] < b[1] and b[0] < a[1])
        for a, b in zip(first, second, strict=True)
    )


def slices(cuts: Iterable[tuple[int, int, int]]) -> tuple[slice, ...]:
    """Return (start, stop, step) as subscripts; a range that goes down to the first ends with None."""
    return tuple(slice(start, None if stop < 0 else stop, step) for start, stop, step in cuts)


def fitted(d: Term, shape: tuple[int, ...]) -> Term:
    """Sum a gradient over the dimensions along which an operand of this shape was repeated."""
    extra = d.ndim - len(shape)
    padded_shape = (1,) * extra + shape
    axes = [i for i, (n, m) in enumerate(zip(d.shape, padded_shape, strict=True)) if n != m]
    return (d.sum(axes, keepdims=True) if axes else d).reshape(shape)


def _of_extreme(d: Term, out: Term, x: Term) -> tuple[Term, ...]:
    return (e.where(e.equal(x, out), d, 0),)


def _of_matmul(d: Any, out: Any, x: Any, y: Any) -> tuple[Term, ...]:
    return fitted(d @ turned(y), x.shape), fitted(turned(x) @ d, y.shape)


def _of_cholesky(d: Any, out: Any, x: Any) -> tuple[Term, ...]:
    """Smith's rule: L^-T P(L^T dL) L^-1, symmetric. P halves the diagonal of the lower triangle."""
    n = out.shape[-1]
    half: Any = table(np.tril(np.ones((n, n)), -1) + np.eye(n) * 0.5, out.dtype)
    slope: Any = turned(inverse(out)) @ ((turned(out) @ d) * half) @ inverse(out)
    return ((slope + turned(slope)) * 0.5,)


def _of_concat(d: Term, out: Term, *args: Term) -> tuple[Term, ...]:
    parts, start = [], 0
    for arg in args:
        end = start + arg.shape[out.options]
        parts.append(
            sliced(
                d,
                [(start, end, 1) if i == out.options else (0, n, 1) for i, n in enumerate(d.shape)],
            )
        )
        start = end
    return tuple(parts)


_MOVED: Mapping[str, Callable[..., tuple[Any, ...]]] = {
    "sum": lambda d, out, x: (broadcast(d, x.shape),),
    "max": _of_extreme,
    "min": _of_extreme,
    "reshape": lambda d, out, x: (d.reshape(x.shape),),
    "transpose": lambda d, out, x: (d.transpose([out.options.index(i) for i in range(x.ndim)]),),
    "broadcast": lambda d, out, x: (fitted(d, x.shape),),
    "slice": lambda d, out, x: (placed(d, out.options, x.shape),),
    "place": lambda d, out, *parts: tuple(sliced(d, cuts) for cuts in out.options),
    "cast": lambda d, out, x: (d.astype(x.dtype),),
    "concat": _of_concat,
    "matmul": _of_matmul,
    "inverse": lambda d, out, x: (-(turned(out) @ d @ turned(out)),),
    "cholesky": _of_cholesky,
    "rows": lambda d, out, x, index: (_row_sums(index, d, x.shape[1]), None),
    "row_sums": lambda d, out, index, values: (
        None,
        Term("rows", [d, index], values.shape, values.dtype),
    ),
}
_ENDS = FLAT | {
    *("arg", "unread", "number", "table", "constant", "checked", "argmax"),
    *("offsets", "segments", "segment_argmax"),
}


def in_order(roots: Iterable[Term]) -> list[Term]:
    """Return the terms that roots are made of, each behind its operands."""
    ordered: dict[Term, None] = {}
    waiting = list(roots)[::-1]
    while waiting:
        term = waiting[-1]
        if term not in ordered:
            before = len(waiting)
            for arg in reversed(term.args):
                if arg not in ordered:
                    waiting.append(arg)
            if len(waiting) > before:
                continue
            ordered[term] = None
        waiting.pop()
    return list(ordered)


def slopes_of(seeds: Sequence[tuple[Term, Term]], operands: Sequence[Term]) -> list[Term | None]:
    """Return the gradients of sum(output * seed) for terms; None where outputs do not depend on one."""
    order = in_order(output for output, _ in seeds)
    depends = {id(term) for term in operands}
    for term in order:
        if term.fn not in _ENDS and any(id(arg) in depends for arg in term.args):
            depends.add(id(term))
    gradients: dict[int, Term] = {}

    def add(term: Term, d: Term) -> None:
        known = gradients.get(id(term))
        gradients[id(term)] = d if known is None else _added(known, d)

    for output, seed in seeds:
        if id(output) in depends:
            add(output, seed)
    for term in reversed(order):
        d = gradients.get(id(term))
        if d is None or not any(id(arg) in depends for arg in term.args) or term.fn in _ENDS:
            continue
        move = _MOVED.get(term.fn)
        if move is not None:
            parts = move(d, term, *term.args)
        else:
            values = [arg.options if arg.fn == "number" else arg for arg in term.args]
            parts = SLOPES[term.fn](d, term, *values)
        for arg, part in zip(term.args, parts, strict=True):
            if part is not None and id(arg) in depends:
                add(arg, part if move is not None else fitted(part, arg.shape))
    return [gradients.get(id(term)) for term in operands]


def substituted(roots: Sequence[Term], known: Mapping[int, Term]) -> list[Term]:
    """Return terms with the ``known`` replacement, by identity, of each term in them."""
    changed: dict[int, Term] = dict(known)
    for term in in_order(roots):
        if id(term) not in changed:
            args = [changed[id(arg)] for arg in term.args]
            same = all(a is b for a, b in zip(args, term.args, strict=True))
            new = Term(term.fn, args, term.shape, term.dtype, term.options)
            changed[id(term)] = term if same else new
    return [changed[id(root)] for root in roots]


def gradient(forward: Formula, record: type[Operands]) -> Formula:
    """Return the formula of a gradient op, derived from the op's formula and record.

    The gradient op's record has the op's attributes and, under the same names, those of its operands and
    results that it reads: a result that it reads is not computed again.
    """
    declared = record.declared()

    def derived(a: Operands) -> Results:
        fields = vars(a)
        operands = {
            slot.parameter: _operand(slot, fields) for slot in (*declared.inputs, *declared.outputs)
        }
        results = forward(record.of({**fields, **operands}))
        seeds, known = [], dict[int, Term]()
        for field in (slot.parameter for slot in declared.outputs):
            seeds += _pairs(results.get(field), fields.get(f"d_{field}"))
            for term, value in _pairs(results.get(field), fields.get(field)):
                if term.fn != "arg":
                    known |= _sources(term, value)
        targets = {
            (slot.parameter, k): operand
            for slot in declared.inputs
            for k, (operand, d) in enumerate(
                _together(operands[slot.parameter], fields.get(f"d_{slot.parameter}"))
            )
            if d is not None
        }
        slopes = [
            cast(Term, full(operand.shape, 0, operand.dtype)) if d is None else d
            for operand, d in zip(
                targets.values(), slopes_of(seeds, list(targets.values())), strict=True
            )
        ]
        by_place = dict(zip(targets, substituted(slopes, known), strict=True))
        return {
            f"d_{slot.parameter}": [
                by_place.get((slot.parameter, k)) for k, _ in enumerate(operands[slot.parameter])
            ]
            if slot.duplicable
            else by_place.get((slot.parameter, 0))
            for slot in declared.inputs
        }

    return derived


def _operand(slot: Slot, fields: Mapping[str, Any]) -> Any:
    """Return what the forward formula reads in a slot: values, or stand-ins where a gradient op reads none."""
    values, slopes = fields.get(slot.parameter), fields.get(f"d_{slot.parameter}")
    if slot.duplicable:
        return values or [_unread(d) for d in slopes or []]
    if values is None and (slopes is not None or not slot.optional):
        return _unread(slopes)
    return values


def _unread(d: Any) -> Term:
    """Return an operand that a gradient op does not read: of the shape of its gradient, if that is wanted."""
    shape, dtype = ((), np.float32) if d is None else (d.shape, d.dtype)
    return Term("unread", (), shape, dtype)


def _listed(field: Any) -> list[Any]:
    return list(field) if isinstance(field, (list, tuple)) else [field]


def _together(first: Any, second: Any) -> Iterable[tuple[Any, Any]]:
    return zip(_listed(first), _listed(second), strict=False)


def _pairs(first: Any, second: Any) -> list[tuple[Any, Any]]:
    """Return what stands in two fields together, of lists or single values, where both are in use."""
    return [(x, y) for x, y in _together(first, second) if x is not None and y is not None]


def _sources(term: Term, value: Term) -> dict[int, Term]:
    """Return what a result that is read stands for: the term, and what it is a view of all of."""
    known = {id(term): value}
    while term.fn in ("reshape", "transpose") and term.args[0].fn not in ("arg", "unread"):
        if term.fn == "transpose":
            value = value.transpose([term.options.index(i) for i in range(term.ndim)])
        term = term.args[0]
        value = value.reshape(term.shape)
        known[id(term)] = value
    return known
