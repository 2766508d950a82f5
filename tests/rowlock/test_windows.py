"""Convolutions and pools of both APIs: shapes that are known while a program is built, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock.fluid import layers as L

F = paddle.nn.functional


def image(*shape: int | None) -> Any:
    return paddle.static.data(fluid.unique_name.generate("x"), [None, *shape])


def transposed(*windows: int, **more: Any) -> Any:
    return F.conv2d_transpose(image(3, 4, 4), image(2, 3, 3), None, *windows, **more)


@pytest.fixture(autouse=True)
def program() -> Any:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        yield


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: L.conv2d_transpose(image(3, 4, 5), 6, filter_size=3, stride=2), (-1, 6, 9, 11)),
        (lambda: L.conv2d_transpose(image(3, 4, 5), 6, [8, 10], stride=2), (-1, 6, 8, 10)),
        (lambda: L.conv2d_transpose(image(3, None, 5), 6, filter_size=2), (-1, 6, -1, 6)),
        (lambda: L.conv2d_transpose(image(3, 4, 6), 6, filter_size=2, data_format="NHWC"), (-1, 4, 5, 6)),
        (lambda: L.conv3d(image(2, 4, 4, 6), 3, [1, 2, 3], padding=[0, 1, 0]), (-1, 3, 4, 5, 4)),
        (lambda: L.conv3d(image(4, 4, 6, 2), 3, 3, padding="same", data_format="NDHWC"), (-1, 4, 4, 6, 3)),
        (lambda: L.conv3d_transpose(image(2, 3, 3, 3), 4, filter_size=2, stride=2), (-1, 4, 6, 6, 6)),
        (lambda: L.conv3d_transpose(image(2, 2, 2, 4), 4, 4, data_format="NDHWC"), (-1, 4, 4, 4, 4)),
        (lambda: L.pool3d(image(2, 5, 5, 5), 2, "avg", 2, ceil_mode=True), (-1, 2, 3, 3, 3)),
        (lambda: L.pool3d(image(2, 5, 5, 5), global_pooling=True), (-1, 2, 1, 1, 1)),
        (lambda: L.pool2d(image(2, 6, 5), 7, "avg", 7), (-1, 2, 1, 1)),
        (lambda: L.pool2d(image(2, 6, 5), 9, "max", 4, ceil_mode=True), (-1, 2, 1, 1)),
        (lambda: L.adaptive_pool2d(image(2, None, None), [3, 2]), (-1, 2, 3, 2)),
        (lambda: L.adaptive_pool2d(image(2, 7, 7), 3, require_index=True)[1], (-1, 2, 3, 3)),
        (lambda: L.adaptive_pool3d(image(2, 7, 7, 7), 3, "avg"), (-1, 2, 3, 3, 3)),
        (lambda: F.adaptive_avg_pool3d(image(2, 7, 6, 5), [None, 3, None]), (-1, 2, 7, 3, 5)),
        (lambda: paddle.nn.Conv1DTranspose(2, 3, 3, 2, output_padding=1)(image(2, 5)), (-1, 3, 12)),
        (lambda: paddle.nn.Conv2DTranspose(2, 3, 3, 2)(image(2, 5, 5), [12, 11]), (-1, 3, 12, 11)),
        (lambda: F.max_pool1d(image(2, 9), 3, return_mask=True)[1], (-1, 2, 3)),
        (lambda: F.max_pool2d(image(2, 5, 5), 2, 2, "SAME", True)[1], (-1, 2, 3, 3)),
    ],
)  # fmt: skip
def test_shapes(build: Callable[[], Any], shape: tuple[int, ...]) -> None:
    assert tuple(build().shape) == shape


@pytest.mark.parametrize(
    ("refused", "error", "words"),
    [
        (lambda: L.conv2d_transpose([1], 2, filter_size=3), TypeError, "input must be a Variable"),
        (lambda: L.conv2d_transpose(image(3, 4, 4), 2), ValueError, "give filter_size, or output_size"),
        (lambda: L.conv2d_transpose(image(3, 4), 2, filter_size=3), ValueError, "4 dimensions"),
        (lambda: L.conv2d_transpose(image(None, 4, 4), 2, 6), ValueError, "must be known"),
        (lambda: L.conv2d_transpose(image(3, 4, 4), 2, 20, 3), ValueError, "output_size .* from 6 to 6"),
        (lambda: L.conv2d_transpose(image(3, 4, 4), 2, 6, param_attr=False), AssertionError, "filters"),
        (lambda: L.conv2d_transpose(image(3, 4, 4), 2, 6, groups=2), ValueError, "do not split in 2"),
        (lambda: L.conv3d(image(3, 4, 4, 4), 2, 3, data_format="NCHW"), ValueError, "'NCDHW' or 'NDHWC'"),
        (lambda: L.conv3d(image(3, 4, 4, 4), 2.5, 3), TypeError, "num_filters must be an int"),
        (lambda: L.conv3d(image(3, 4, 4, 4), 2, [3, 3]), ValueError, "list of three"),
        (lambda: L.conv3d(image(3, 4, 4, 4), 2, 3, padding=-1), ValueError, "not be below 0"),
        (lambda: L.conv3d(image(3, 4, 4, 4), 2, 3, padding="full"), ValueError, "'SAME', 'VALID'"),
        (lambda: L.conv3d(image(3, 2, 4, 4), 2, 3), ValueError, "larger than the padded image"),
        (lambda: L.pool2d(image(3, 4, 4), 7, "avg", 3), ValueError, "larger than the padded image"),
        (lambda: L.pool3d(image(3, 4, 4, 4), 2, "sum"), ValueError, "'max' or 'avg'"),
        (lambda: L.pool3d(image(3, 4, 4, 4)), ValueError, "pool_size is needed"),
        (lambda: L.pool3d(image(3, 4, 4, 4), 2, use_cudnn=1), TypeError, "use_cudnn"),
        (lambda: L.pool3d(image(3, 4, 4, 4), 2, pool_stride=0), ValueError, "must be above 0"),
        (lambda: L.adaptive_pool2d(image(3, 4, 4), "2"), TypeError, "pool_size must be an int"),
        (lambda: L.adaptive_pool3d(image(3, 4, 4, 4), 2, "avg", True), ValueError, "require_index"),
        (lambda: transposed(2, 0, 2), ValueError, "output_padding"),
        (lambda: transposed(1, 0, 1, output_size=9), ValueError, "exclude"),
        (lambda: F.conv3d(image(3, 4, 4), image(3, 3, 3)), ValueError, "x must have 5 dimensions"),
        (lambda: F.max_pool2d(image(4, 4, 3), 2, return_mask=True, data_format="NHWC"), ValueError, "'NCHW'"),
        (lambda: F.max_pool3d(image(3, 4, 4, 4), 0), ValueError, "must be above 0"),
        (lambda: F.avg_pool3d(image(3, 4, 4, 4), 2, divisor_override=0), ValueError, "divisor_override"),
        (lambda: F.adaptive_max_pool2d(image(3, 4, 4), 2, 1), TypeError, "return_mask"),
        (lambda: F.adaptive_avg_pool2d(image(3, None, 4), [None, 2]), ValueError, "known and above 0"),
        (lambda: F.max_unpool2d(image(3, 2, 2), image(3, 2, 2), 2), ValueError, "must hold integers"),
        (lambda: F.max_unpool1d(image(3, 2), image(3, 2), 2, output_size=[9]), ValueError, "between 3 and 5"),
        (lambda: paddle.nn.Conv2DTranspose(0, 3, 3), ValueError, "in_channels must be above 0"),
        (lambda: paddle.nn.Conv3D(3, 4, 3, groups=0), ValueError, "groups must be above 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    refused: Callable[[], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        refused()
