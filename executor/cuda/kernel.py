"""CUDA C++ kernels as data: a name, parameters, and text that compiles for a GPU and, beside a shim, as C++."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent / "source"
_BARRIERS = ("__syncthreads", "__syncwarp", "__shfl", "block_", "warp_")


@dataclass(frozen=True)
class CudaKernel:
    """One ``extern "C" __global__`` function.

    ``parameters`` are (C type, name) pairs such as ``("const float*", "x")``; scalars are ``float``,
    ``int`` or ``long long``. ``body`` is the function's text; ``includes`` name files of ``source/`` beside
    ``base.cuh``, which all have; ``definitions`` stand before the function.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    body: str
    includes: tuple[str, ...] = ()
    definitions: str = ""
    block: int = 256  # the most threads a block will have
    # pointers to memory that another one writes, or reads what they write
    shared: frozenset[str] = frozenset()

    @cached_property
    def text(self) -> str:
        """The whole source."""
        return "\n".join(
            [*(included(name) for name in ("base.cuh", *self.includes)), self.own_text]
        )

    @property
    def own_text(self) -> str:
        """The source behind the includes."""
        names = ", ".join(
            f"{kind} __restrict__ {name}"
            if kind.endswith("*") and name not in self.shared
            else f"{kind} {name}"
            for kind, name in self.parameters
        )
        head = f'extern "C" __global__ void __launch_bounds__({self.block}) {self.name}({names})'
        return f"{self.definitions}\n{head} {{\n{self.body}\n}}\n"

    def over(self, arguments: Sequence[Any], address: Callable[[Any], int]) -> CudaKernel:
        """Return the kernel for operands of which some lie in one place, as those of an op in place do.

        A compiler takes it that nothing else writes what a ``__restrict__`` pointer leads to.
        """
        spans = [
            (name, kind.startswith("const"), *_span(array, address(array)))
            for (kind, name), array in zip(self.parameters, arguments, strict=True)
            if kind.endswith("*") and array is not None and array.size
        ]
        shared = frozenset(
            one
            for one, reads, begin, end in spans
            for other, also_reads, first, last in spans
            if one != other and not (reads and also_reads) and begin < last and first < end
        )
        return replace(self, shared=shared) if shared != self.shared else self

    def guarded(self, *, unless: bool) -> CudaKernel:
        """Return a kernel that does nothing where the word behind its operands is 0; ``unless``: is not."""
        word = ("const long long*", "word_")
        body = f"if ({'' if unless else '!'}*word_) return;\n{self.body}"
        return replace(self, parameters=(*self.parameters, word), body=body)

    @cached_property
    def key(self) -> str:
        """A name for the machine code of this source."""
        return hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()

    @property
    def has_barriers(self) -> bool:
        """Tell whether the threads of a block wait for each other."""
        return any(word in self.body + self.definitions for word in _BARRIERS)


def _span(array: Any, begin: int) -> tuple[int, int]:
    """Return the first address of an array's elements, and the one behind the last."""
    steps = zip(array.shape, array.strides, strict=True)
    return begin, begin + sum((n - 1) * abs(step) for n, step in steps) + array.itemsize


@cache
def included(name: str) -> str:
    """Return the text of a file of ``source/``."""
    return (_HERE / name).read_text()
