"""What is fed: numbers and samples that do not fit their variables are refused, and what is kept is a copy."""

from __future__ import annotations

import datetime
from collections import deque
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.device.tensor import Tensor
from rowlock.executor.feed.feeds import snapshot, to_array
from rowlock.graph.program.variable import Variable
from rowlock.strategies.errors import FeedError, FeedTypeError
from rowlock.strategies.types import BFLOAT16
from tests.programs import on_places


class Unreadable:
    """Something that cannot become an array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise RuntimeError("it is on another device")


def declared(dtype: str) -> Variable:
    main = fluid.Program()
    with fluid.program_guard(main):
        return fluid.layers.data("y", [1], dtype=dtype, append_batch_size=False)


HUGE = 10**30
NUMBERS: dict[str, list[tuple[Any, Any]]] = {  # None: it does not fit
    "uint8": [(0, 0), (255, 255), (256, None), (-1, None), (300.0, None), (7.9, 7), (True, 1)],
    "int32": [(-(2**31), -(2**31)), (2**31, None), (HUGE, None), (1e300, None), (np.nan, None)],
    "int64": [(2**63 - 1, 2**63 - 1), (2**63, None), (-HUGE, None), (np.inf, None), (-1.5, -1)],
    "float16": [(65504, 65504), (65536, None), (np.inf, np.inf), (-HUGE, None)],
    "bfloat16": [(1e38, None), (3.0, 3), (1e300, None)],
    "float32": [(HUGE, np.float32(1e30)), (1e39, None), (10**400, None), (-np.inf, -np.inf)],
    "float64": [(1e300, 1e300), (10**400, None), (10**5000, None)],
    "bool": [(HUGE, True), (0.0, False), (-1, True)],
}
NUMBERS["bfloat16"][0] = (1e38, BFLOAT16.type(1e38))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_number_fits_or_is_refused(dtype: str) -> None:
    variable = declared(dtype)
    for value, expected in NUMBERS[dtype]:
        if expected is None:
            with pytest.raises(
                FeedError, match=rf"feed 'y': .* not fit its dtype {dtype}, which holds"
            ):
                to_array("y", value, variable)
        else:
            array = to_array("y", value, variable)
            assert array.shape == (1,) and str(array.dtype) == dtype and array[0] == expected
    assert to_array("y", np.int64(1), variable).shape == (1,)


def test_what_holds_no_numbers_is_refused() -> None:
    """Each one is a FeedError that names the variable; none is an error of NumPy."""
    when = datetime.datetime(2020, 1, 1)
    values = [
        1j,
        np.complex64(1),
        np.array([1j]),
        None,
        "1",
        b"1",
        [1],
        [[1], [1, 2]],
        (1,),
        {},
        {1},
    ]
    values += [
        object(),
        Unreadable(),
        when,
        np.datetime64("2020"),
        np.array([when]),
        np.array(["a"]),
    ]
    values += [np.array([HUGE]), np.array([1], "u8"), np.array([1], ">f4"), np.longdouble([1])]
    values += [deque([[1], [1, 2]]), np.zeros(2, "i4,f4"), np.array([b"a"]), 1 << 64]
    main = fluid.Program()
    with fluid.program_guard(main):
        y = fluid.layers.data("y", [1], dtype="int32", append_batch_size=False)
        twice = fluid.layers.scale(y, 2.0)
    for value in values:
        for program in (main, fluid.CompiledProgram(main)):
            with pytest.raises(FeedError, match="feed 'y'"):
                fluid.Executor().run(program, {"y": value}, [twice])
    assert fluid.Executor().run(main, {"y": 21}, [twice])[0].tolist() == [42]


def test_rows_of_different_lengths_are_told_as_such() -> None:
    main = fluid.Program()
    with fluid.program_guard(main):
        twice = fluid.layers.scale(fluid.data("y", [None, 2]), 2.0)
    rows = np.array([[1.0, 2.0], [1.0]], object)
    with pytest.raises(
        FeedTypeError, match=r"'y'.*rows of different lengths.*Pad.*create_lod_tensor"
    ):
        fluid.Executor().run(main, {"y": rows}, [twice])


@pytest.mark.parametrize(
    ("dtype", "samples"),
    [
        ("int64", [HUGE]),
        ("int32", [2**31]),
        ("uint8", [300]),
        ("int64", [np.nan]),
        ("int32", [np.array([2**40])]),
        ("int32", [np.array([1e20])]),
        ("float32", [1e39]),
        ("float32", [np.array([1e39])]),
        ("float32", [1j]),
        ("float32", [np.array([1j])]),
        ("float32", [None]),
        ("int64", [datetime.datetime(2020, 1, 1)]),
        ("int64", [np.array(["2020"], "M8[D]")]),
        ("float32", [[1.0, 2.0], [1.0]]),
        ("float32", [Unreadable()]),
    ],
)
def test_samples_that_do_not_fit_are_refused(dtype: str, samples: list[Any]) -> None:
    main = fluid.Program()
    with fluid.program_guard(main):
        plain = fluid.layers.data("y", [1], dtype=dtype)
        rows = fluid.layers.data("z", [1], dtype=dtype, lod_level=1)
    with pytest.raises(FeedError, match=f"'y' cannot be joined as {dtype}"):
        fluid.DataFeeder([plain], fluid.CPUPlace(), main).feed([(one,) for one in samples])
    with pytest.raises(FeedError, match=f"'z' cannot be joined as {dtype}"):
        fluid.DataFeeder([rows], fluid.CPUPlace(), main).feed([(samples,)])


def test_what_is_kept_is_a_copy_unless_it_cannot_change() -> None:
    array = np.arange(6.0)
    for value in (array, array[::2], array.view(np.ndarray)[1:], np.broadcast_to(array, (2, 6))):
        assert not np.shares_memory(snapshot(value, value), array)
    fixed = np.arange(6.0)
    fixed.flags.writeable = False
    assert np.shares_memory(snapshot(fixed[::2], fixed[::2]), fixed)
    view = array[:]
    view.flags.writeable = False  # its owner can still be written
    assert not np.shares_memory(snapshot(view, view), array)
    buffer = bytearray(b"abc")
    assert not np.shares_memory(snapshot(buffer, raw := np.asarray(memoryview(buffer))), raw)
    tensor = Tensor("y")
    tensor.set(array)
    own = tensor.numpy()
    assert snapshot(tensor, own) is own
    variable = fluid.Program().global_block().create_var(name="x", shape=[6], dtype="float64")
    assert not np.shares_memory(to_array("x", tensor, variable), tensor.memory())
    pinned = fluid.Tensor()
    pinned.set(array, fluid.CUDAPinnedPlace())
    fed = to_array("x", pinned, variable)
    assert fed is pinned.memory(), "a step reads it before the caller can change it"
    assert not np.shares_memory(snapshot(pinned, fed), fed), (
        "one that goes on beside the caller does not"
    )


def test_errors_are_of_one_family() -> None:
    with pytest.raises(
        FeedTypeError, match=r"Unreadable cannot be read as an array: it is on another"
    ):
        to_array("y", Unreadable(), declared("float32"))


def test_declared_rows_are_those_of_a_place() -> None:
    """A dict feed has as many for each place, as in Paddle; as many as declared go to all places."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [2, 3])
        out = fluid.layers.reduce_sum(x, dim=1)
    program = on_places(main, 2)
    exe = fluid.Executor(fluid.CPUPlace())
    rows = np.arange(12, dtype="float32").reshape(4, 3)
    with rowlock.cluster(launcher="threads"):
        for feed, expected in ((rows, rows), (rows[:2], [*rows[:2], *rows[:2]])):
            for _ in range(2):
                (sums,) = exe.run(program, {"x": feed}, [out])
                assert sums.tolist() == np.sum(expected, axis=1).tolist()
        for wrong in (rows[:3], np.tile(rows, (2, 1))):
            with pytest.raises(FeedError, match=r"its declaration says shape \[2, 3\], got"):
                exe.run(program, {"x": wrong}, [out])
