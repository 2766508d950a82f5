"""Images read at positions, one element at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("affine_channel")
def affine_channel(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"] if attrs["data_layout"] == "NHWC" else np.moveaxis(ins["X"], 1, -1)
    out = x * ins["Scale"] + ins["Bias"]
    return {"Out": out if attrs["data_layout"] == "NHWC" else np.moveaxis(out, -1, 1)}


@reference("affine_grid")
def affine_grid(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    n, _, height, width = attrs["output_shape"]
    out = np.zeros((n, height, width, 2))
    for i, j in np.ndindex(height, width):
        x, y = (
            -1 + 2 * k / max(size - 1, 1) if attrs["align_corners"] else (2 * k + 1) / size - 1
            for k, size in ((j, width), (i, height))
        )
        out[:, i, j] = ins["Theta"] @ np.array([x, y, 1.0])
    return {"Output": out}


def _place(p: float, size: int, attrs: dict[str, Any]) -> float:
    corners = attrs["align_corners"]
    p = (p + 1) / 2 * (size - 1) if corners else ((p + 1) * size - 1) / 2
    low, high = (0, size - 1) if corners else (-0.5, size - 0.5)
    while attrs["padding_mode"] == "reflection" and not low <= p <= high:
        p = 2 * low - p if p < low else 2 * high - p
    return p if attrs["padding_mode"] == "zeros" else min(max(p, 0), size - 1)


@reference("grid_sampler")
def grid_sampler(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, grid = ins["X"], ins["Grid"]
    n, c, height, width = x.shape
    out = np.zeros((n, c, *grid.shape[1:3]))
    for b, i, j in np.ndindex(*grid.shape[:3]):
        px, py = _place(grid[b, i, j, 0], width, attrs), _place(grid[b, i, j, 1], height, attrs)
        if attrs["mode"] == "nearest":
            px, py = np.floor(px + 0.5), np.floor(py + 0.5)
        for row, column in np.ndindex(height, width):
            share = max(0, 1 - abs(px - column)) * max(0, 1 - abs(py - row))
            out[b, :, i, j] += share * x[b, :, row, column]
    return {"Output": out}


@reference("deformable_conv", "deformable_conv_v1")
def deformable_conv(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, w, offset = ins["Input"], ins["Filter"], ins["Offset"]
    (n, c, height, width), (filters, per_group, kh, kw) = x.shape, w.shape
    parts, image = attrs["deformable_groups"], offset.shape[2:]
    mask = ins.get("Mask", np.ones((n, parts * kh * kw, *image)))
    out = np.zeros((n, filters, *image))
    for b, o, i, j, ch, ki, kj in np.ndindex(n, filters, *image, per_group, kh, kw):
        channel = o // (filters // attrs["groups"]) * per_group + ch
        tap = (channel // (c // parts) * kh + ki) * kw + kj
        y, z = (
            at * attrs["strides"][k] - attrs["paddings"][k] + step * attrs["dilations"][k]
            + offset[b, 2 * tap + k, i, j]
            for k, at, step in ((0, i, ki), (1, j, kj))
        )  # fmt: skip
        share_y = np.maximum(0, 1 - np.abs(y - np.arange(height)))
        share_x = np.maximum(0, 1 - np.abs(z - np.arange(width)))
        value = share_y @ x[b, channel] @ share_x
        out[b, o, i, j] += w[o, ch, ki, kj] * mask[b, tap, i, j] * value
    return {"Output": out}
