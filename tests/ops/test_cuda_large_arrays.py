"""Arrays of more elements than 32 bits count: memory is reserved for them, and hardly any is touched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rowlock.executor.codegen.cuda_launches import Argument, each, ints, read, run, written
from rowlock.executor.cuda.memory import DeviceMemory
from rowlock.executor.cuda.runtime import Step
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import Region
from rowlock.executor.kernels.array.conv import Geometry
from rowlock.executor.kernels.cublaslt import conv
from rowlock.executor.kernels.cuda import by_index, pool, selected_rows, tiles
from rowlock.executor.simulated.simulated import SimulatedRuntime
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import Unsupported
from tests.ops.cuda_cases import CUDA
from tests.ops.gpu import gpu, needs_compiler
from tests.ops.harness import run as run_op

pytestmark = needs_compiler
LAST = 40


def reserved(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array of zeros in address space."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    return Region(nbytes).bytes.view(dtype).reshape(shape)


def simulated() -> Device:
    runtime = SimulatedRuntime(0)
    return Device(runtime=runtime, memory=DeviceMemory(runtime))


def last_of_each(
    dev: Device, name: str, body: str, arguments: list[Argument], count: int, **how: Any
) -> Step:
    """Return the launch of ``each`` for the last elements alone."""
    index = how.pop("index", "unsigned")
    loop = f"for ({index} i = {count - LAST}; i < {count}; i++) {{{body}}}"
    return run(dev, name, loop, arguments, 1, block=1, **how)


def geometry(channels: int, size: int, kernel: int, stride: int) -> Geometry:
    """Return one image, and one window of it for each place of a square result."""
    out = (size - kernel) // stride + 1
    x, w = (1, channels, size, size), (1, channels, kernel, kernel)
    return Geometry(x, w, (1, 1, out, out), [stride, stride], [1, 1], [(0, 0), (0, 0)], 1)


def test_windows_of_more_elements_than_32_bits_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv, "each", last_of_each)
    geo = geometry(1, 21848, kernel=3, stride=1)
    images, windows = reserved(geo.x, np.float16), reserved((9, *geo.out[2:]), np.float16)
    assert windows.size > 1 << 32
    images[0, 0, -1, -LAST:] = np.arange(1, 1 + LAST)
    conv._launch(simulated(), geo, "unfold", images, windows, windows.size)()
    np.testing.assert_array_equal(windows[-1, -1, -LAST:], np.arange(1, 1 + LAST))


def test_an_image_of_more_elements_than_31_bits_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its channels lie last, so that the last row of pixels begins further on than that."""
    dev, channels, size = simulated(), 3, 32768
    geo = geometry(channels, size, kernel=2, stride=size - 2)
    images = reserved((1, size, size, channels), np.float16).transpose(0, 3, 1, 2)
    windows = np.zeros((channels, 2, 2, 2, 2), np.float16)
    images[0, :, -1, -1] = 1, 2, 3
    conv._launch(dev, geo, "unfold", images, windows, windows.size)()
    np.testing.assert_array_equal(windows[:, 1, 1, 1, 1], [1, 2, 3])
    assert np.count_nonzero(windows) == channels
    monkeypatch.setattr(conv, "each", last_of_each)
    conv._launch(dev, geo, "fold", images, 7 * windows.astype(np.float32), images.size)()
    np.testing.assert_array_equal(images[0, :, -1, -1], [1, 2, 21])


def test_sums_of_more_than_a_billion_rows() -> None:
    rows = (1 << 30) + 8
    keys, ends = np.array([rows - 3, rows - 3, rows - 1, rows], np.int32), reserved((rows, 2), "i4")
    arguments = [*read(keys=keys), *written(ends=ends), *ints(rows=rows)]
    each(simulated(), "sort_ends", by_index._ENDS, arguments, len(keys))()
    np.testing.assert_array_equal(ends[-4:], [[0, 0], [0, 2], [0, 0], [2, 3]])


def test_channels_of_more_vectors_than_31_bits_count_are_refused() -> None:
    images = reserved((3, 2, (1 << 15) - 1, (1 << 15) + 1), np.float16)
    with pytest.raises(Unsupported, match="fewer than 2,147,483,648 elements"):
        tiles.Channels(simulated(), "NCHW", images)


def test_one_row_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a kernel counts elements of are cut in halves; of one there are none."""
    for module in (pool, by_index, selected_rows):
        monkeypatch.setattr(module, "MOST", 3)
    how = {"dev": gpu(), **CUDA}
    image = np.arange(48.0, dtype=np.float32).reshape(1, 3, 4, 4)
    attrs = {**OPS["pool2d"].attrs, "ksize": [2, 2], "strides": [2, 2]}
    (out,) = run_op(OPS["pool2d"], {"X": [image]}, attrs, **how)["Out"]
    np.testing.assert_array_equal(out, image[:, :, 1::2, 1::2])
    table, last = np.arange(40.0, dtype=np.float32).reshape(2, 20), np.array([1])
    for op, operands in (
        ("gather", {"X": [table], "Index": [last]}),
        ("take_rows", {"Table": [table], "Rows": [last]}),
    ):
        (out,) = run_op(OPS[op], operands, dict(OPS[op].attrs), **how)["Out"]
        np.testing.assert_array_equal(out, table[1:])
