"""Convolutions, batch norm and attention as data, and the protocol of a library that computes them.

A :class:`Graph` describes one call without the addresses of its operands, which it names in an order that never
changes. Images are [N, C, H, W], of convolutions
also [N, C, D, H, W], whatever their order in memory; statistics have one float32 number a channel.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .step import Step

LOW = ("float16", "bfloat16")


class Tensor(NamedTuple):
    """A shape, the elements from one to the next along each dimension, and NumPy's name of their type."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} (strides {list(self.strides)})"

    @property
    def nbytes(self) -> int:
        """Bytes from its first element to its last."""
        itemsize = {"int64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "uint8": 1}[self.dtype]
        return (
            sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + 1
        ) * itemsize


def tensor(array: Any) -> Tensor:
    """Describe an array."""
    size = array.dtype.itemsize
    return Tensor(tuple(array.shape), tuple(s // size for s in array.strides), array.dtype.name)


_NUMBER = Tensor((1, 1, 1, 1), (1, 1, 1, 1), "int64")


def _statistic(channels: int) -> Tensor:
    return Tensor((1, channels, 1, 1), (channels, 1, channels, channels), "float32")


def _mask(x: Tensor) -> Tensor:
    """A bit for each element of images, in their order in memory, which one library alone knows."""
    return Tensor((math.prod(x.shape) // 8,), (1,), "uint8")


class Graph(ABC):
    """What a library computes in one call."""

    @property
    @abstractmethod
    def operands(self) -> dict[str, Tensor]:
        """Shapes and types of the operands, by name."""

    @property
    @abstractmethod
    def results(self) -> tuple[str, ...]:
        """Names of the operands that are written."""


@dataclass(frozen=True)
class Convolution(Graph):
    """y = x convolved with w [O, C / groups, *sizes of the kernel].

    ``result`` is "y"; or "x" or "w", whose gradient is written in its place (then y holds its own gradient).
    ``before`` and ``after`` are the margins of an image: above and left, below and right. ``exact``: float32
    factors are not rounded (tensor cores round them to 10 bits behind the point). ``addend`` is added to the
    gradient of x before that is rounded.
    """

    x: Tensor
    w: Tensor
    y: Tensor
    result: str
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    exact: bool = True
    addend: Tensor | None = None

    @property
    def operands(self) -> dict[str, Tensor]:
        addend = {} if self.addend is None else {"addend": self.addend}
        return {"x": self.x, "w": self.w, "y": self.y, **addend}

    @property
    def results(self) -> tuple[str, ...]:
        return (self.result,)

    def __str__(self) -> str:
        extra = "" if self.addend is None else f", added to {self.addend}"
        return (
            f"convolution of {self.x} with {self.w} to {self.y} for {self.result}, strides {self.strides}, "
            f"dilations {self.dilations}, margins {self.before} and {self.after}{extra}"
        )


@dataclass(frozen=True)
class BatchNorm(Graph):
    """y = relu(scale * (x - mean) * inverse + bias + z); relu and z are optional.

    ``mean`` and ``inverse`` (1 / deviation, with ``epsilon``) of the batch are written; with ``masks`` so is
    ``mask``, which tells where y is positive.
    """

    x: Tensor
    epsilon: float
    adds: bool = False
    relu: bool = False
    masks: bool = False

    @property
    def operands(self) -> dict[str, Tensor]:
        statistic = _statistic(self.x.shape[1])
        return {
            "x": self.x,
            **({"z": self.x} if self.adds else {}),
            **dict.fromkeys(("scale", "bias"), statistic),
            "y": self.x,
            **dict.fromkeys(("mean", "inverse"), statistic),
            **({"mask": _mask(self.x)} if self.masks else {}),
        }

    @property
    def results(self) -> tuple[str, ...]:
        return ("y", "mean", "inverse", *(("mask",) if self.masks else ()))

    def __str__(self) -> str:
        extras = " + Z" * self.adds + " with relu" * self.relu + " and its mask" * self.masks
        return f"batch norm of {self.x}{extras}"


@dataclass(frozen=True)
class BatchNormGrad(Graph):
    """The gradients of batch norm; with ``relu`` behind it, its result is computed again from x.

    Of a relu with a ``mask``, that tells where ``d_y`` counts; with ``forks`` this part of it is written, too,
    as ``d_z``.
    """

    x: Tensor
    relu: bool = False
    masked: bool = False
    forks: bool = False

    @property
    def operands(self) -> dict[str, Tensor]:
        statistic = _statistic(self.x.shape[1])
        read = ("scale", *(("bias",) if self.relu else ()), "mean", "inverse")
        return {
            "x": self.x,
            **dict.fromkeys(read, statistic),
            **({"mask": _mask(self.x)} if self.masked else {}),
            **dict.fromkeys(("d_y", "d_x"), self.x),
            **dict.fromkeys(("d_scale", "d_bias"), statistic),
            **({"d_z": self.x} if self.forks else {}),
        }

    @property
    def results(self) -> tuple[str, ...]:
        return ("d_x", "d_scale", "d_bias", *(("d_z",) if self.forks else ()))

    def __str__(self) -> str:
        extras = " with relu" * self.relu + " behind a mask" * self.masked + " and Z" * self.forks
        return f"gradient of batch norm of {self.x}{extras}"


@dataclass(frozen=True)
class Attention(Graph):
    """out = softmax(scale * q k^T + mask) v, over [B, H, rows, D]; sizes of 1 in ``mask`` are broadcast.

    ``stats`` [B, H, T, 1] keeps the logarithm of the sum of exponentials of each row of scores. With
    ``dropout`` so many weights are zero, and the others divided by 1 - ``dropout``; which are is the library's
    own function of the numbers ``seed`` and ``offset``, the same in the gradient.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    out: Tensor
    scale: float
    causal: bool = False  # no weight for keys behind the query
    dropout: float = 0.0

    @property
    def stats(self) -> Tensor:
        """One float32 number for each row of scores."""
        batch, heads, rows, _ = self.q.shape
        return Tensor((batch, heads, rows, 1), (heads * rows, rows, 1, 1), "float32")

    @property
    def operands(self) -> dict[str, Tensor]:
        more = {} if self.mask is None else {"mask": self.mask}
        more |= dict.fromkeys(("seed", "offset"), _NUMBER) if self.dropout else {}
        return {
            "q": self.q, "k": self.k, "v": self.v, **more, "out": self.out, "stats": self.stats
        }  # fmt: skip

    @property
    def results(self) -> tuple[str, ...]:
        return ("out", "stats")

    def __str__(self) -> str:
        mask = "causal" if self.causal else f"mask {self.mask}"
        dropout = f", dropout {self.dropout}" if self.dropout else ""
        return f"attention of {self.q} to {self.k} and {self.v}, {mask}{dropout}"


@dataclass(frozen=True)
class AttentionGrad(Graph):
    """The gradients of attention, of ``mask`` too if ``d_mask`` is set."""

    forward: Attention
    d_out: Tensor
    d_q: Tensor
    d_k: Tensor
    d_v: Tensor
    d_mask: Tensor | None = None

    @property
    def operands(self) -> dict[str, Tensor]:
        mask = {} if self.d_mask is None else {"d_mask": self.d_mask}
        gradients = {"d_q": self.d_q, "d_k": self.d_k, "d_v": self.d_v, **mask}
        return {**self.forward.operands, "d_out": self.d_out, **gradients}

    @property
    def results(self) -> tuple[str, ...]:
        return ("d_q", "d_k", "d_v", *(("d_mask",) if self.d_mask is not None else ()))

    def __str__(self) -> str:
        return f"gradient of {self.forward}"


class Dnn(ABC):
    """Computes convolutions, norms and attention on a GPU."""

    @abstractmethod
    def workspace(self, graph: Graph) -> int | None:
        """Return the bytes of scratch memory that it takes; None if the library cannot compute it."""

    @abstractmethod
    def bind(self, graph: Graph, arrays: Mapping[str, Any], workspace: Any) -> Step:
        """Return the call that puts the work on the compute stream; a captured graph can hold it.

        ``arrays`` are the operands by name; ``workspace`` has the bytes that :meth:`workspace` returned.
        """
