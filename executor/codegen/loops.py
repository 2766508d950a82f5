"""Several scalar expressions over the same elements as one compiled loop.

Operands broadcast to the loop's shape by strides of 0, results may be summed over dimensions in which they have
size 1. Dimensions are ordered as the elements lie in memory and joined where all arrays allow it, so arrays
without gaps make one loop, whatever their layout. Sums are made in the same order every time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ...graph.ops.expr import Expr
from ...strategies.bounded_dict import BoundedDict
from ...strategies.types import BFLOAT16
from ..host.writes import address
from . import native
from .dimensions import Memory, collapse, number_of, strides_of
from .scalar_math import definitions
from .scalar_source import Writer

Outputs = Sequence[tuple[Expr, Any]]
_CHUNK = 1024  # elements that are summed in float32 before the sum is added up in float64
_SOURCES_KEPT = 4096
_sources: BoundedDict[tuple[Any, ...], tuple[str, list[int]]]  # and the words of constants
_sources = BoundedDict(_SOURCES_KEPT)
_KINDS = {np.dtype(np.float32): "f32", np.dtype(np.bool_): "u8", np.dtype(np.int32): "i32",
          np.dtype(np.int64): "i64", BFLOAT16: "u16"}  # fmt: skip


class _Join(NamedTuple):
    """How the elements of a result are joined that takes those of several places in the loop."""

    start: float
    join: str  # of two numbers


_JOINS = {
    "sum": _Join(0.0, "{0} + {1}"),
    "max": _Join(-math.inf, "largest({0}, {1})"),
    "min": _Join(math.inf, "least({0}, {1})"),
}


def bind_loop(
    outputs: Outputs, arrays: Mapping[str, Any], join: str = "sum"
) -> list[native.Launch]:
    """Return the calls that evaluate expressions on ``arrays`` into the outputs, in one pass.

    ``join``: whether results of size 1 where others are larger are sums there, or the largest or least.
    """
    return bind_loops([(outputs, arrays)], join)


def bind_loops(
    entries: Sequence[tuple[Outputs, Mapping[str, Any]]], join: str = "sum"
) -> list[native.Launch]:
    """Return the calls for several sets of arrays with the same expressions; sets of one form share a call."""
    calls: list[native.Launch] = []
    forms: dict[str, tuple[_Loop, list[int], list[Any]]] = {}
    for outputs, arrays in entries:
        shapes = {a.shape for a in arrays.values()}.union([a.shape for _, a in outputs])
        shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
        for _, out in outputs:
            if out.shape != (1,) * (len(shape) - out.ndim) + shape:
                calls.append(partial(out.fill, _JOINS[join].start))
        if math.prod(shape) == 0:
            continue
        loop = _Loop(outputs, arrays, shape, join)
        _, words, operands = forms.setdefault(loop.source, (loop, [], []))
        words += loop.words
        operands += [m.array for m in loop.memories]
    for source, (loop, words, operands) in forms.items():
        head = [len(words) // len(loop.words), *loop.constants]
        calls.append(native.launch(source, [*head, *words], *operands))
    return calls


def _word(number: float) -> tuple[int, str]:
    """Return a constant as a word, and the source that reads it from one.

    A whole number is an integer there: a number of elements is an affine function of sizes.
    """
    if number.is_integer() and 0 < abs(number) < 1 << 53:
        return int(number), "np.float32({})"
    return int(np.float32(number).view(np.int32)), "unbits(np.int32({}))"


def _bounds(memory: Memory) -> tuple[int, int]:
    """Return where an array's bytes begin and end."""
    low, high, array = memory.address, memory.address + memory.array.itemsize, memory.array
    if array.flags.forc:
        return low, low + array.nbytes
    for size, stride in zip(array.shape, array.strides, strict=True):
        low, high = low + min((size - 1) * stride, 0), high + max((size - 1) * stride, 0)
    return low, high


