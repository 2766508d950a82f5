"""Attention in tiles: many blocks and tiles, of all layouts, masks and kinds of dropout, as NumPy's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.capabilities import capabilities, installed
from rowlock.executor.kernels.loops import attention_tiles as tiles
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ir.graph import Graph, Node, Value
from rowlock.graph.lowering.select import select_kernels
from rowlock.graph.ops.registry import Spec
from rowlock.strategies.types import VarType
from tests.conftest import product

OP = "fused_dot_product_attention"
B, H, T, D = 2, 3, 37, 8
MASKS: list[tuple[tuple[int, ...], int]] = [
    ((), -1), ((T, T), -1), ((B, 1, 1, T), -1), ((B, H, T, T), 0), ((B,), 0), ((H, T), 1),
]  # fmt: skip
DROPOUT = {"dropout_prob": 0.3, "name": "dropped", "seed": 5, "fix_seed": True}
Arrays = dict[str, list[Any]]

needed = pytest.mark.skipif(
    not {"onednn", "llvm"} <= installed().keys(), reason="oneDNN or LLVM is not installed"
)


def arrays(layout: str, mask: tuple[int, ...]) -> Arrays:
    draw = np.random.default_rng(1)
    shape = (B, T, H, D) if layout == "bthd" else (B, H, T, D)
    shapes = {"Q": shape, "K": shape, "V": shape}
    if layout == "packed":
        shapes = {"Q": (B, T, 3, H, D)}
    shapes |= {"Mask": mask} if mask else {}
    return {slot: [draw.standard_normal(s).astype("f4")] for slot, s in shapes.items()}


def both_passes(back_end: str, layout: str, read: Arrays, attrs: dict[str, Any]) -> list[Any]:
    """Return Out and all gradients."""
    shape = (B, H, T, D) if layout == "bhtd" else (B, T, H, D)
    sizes = {"Out": shape, "SoftmaxMax": (B, H, T), "SoftmaxSum": (B, H, T)}
    outputs: Arrays = {slot: [np.full(s, np.nan, "f4")] for slot, s in sizes.items()}
    for step in bind(OP, read, outputs, attrs, Device(), back_end):
        step()
    d_out = np.random.default_rng(2).standard_normal(shape).astype("f4")
    grads: Arrays = {f"{s}@GRAD": [np.full(a[0].shape, np.nan, "f4")] for s, a in read.items()}
    operands = {**read, **outputs, "Out@GRAD": [d_out]}
    for step in bind(f"{OP}_grad", operands, grads, attrs, Device(), back_end):
        step()
    return [outputs["Out"][0], *(many[0] for many in grads.values())]


@needed
@product(
    16,
    layout=["bhtd", "bthd", "packed"],
    masked=[*MASKS, ("causal", -1)],
    dropout=[{}, DROPOUT, {**DROPOUT, "is_test": True}],
    size=[1 << 9, 1 << 13],
)
def test_tiles_agree_with_numpy(
    layout: str,
    masked: tuple[tuple[int, ...] | str, int],
    dropout: dict[str, Any],
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mask, axis = masked
    for name in ("LEAST_ROWS", "TILE_ROWS"):
        monkeypatch.setattr(tiles, name, 16)
    for name in ("FORWARD_BYTES", "TILE_BYTES"):
        monkeypatch.setattr(tiles, name, size)
    attrs = {"scale": 0.4, "layout": layout, "mask_axis": axis, "dropout": dropout}
    read = arrays(layout, () if isinstance(mask, str) else mask)
    if mask == "causal":
        read["Mask"] = [np.triu(np.full((T, T), np.float32(-1e9)), 1)]
    expected = both_passes("numpy", layout, read, attrs)
    attrs["causal"] = mask == "causal"  # NumPy's kernel looks at the mask alone
    ours = both_passes("onednn", layout, read, attrs)
    for array, value in zip(ours, expected, strict=True):
        np.testing.assert_allclose(array, value, rtol=2e-4, atol=2e-5)


@needed
@pytest.mark.parametrize(
    ("libraries", "only", "chosen"),
    [
        (("llvm", "onednn"), (), "onednn"),
        (("llvm", "onednn"), ("matmul",), "llvm"),
        (("llvm",), (), "llvm"),
        (("onednn",), (), "numpy"),
        ((), (), "numpy"),
    ],
)
def test_its_products_are_onednns_only_where_all_may_use_it(
    libraries: tuple[str, ...], only: tuple[str, ...], chosen: str
) -> None:
    shapes = {"Q": (B, H, T, D), "K": (B, H, T, D), "V": (B, H, T, D)}
    outputs = {"Out": (B, H, T, D), "SoftmaxMax": (B, H, T), "SoftmaxSum": (B, H, T)}
    values = [
        {slot: (Value(slot, Spec(shape, VarType.FP32)),) for slot, shape in sizes.items()}
        for sizes in (shapes, outputs)
    ]
    node = Node(OP, *values, {"scale": 1.0, "layout": "bhtd", "mask_axis": -1, "dropout": {}})
    kernels = select_kernels(
        Graph((node,), (), {}), capabilities(frozenset(libraries)), "numpy", {"onednn": only}
    )
    assert kernels[node] == chosen
