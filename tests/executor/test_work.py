"""What benchmarks count as a program's work: multiply-adds that results need, each array's bytes once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from benchmarks.work import Work
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.shapes import infer_specs
from rowlock.graph.compile import compile_program
from rowlock.graph.passes.target import Target
from tests.programs import own_programs


def work_of(net: Any, shape: tuple[int, ...], padded: bool) -> dict[str, tuple[int, int]]:
    """Return (multiply-adds, bytes) of the ops of a net under training, those with products."""
    with own_programs() as (main, _):
        loss = fluid.layers.mean(net(fluid.data("x", list(shape))))
        fluid.optimizer.SGD(0.1).minimize(loss)
    able = capabilities()
    program = compile_program(main, ["x"], [loss.name], Target(), able).program
    specs = infer_specs(program, [spec_of(np.zeros(shape, "float32"))], lambda name: None)
    work = Work(specs, padded)  # type: ignore[no-untyped-call]
    counts = {n.op: (work.multiply_adds(n), work.nbytes(n)) for n in program.nodes}  # type: ignore[no-untyped-call]
    return {op: count for op, count in counts.items() if count[0]}


@pytest.mark.parametrize("padded", [False, True])
def test_taps_on_padding_count_if_asked(padded: bool) -> None:
    counts = work_of(
        lambda x: fluid.layers.conv2d(x, 5, 3, padding=1, bias_attr=False), (2, 3, 4, 4), padded
    )
    taps = (3 * 4) ** 2 if padded else (3 * 4 - 2) ** 2
    floats = 2 * 3 * 16 + 5 * 3 * 9 + 2 * 5 * 16
    assert counts["conv2d"] == (2 * 3 * 5 * taps, 4 * floats)
    assert counts["conv2d_grad"][0] == 2 * 3 * 5 * taps, "images that are fed get no gradient"


def test_products_count_by_gradients_that_are_written() -> None:
    counts = work_of(lambda x: fluid.layers.fc(fluid.layers.fc(x, 7), 5), (4, 3), False)
    assert counts == {
        "mul": (4 * 7 * 5, 4 * (4 * 7 + 7 * 5 + 4 * 5)),
        "mul_grad": (4 * 3 * 7, 4 * (4 * 3 + 3 * 7 + 4 * 7 + 3 * 7)),
    }, "the last of each: no gradient of what is fed"


def test_products_of_stacks() -> None:
    def net(x: Any) -> Any:
        y = fluid.layers.create_parameter([6, 3, 4], "float32")
        return fluid.layers.matmul(x, y, transpose_y=True)

    assert work_of(net, (6, 3, 4), False)["matmul"][0] == 6 * 3 * 4 * 3
