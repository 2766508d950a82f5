"""CUDA kernels that draw a word for each element, in the order that ``executor/device/philox.py`` gives them.

A thread makes a block of eight words. Where these are eight elements that lie side by side, they are loaded and
stored as vectors; the first block of a replica may begin before its first element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..cuda.runtime import Step
from ..device.device import Device
from ..device.philox import Stream
from .cuda_launches import BLOCK, Argument, ints, longs, name_of, run
from .cuda_source import c_type

_WAVES = 16  # blocks a multiprocessor
STREAM_HEAD = """  const long long first = ticks[1] * sample + start, skip = first & 7;
  const unsigned long long step = every ? ticks[0] : 0;
  const Key key = {key0, key1};
"""


@dataclass(frozen=True)
class Place:
    """An array that is drawn for: its name in the function of one element, and whether that writes it."""

    name: str
    array: Any
    written: bool = True

    @property
    def kind(self) -> str:
        """The C type of its elements."""
        return c_type(self.array.dtype)


def stream_arguments(
    dev: Device, stream: Stream, count: int, sample: int, start: int = 0
) -> list[Argument]:
    """Return what ``STREAM_HEAD`` reads: a row of the batch has ``sample`` elements."""
    of_row = sample if stream.per_row else 0
    keys = {f"key{i}": int(key) for i, key in enumerate(stream.key)}
    return [
        ("const long long* ticks", dev.ticks),
        *longs(n=count, sample=of_row, start=start),
        *ints(every=stream.every_step),
        *((f"unsigned long long {name}", key) for name, key in keys.items()),
    ]


def bind_draws(
    dev: Device,
    stream: Stream,
    places: Sequence[Place],
    one: str,
    numbers: Sequence[Argument] = (),
    *,
    draws: int = 1,
    sample: int,
    start: int = 0,
) -> list[Step]:
    """Return the launch that makes ``one`` of every element.

    ``one`` is C++ that may use the words ``w0``, ``w1``..., the places' elements by name, and ``numbers``. A
    row of the batch has ``sample`` elements; the first to draw for is ``start``.
    """
    count = math.prod(places[0].array.shape)
    if not count:
        return []
    text = _Text(dev, places, one, numbers, draws)
    arguments = [*text.arguments, *stream_arguments(dev, stream, count, sample, start), *numbers]
    most = dev.cuda.properties.multiprocessors * _WAVES
    blocks = min(-(-(count + 8) // (8 * BLOCK)), most)
    include = ("philox.cuh",)
    return [run(dev, "draw", text.body, arguments, blocks, include, definitions=text.definitions)]


class _Text:
    """The source of one kernel."""

    def __init__(
        self,
        dev: Device,
        places: Sequence[Place],
        one: str,
        numbers: Sequence[Argument],
        draws: int,
    ) -> None:
        self.places, self.draws, self.numbers = places, draws, numbers
        addresses = [dev.cuda.address(p.array) for p in places]
        # An operand in whose place the result comes is read through the result's pointer.
        results = {a: p.name for p, a in zip(places, addresses, strict=True) if p.written}
        self.pointer = {
            p.name: p.name if p.written else results.get(a, p.name)
            for p, a in zip(places, addresses, strict=True)
        }
        self.own = [p for p in places if self.pointer[p.name] == p.name]
        self.dense = all(p.array.flags.c_contiguous for p in places)
        self.vector = self.dense and all(a % 16 == 0 for a in addresses)
        shape = places[0].array.shape
        self.rank = len(shape)
        self.arguments: list[Argument] = [
            (f"{'' if p.written else 'const '}{p.kind}* {p.name}_", p.array) for p in self.own
        ]
        if not self.dense:
            self.arguments += longs(**{f"n{d}": n for d, n in enumerate(shape)})
            for p in self.own:
                strides = [s // p.array.itemsize for s in p.array.strides]
                self.arguments += longs(**{f"{p.name}_s{d}": s for d, s in enumerate(strides)})
        words = [f"unsigned w{d}" for d in range(draws)]
        params = [f"{p.kind}& {p.name}" for p in places]
        params += [text for text, _ in numbers]
        head = f"static __device__ __forceinline__ void one({', '.join([*words, *params])})"
        self.definitions = f"{head} {{\n{one}\n}}\n"

    @property
    def body(self) -> str:
        """The text of the kernel."""
        lines = [
            STREAM_HEAD,
            "const long long blocks = (skip + n + 7) / 8;",
            "for (long long b = thread_index(); b < blocks; b += thread_count()) {",
            "  const long long at = b * 8 - skip;",
            *self._body(),
            "}",
        ]
        return "\n".join(lines)

    def _body(self) -> list[str]:
        words = [
            f"  const Words w{d} = philox((first >> 3) + b, {d}, step, key);"
            for d in range(self.draws)
        ]
        if not self.vector:
            return [*words, *self._singly()]
        # Loads come before the words are made: these take a while.
        lines = ["  const bool whole = skip == 0 && at + 8 <= n;"]
        for p in self.places:
            width, count = self._vectors(p)
            lines.append(f"  Vec<{p.kind}, {width}> {p.name}v[{count}];")
            if not p.written:
                load = (
                    f"{p.name}v[j] = load_vec<{width}>({self.pointer[p.name]}_ + at + j * {width});"
                )
                lines += [
                    "  if (whole)",
                    "#pragma unroll",
                    f"    for (int j = 0; j < {count}; j++) {load}",
                ]
        lines += [*words, "  if (whole) {", "#pragma unroll", "    for (int i = 0; i < 8; i++)"]
        elements = []
        for p in self.places:
            width, _ = self._vectors(p)
            elements.append(f"{p.name}v[i / {width}].at[i % {width}]")
        lines.append(f"      {self._call(elements)}")
        for p in self.places:
            if p.written:
                width, count = self._vectors(p)
                store = f"store_vec({p.name}_ + at + j * {width}, {p.name}v[j]);"
                lines += ["#pragma unroll", f"    for (int j = 0; j < {count}; j++) {store}"]
        return [*lines, "  } else {", *self._singly(), "  }"]

    def _vectors(self, place: Place) -> tuple[int, int]:
        """Return the width and number of vectors that hold a block's elements."""
        width = min(16 // place.array.itemsize, 8)
        return width, 8 // width

    def _call(self, elements: list[str]) -> str:
        words = [f"w{d}.at[i]" for d in range(self.draws)]
        return f"one({', '.join([*words, *elements, *map(name_of, self.numbers)])});"

    def _singly(self) -> list[str]:
        lines = [
            "#pragma unroll",
            "for (int i = 0; i < 8; i++) {",
            "  const long long e = at + i;",
            "  if (e < 0 || e >= n) continue;",
        ]
        if not self.dense:
            lines.append("  long long rest = e;")
            for d in reversed(range(self.rank)):
                lines.append(f"  const long long i{d} = rest % n{d}; rest /= n{d};")
        for p in self.own:
            terms = [f"i{d} * {p.name}_s{d}" for d in range(self.rank)]
            lines.append(
                f"  const long long {p.name}o = {'e' if self.dense else ' + '.join(terms) or 0};"
            )
        elements = []
        for p in self.places:
            at = f"{self.pointer[p.name]}_[{self.pointer[p.name]}o]"
            lines.append(f"  {p.kind} {p.name}1{'' if p.written else f' = {at}'};")
            elements.append(f"{p.name}1")
        lines.append(f"  {self._call(elements)}")
        lines += [f"  {p.name}_[{p.name}o] = {p.name}1;" for p in self.places if p.written]
        return [*lines, "}"]
