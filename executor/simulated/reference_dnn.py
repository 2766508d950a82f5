"""The calls of ``dnn.py`` by NumPy on host memory, for the simulated GPU.

Low precision is widened to float32, computed, and rounded once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..cuda.dnn import Attention, AttentionGrad, BatchNorm, BatchNormGrad, Convolution, Dnn, Graph
from ..cuda.gemm import in_tf32

Arrays = Mapping[str, np.ndarray]


class ReferenceDnn(Dnn):
    """Computes every description."""

    def workspace(self, graph: Graph) -> int | None:
        return 0

    def bind(self, graph: Graph, arrays: Arrays, workspace: Any) -> ReferenceCall:
        return ReferenceCall(graph, arrays)


class ReferenceCall:
    """One call; calling it computes."""

    captured = True

    def __init__(self, graph: Graph, arrays: Arrays) -> None:
        self.graph = graph
        for name, described in graph.operands.items():
            array = arrays[name]
            assert array.dtype.name == described.dtype, f"{name} of {graph} is {array.dtype.name}"
            assert array.size == np.prod(described.shape), f"{name} of {graph}: {array.shape}"
        self._arrays = {name: arrays[name] for name in graph.operands}

    def __call__(self) -> None:
        graph, results = self.graph, self.graph.results
        arrays = {
            name: array.reshape(graph.operands[name].shape).astype(
                np.int64 if array.dtype == np.int64 else np.float32
            )
            for name, array in self._arrays.items()
            if name not in results
        }
        with np.errstate(all="ignore"):
            values = _COMPUTES[type(graph)](graph, arrays)
        for name, value in zip(results, values, strict=True):
            target = self._arrays[name]
            target[...] = value.reshape(target.shape).astype(target.dtype)


def _convolution(conv: Convolution, arrays: Arrays) -> tuple[np.ndarray]:
    exact = conv.exact or conv.x.dtype != "float32"
    addend = arrays.get("addend", np.float32(0))
    arrays = dict(arrays) if exact else {name: in_tf32(a) for name, a in arrays.items()}
    groups = conv.x.shape[1] // conv.w.shape[1]
    n, c, *sizes = conv.x.shape
    margins = [(0, 0), (0, 0), *zip(conv.before, conv.after, strict=True)]
    padded: Any
    images = np.zeros(conv.x.shape, np.float32) if conv.result == "x" else arrays["x"]
    padded = np.pad(images, margins).reshape(n, groups, c // groups, *_padded(conv))
    grouped = (groups, conv.w.shape[0] // groups, *conv.w.shape[1:])
    result = np.zeros(grouped if conv.result == "w" else _by_group(conv, groups), np.float32)
    if conv.result != "w":
        w = arrays["w"].reshape(grouped)
    if conv.result != "y":
        d_y = arrays["y"].reshape(_by_group(conv, groups))
    d = "dhw"[-len(sizes) :]
    for place, tap in _taps(conv):
        if conv.result == "y":
            result += np.einsum(f"ngc{d},goc->ngo{d}", padded[tap], w[place], optimize=True)
        elif conv.result == "w":
            result[place] = np.einsum(f"ngc{d},ngo{d}->goc", padded[tap], d_y, optimize=True)
        else:
            padded[tap] += np.einsum(f"ngo{d},goc->ngc{d}", d_y, w[place], optimize=True)
    if conv.result != "x":
        return (result,)
    sides = zip(conv.before, sizes, strict=True)
    interior = padded.reshape(n, c, *_padded(conv))[
        (..., *(slice(before, before + size) for before, size in sides))
    ]
    return (interior + addend,)


def _padded(conv: Convolution) -> list[int]:
    sides = zip(conv.x.shape[2:], conv.before, conv.after, strict=True)
    return [size + before + after for size, before, after in sides]


def _by_group(conv: Convolution, groups: int) -> tuple[int, ...]:
    n, o, *sizes = conv.y.shape
    return (n, groups, o // groups, *sizes)


def _taps(conv: Convolution) -> list[tuple[Any, Any]]:
    """Pair each element of a filter with the elements of the padded images that it multiplies."""
    lines = [
        [slice(i * gap, i * gap + (size - 1) * stride + 1, stride) for i in range(k)]
        for k, gap, stride, size in zip(
            conv.w.shape[2:], conv.dilations, conv.strides, conv.y.shape[2:], strict=True
        )
    ]
    places = itertools.product(*(range(len(line)) for line in lines))
    return [
        ((..., *place), (..., *(line[i] for line, i in zip(lines, place, strict=True))))
        for place in places
    ]


_OVER = (0, 2, 3)  # dimensions that a statistic reduces
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # of channels among dimensions


def _batch_norm(norm: BatchNorm, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x = arrays["x"]
    mean = x.mean(_OVER, keepdims=True)
    variance = np.square(x - mean).mean(_OVER, keepdims=True)
    inverse = np.float32(1) / np.sqrt(variance + np.float32(norm.epsilon))
    y = (x - mean) * (inverse * arrays["scale"]) + arrays["bias"]
    if norm.adds:
        y += arrays["z"]
    y = np.maximum(y, 0) if norm.relu else y
    mask = np.packbits(y.transpose(_LAST) > 0, bitorder="little")
    return (y, mean, inverse, *([mask] if norm.masks else []))


def _batch_norm_grad(norm: BatchNormGrad, arrays: Arrays) -> tuple[np.ndarray, ...]:
    hat = (arrays["x"] - arrays["mean"]) * arrays["inverse"]
    d_y = arrays["d_y"]
    if norm.relu:
        d_y = d_y * (hat * arrays["scale"] + arrays["bias"] > 0)
    if norm.masked:
        bits = np.unpackbits(arrays["mask"].astype(np.uint8), bitorder="little")
        images = d_y.transpose(_LAST)
        d_y = (images * bits.reshape(images.shape)).transpose(_FIRST)
    d_bias = d_y.sum(_OVER, keepdims=True)
    d_scale = (d_y * hat).sum(_OVER, keepdims=True)
    share = np.float32(d_bias.size / max(d_y.size, 1))
    d_x = (d_y - d_bias * share - hat * (d_scale * share)) * (arrays["scale"] * arrays["inverse"])
    return (d_x, d_scale, d_bias, *([d_y] if norm.forks else []))


def _scores(attention: Attention, arrays: Arrays) -> np.ndarray:
    scores = np.float32(attention.scale) * (arrays["q"] @ arrays["k"].swapaxes(2, 3))
    if attention.causal:
        later = np.triu(np.ones(scores.shape[2:], bool), 1)
        scores = np.where(later, np.float32(-np.inf), scores)
    return scores + arrays["mask"] if attention.mask is not None else scores


def _dropout_factors(attention: Attention, arrays: Arrays, shape: tuple[int, ...]) -> Any:
    """Return the factors of weights: numbers of its own, as a library has."""
    if not attention.dropout:
        return np.float32(1)
    seed, offset = (int(arrays[name].item()) for name in ("seed", "offset"))
    numbers = np.random.Generator(np.random.Philox(counter=offset, key=seed % 2**64))
    return (numbers.random(shape) >= attention.dropout) / np.float32(1 - attention.dropout)


def _attention(attention: Attention, arrays: Arrays) -> tuple[np.ndarray, ...]:
    scores = _scores(attention, arrays)
    top = scores.max(3, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(3, keepdims=True)
    weights = weights * _dropout_factors(attention, arrays, weights.shape)
    return (weights @ arrays["v"]) / total, top + np.log(total)


def _attention_grad(grad: AttentionGrad, arrays: Arrays) -> tuple[np.ndarray, ...]:
    weights = np.exp(_scores(grad.forward, arrays) - arrays["stats"])
    factors, d_out = _dropout_factors(grad.forward, arrays, weights.shape), arrays["d_out"]
    share = (d_out * arrays["out"]).sum(3, keepdims=True)
    d_scores = weights * (d_out @ arrays["v"].swapaxes(2, 3) * factors - share)
    scale = np.float32(grad.forward.scale)
    gradients = [
        (d_scores @ arrays["k"]) * scale,
        (d_scores.swapaxes(2, 3) @ arrays["q"]) * scale,
        (weights * factors).swapaxes(2, 3) @ d_out,
    ]
    if grad.d_mask is not None:
        axes = tuple(i for i, size in enumerate(grad.d_mask.shape) if size == 1)
        gradients.append(d_scores.sum(axes, keepdims=True))
    return tuple(gradients)


_COMPUTES: dict[type, Callable[..., tuple[np.ndarray, ...]]] = {
    Convolution: _convolution,
    BatchNorm: _batch_norm,
    BatchNormGrad: _batch_norm_grad,
    Attention: _attention,
    AttentionGrad: _attention_grad,
}
