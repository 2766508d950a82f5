"""Launches of CUDA kernels: each parameter is written as in C, beside the value that it gets.

``each`` runs a text for every index below a count, ``call`` a function of ``executor/cuda/source/``, and
``run`` any other text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...graph.ops.operands import Array
from ...strategies.errors import Unsupported
from ..cuda.kernel import CudaKernel
from ..cuda.runtime import Dims, Step
from ..device.device import Device
from .cuda_source import c_type

BLOCK = 256  # threads
MOST = 1 << 31  # indices and strides in kernels are below this
_WAVES = 8  # blocks a multiprocessor, of kernels whose threads take several pieces of work in turn
Argument = tuple[str, Any]  # a parameter as in C, such as "const float* x", and its value


def name_of(argument: Argument) -> str:
    """Return the name of a parameter."""
    return argument[0].rpartition(" ")[2]


def names(arguments: Sequence[Argument]) -> str:
    """Return the names of parameters, as a call passes them on."""
    return ", ".join(map(name_of, arguments))


class Maybe(NamedTuple):
    """An array that may be None, and an array of its type."""

    array: Array | None
    like: Array


def read(**arrays: Array | Maybe) -> list[Argument]:
    """Return parameters of arrays that the kernel reads."""
    return [(f"const {text}", array) for text, array in written(**arrays)]


def written(**arrays: Array | Maybe) -> list[Argument]:
    """Return parameters of arrays that the kernel writes."""
    pairs = [(name, a if isinstance(a, Maybe) else Maybe(a, a)) for name, a in arrays.items()]
    for name, (array, like) in pairs:
        assert array is None or array.dtype == like.dtype, (
            f"{name}: {array.dtype}, not {like.dtype}"
        )
    return [(f"{c_type(a.like.dtype)}* {name}", a.array) for name, a in pairs]


def ints(**values: int) -> list[Argument]:
    """Return parameters of 32 bits."""
    return [(f"int {name}", value) for name, value in values.items()]


def longs(**values: int) -> list[Argument]:
    """Return parameters of 64 bits."""
    return [(f"long long {name}", value) for name, value in values.items()]


def numbers(like: Array, **values: float) -> list[Argument]:
    """Return parameters of an array's type."""
    return [(f"{c_type(like.dtype)} {name}", value) for name, value in values.items()]


def divisor(d: int) -> tuple[int, int]:
    """Return what ``over`` in ``index.cuh`` needs to divide by ``d``."""
    shift = max(d - 1, 0).bit_length()
    return (((1 << 32) * ((1 << shift) - d)) // d + 1) & 0xFFFFFFFF, shift


def divisors(**values: int) -> list[Argument]:
    """Return parameters by which a kernel divides: ``over(i, n_magic, n_shift)`` is ``i / n``."""
    return [
        (f"unsigned {name}{suffix}", number)
        for name, value in values.items()
        for suffix, number in zip(("", "_magic", "_shift"), (value, *divisor(value)), strict=True)
    ]


def refusal(dev: Device, problem: str, *others: str) -> list[Argument]:
    """Return what ``refuse`` (``assert.cuh``) needs; ``problem`` has ``{}`` in place of the wrong number.

    ``others`` are further problems, whose parameters are ``assertion1``, ``assertion2``...
    """
    kinds = ("long long* word", "volatile long long* noted", "int assertion")
    more = {f"assertion{k}": dev.assertion(each)[2] for k, each in enumerate(others, 1)}
    return [*zip(kinds, dev.assertion(problem), strict=True), *ints(**more)]


def enough_blocks(dev: Device, work: int, block: int = BLOCK) -> int:
    """Return how many blocks to start for pieces of work that threads take one after the other."""
    most = dev.cuda.properties.multiprocessors * _WAVES
    return max(min(-(-work // block), most), 1)


@lru_cache(4096)
def _kernel(
    name: str, parameters: tuple[str, ...], body: str, includes: tuple[str, ...], definitions: str, block: int
) -> CudaKernel:  # fmt: skip
    pairs = tuple((kind, name) for kind, _, name in (p.rpartition(" ") for p in parameters))
    return CudaKernel(name, pairs, body, includes, definitions, block)


def run(
    dev: Device,
    name: str,
    body: str,
    arguments: Sequence[Argument],
    blocks: int | Dims,
    includes: tuple[str, ...] = (),
    block: int = BLOCK,
    definitions: str = "",
) -> Step:
    """Return the launch of a kernel of this text on a grid of blocks, or so many of them (at least one)."""
    name = name.removeprefix("block_")
    parameters = tuple(text for text, _ in arguments)
    kernel = _kernel(name, parameters, body, includes, definitions, block)
    grid = blocks if isinstance(blocks, tuple) else (max(blocks, 1), 1, 1)
    return dev.launch(kernel, grid, (block, 1, 1), tuple(value for _, value in arguments))


def each(
    dev: Device,
    name: str,
    body: str,
    arguments: Sequence[Argument],
    count: int,
    includes: tuple[str, ...] = (),
    definitions: str = "",
    index: str = "unsigned",
) -> Step:
    """Return the launch that runs a text for each ``i`` below ``count``, numbers of the C type ``index``.

    Raises:
        Unsupported: there are more than that type counts (``over`` of ``index.cuh`` divides 31 bits).
    """
    if count >= MOST and index != "long long":
        raise Unsupported(f"{name} is for fewer than {MOST:,} elements a GPU, not {count:,}")
    loop = f"""
  for ({index} i = thread_index(); i < count; i += thread_count()) {{{body}
  }}"""
    arguments = [*arguments, (f"{index} count", count)]
    blocks = enough_blocks(dev, count)
    return run(dev, name, loop, arguments, blocks, includes, definitions=definitions)


def call(
    dev: Device,
    function: str,
    kinds: Sequence[str],
    arguments: Sequence[Argument],
    blocks: int | Dims,
    includes: tuple[str, ...],
    block: int = BLOCK,
    definitions: str = "",
) -> Step:
    """Return the launch of a function of template arguments and parameters."""
    body = f"{function}<{', '.join(kinds)}>({names(arguments)});"
    return run(dev, function, body, arguments, blocks, includes, block, definitions)
