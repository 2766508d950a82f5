"""Windows, turns, rolls, channels and pixels, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import REFERENCE, reference, unary


@reference("crop", "crop_tensor")
def crop(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    out = ins["X"]
    shape = ins["Y"].shape if "Y" in ins else attrs["shape"]
    for axis, (start, size) in enumerate(zip(attrs["offsets"], shape, strict=True)):
        count = out.shape[axis] - start if size == -1 else size
        out = np.take(out, np.arange(start, start + count), axis)
    return {"Out": out}


@reference("pad_constant_like")
def pad_constant_like(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, y = ins["X"], ins["Y"]
    margins = [(0, a - b) for a, b in zip(x.shape, y.shape, strict=True)]
    return {"Out": np.pad(y, margins, constant_values=attrs["pad_value"])}


def _columns(x: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    picked = np.arange(x.shape[1])[attrs["start_index"] :]
    return x[:, picked[: attrs["length"]] if attrs["length"] > 0 else picked]


REFERENCE["partial_concat"] = lambda ins, attrs: {
    "Out": np.concatenate([_columns(x, attrs) for x in ins["X"]], 1)
}
REFERENCE["partial_sum"] = lambda ins, attrs: {"Out": sum(_columns(x, attrs) for x in ins["X"])}

unary("flip", lambda x, a: np.flip(x, tuple(a["dims"])))
unary("roll", lambda x, a: np.roll(x, a["shifts"], tuple(a["dims"])))


@reference("unbind")
def unbind(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": list(np.moveaxis(ins["X"], attrs["axis"], 0))}


@reference("pixel_shuffle")
def pixel_shuffle(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, r = ins["X"], attrs["upscale_factor"]
    n, c, h, w = x.shape
    out = np.zeros((n, c // r**2, h * r, w * r))
    for k, i, j in np.ndindex(out.shape[1:]):
        out[:, k, i, j] = x[:, k * r * r + i % r * r + j % r, i // r, j // r]
    return {"Out": out}


@reference("space_to_depth")
def space_to_depth(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    """Paddle's: an image with fewer channels and more pixels, read as one with more channels and fewer."""
    x, b = ins["X"], attrs["blocksize"]
    n, c, h, w = x.shape
    large = np.zeros((n, c // b**2, h * b, w * b))
    for k, i, j in np.ndindex(c, h, w):
        block, channel = divmod(k, c // b**2)
        large[:, channel, i * b + block // b, j * b + block % b] = x[:, k, i, j]
    return {"Out": large.reshape(n, c * b**2, h // b, w // b)}


@reference("shuffle_channel")
def shuffle_channel(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    each = x.shape[1] // attrs["group"]
    order = [g * each + i for i in range(each) for g in range(attrs["group"])]
    return {"Out": x[:, order]}


@reference("temporal_shift")
def temporal_shift(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, frames = ins["X"], attrs["seg_num"]
    channels = x.shape[1]
    first, second = (int(channels * attrs["shift_ratio"] * k) for k in (1, 2))
    out = np.zeros_like(x)
    for t, c in np.ndindex(*x.shape[:2]):
        source = t % frames + (-1 if c < first else 1 if c < second else 0)
        if 0 <= source < frames:
            out[t, c] = x[t - t % frames + source, c]
    return {"Out": out}
