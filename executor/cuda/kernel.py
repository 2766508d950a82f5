"""CUDA C++ kernels as data: a name, parameters, and text that compiles for a GPU and, beside a shim, as C++."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

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

    @cached_property
    def text(self) -> str:
        """The whole source."""
        return "\n".join(
            [*(included(name) for name in ("base.cuh", *self.includes)), self.own_text]
        )

    @property
    def own_text(self) -> str:
        """The source behind the includes."""
        names = ", ".join(f"{kind} __restrict__ {name}" if kind.endswith("*") else f"{kind} {name}"
                          for kind, name in self.parameters)  # fmt: skip
        head = f'extern "C" __global__ void __launch_bounds__({self.block}) {self.name}({names})'
        return f"{self.definitions}\n{head} {{\n{self.body}\n}}\n"

    @cached_property
    def key(self) -> str:
        """A name for the machine code of this source."""
        return hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()

    @property
    def has_barriers(self) -> bool:
        """Tell whether the threads of a block wait for each other."""
        return any(word in self.body + self.definitions for word in _BARRIERS)


@cache
def included(name: str) -> str:
    """Return the text of a file of ``source/``."""
    return (_HERE / name).read_text()