class _Loop:
    """The source of one loop nest, and the addresses, sizes and strides that it runs on."""

    def __init__(
        self, outputs: Outputs, arrays: Mapping[str, Any], shape: tuple[int, ...], join: str
    ) -> None:
        self.memories: list[Memory] = []
        self._join = join
        every = (*arrays.values(), *(out for _, out in outputs))
        self._plain = all(a.shape == shape and a.flags.c_contiguous for a in every)
        if self._plain:  # as nearly all are: one dimension, without asking for strides
            shape = (math.prod(shape),)
        self._rank = len(shape)
        self._strides = (1,) if self._plain else None
        self._read = {name: self._memory(a) for name, a in arrays.items()}
        self._write = [self._memory(out) for _, out in outputs]
        self._summed = [_repeats(self.memories[k].strides, shape) for k in self._write]
        self.sizes = shape if self._plain else collapse(shape, self.memories)
        self._overlaps = self._overlapping()
        self.source, self.constants = self._source([expression for expression, _ in outputs])
        self.words = [m.address for m in self.memories]
        self.words += [*self.sizes, *(s for m in self.memories for s in m.strides)]

    def _memory(self, array: Any) -> int:
        """Return the number of an array, the same for the same memory seen twice."""
        strides = strides_of(array, self._rank) if self._strides is None else self._strides
        return number_of(self.memories, Memory(array, address(array), strides))

    def _overlapping(self) -> list[tuple[int, int]]:
        """Return pairs of arrays that may share memory: what is read and written there keeps its order."""
        by_begin = sorted((*_bounds(m), k) for k, m in enumerate(self.memories))
        pairs, furthest = [], by_begin[0]
        for bounds in by_begin[1:]:
            if bounds[0] < furthest[1]:
                pairs.append((furthest[2], bounds[2]))
            furthest = max(furthest, bounds, key=itemgetter(1))
        return pairs

    def _source(self, expressions: list[Expr]) -> tuple[str, list[int]]:
        """Return the source, and the words of the constants that it reads.

        Loops that differ in addresses, sizes and wider strides alone have one source.
        """
        memories = tuple((m.array.dtype, min(m.strides[-1], 2)) for m in self.memories)
        what = tuple(expression.form for expression in expressions)
        where = (*self._read.items(), *self._write, *self._summed)
        key = (what, where, len(self.sizes), memories, *self._overlaps, self._join)
        entry = _sources.get(key)
        if entry is None:
            entry = _sources[key] = self._text(expressions)
        return entry

    def _text(self, expressions: list[Expr]) -> tuple[str, list[int]]:
        """Return the source and the words of the constants that it reads."""
        inner, depth = len(self.sizes) - 1, len(self.sizes)
        names = {name: f"v{k}" for name, k in self._read.items()}
        writer = Writer(names)
        results = [
            writer.number(e) if self.memories[k].array.dtype != np.bool_ else writer.truth(e)
            for e, k in zip(expressions, self._write, strict=True)
        ]
        totals = [j for j, k in enumerate(self._write) if self._in_scalar(j, k)]
        reads = sorted(set(self._read.values()))
        steady = [k for k in reads if not self.memories[k].strides[-1]]
        body = [self._load(k, inner) for k in reads if k not in steady] + writer.lines
        for j, (k, result) in enumerate(zip(self._write, results, strict=True)):
            body.append(
                f"part{j} = {self._part(j, result)}" if j in totals else self._store(j, k, result)
            )
        constants = [_word(number) for number in writer.constants]
        lines = [*self._head([source for _, source in constants]), *self._outer(inner)]
        pad = "    " * (depth + 1)
        lines += [pad + self._load(k, inner) for k in steady]
        lines += [pad + line for line in self._inner(inner, body, totals)]
        text = definitions("\n".join(body)) + "\n" + "\n".join(lines) + "\n"
        return text, [word for word, _ in constants]

    def _part(self, j: int, result: str) -> str:
        """Return a part of a row's result with one more element; a sum's may be those of several lanes."""
        parts = "plus({0}, {1})" if self._join == "sum" else _JOINS[self._join].join
        return parts.format(f"part{j}", result)

    def _in_scalar(self, j: int, k: int) -> bool:
        """Tell whether a result is summed along the innermost dimension."""
        return self._summed[j] and not self.memories[k].strides[-1]

    def _head(self, constants: Sequence[str]) -> list[str]:
        memories, depth = self.memories, len(self.sizes)
        step, first = len(memories) + depth + len(memories) * depth, 1 + len(constants)
        lines = ["def run(words):"]
        lines += [f"    c{i} = {c.format(f'words[{1 + i}]')}" for i, c in enumerate(constants)]
        lines += ["    for entry in range(words[0]):", f"        w = {first} + entry * {step}"]
        for k, memory in enumerate(memories):
            lines.append(f"        m{k} = {_KINDS[memory.array.dtype]}(words[w + {k}])")
        lines += [f"        overlap(m{a}, m{b})" for a, b in self._overlaps]
        lines += [f"        n{d} = words[w + {len(memories) + d}]" for d in range(depth)]
        first = len(memories) + depth
        for k, memory in enumerate(memories):
            for d in range(depth):
                if d < depth - 1 or memory.strides[d] not in (0, 1):
                    lines.append(f"        s{k}_{d} = words[w + {first + k * depth + d}]")
        return lines

    def _outer(self, inner: int) -> list[str]:
        lines: list[str] = []
        for d in range(inner):
            lines.append("        " + "    " * d + f"for i{d} in range(n{d}):")
        pad = "        " + "    " * inner
        for k in range(len(self.memories)):
            terms = [f"i{d} * s{k}_{d}" for d in range(inner)]
            lines.append(f"{pad}o{k} = {' + '.join(terms) or '0'}")
        return lines

    def _at(self, k: int, inner: int) -> str:
        step = self.memories[k].strides[-1]
        moved = {0: "", 1: " + i"}.get(step, f" + i * s{k}_{inner}")
        return f"m{k}, o{k}{moved}"

    def _load(self, k: int, inner: int) -> str:
        where = self._at(k, inner)
        dtype = self.memories[k].array.dtype
        if dtype.kind == "i":  # such as labels: numbers that a float32 holds
            return f"v{k} = np.float32(load({where}))"
        if dtype == BFLOAT16:  # the upper half of a float32; loops read it, and do not write it
            return f"v{k} = unbits(np.int32(np.uint32(load({where})) << np.uint32(16)))"
        return f"v{k} = load({where}){' != np.uint8(0)' if dtype.kind == 'b' else ''}"

    def _store(self, j: int, k: int, result: str) -> str:
        where = self._at(k, len(self.sizes) - 1)
        if self.memories[k].array.dtype == np.bool_:
            result = f"np.uint8({result})"
        if self._summed[j]:
            result = _JOINS[self._join].join.format(f"load({where})", result)
        return f"store({where}, {result})"

    def _inner(self, inner: int, body: list[str], totals: list[int]) -> list[str]:
        if not totals:
            return [f"for i in range(n{inner}):", *(f"    {line}" for line in body)]
        start, join = _JOINS[self._join]
        begin = f"{start}" if math.isfinite(start) else f"{'-' * (start < 0)}np.inf"
        lines = [f"total{j} = np.float64({begin})" for j in totals]
        lines += [f"for begin in range(0, n{inner}, {_CHUNK}):"]
        lines += [f"    end = begin + {_CHUNK} if begin + {_CHUNK} < n{inner} else n{inner}"]
        lines += [f"    part{j} = np.float32({begin})" for j in totals]
        lines += ["    for i in range(begin, end):", *(f"        {line}" for line in body)]
        for j in totals:
            lines.append(f"    total{j} = {join.format(f'total{j}', f'np.float64(part{j})')}")
        for j in totals:
            lines.append(self._store(j, self._write[j], f"np.float32(total{j})"))
        return lines


def _repeats(strides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Tell whether an array has one element for several of the loop's."""
    return any(size > 1 and not step for step, size in zip(strides, shape, strict=True))
