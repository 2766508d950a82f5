"""Losses that depend on gradients: what Paddle computes, on one place and several, with every switch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy
from tests.conftest import lasting
from tests.reference import double_gradients as nets

from .test_switches import OFF, ON, REDUCE

RECORD = json.loads((Path(nets.__file__).with_suffix(".json")).read_text())
L = fluid.layers


def built(name: str) -> tuple[fluid.Program, Any, list[Any]]:
    """Build a net and give its parameters the values that they begin with."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, others = nets.NETS[name](fluid)
    fluid.Executor(fluid.CPUPlace()).run(startup)
    for p in main.all_parameters():
        tensor = fluid.global_scope().find_var(p.name).get_tensor()
        tensor.set(nets.initial(p.name, p.shape), fluid.CPUPlace())
    return main, loss, others


def close(found: Any, expected: Any) -> None:
    size = max(1e-3, float(np.abs(expected).max()))
    np.testing.assert_allclose(np.ravel(found), np.ravel(expected), rtol=1e-4, atol=1e-4 * size)


@pytest.mark.parametrize("name", nets.NETS)
def test_they_compute_what_paddle_does(name: str) -> None:
    with fluid.scope_guard(fluid.Scope()):
        main, loss, others = built(name)
        exe = fluid.Executor(fluid.CPUPlace())
        for step, expected in enumerate(RECORD[name]["steps"]):
            values = exe.run(main, feed=nets.feeds(step), fetch_list=[loss, *others])
            for value, reference in zip(values, expected, strict=True):
                close(value, reference)


# Where the gradient of a target begins, Paddle takes two ops; this gradient is computed from one operand more.
SEEDED = {"shape", "fill_constant", "fill_any_like"}
OURS = {"elementwise_div_grad_grad": "DOutput"}


@pytest.mark.parametrize("name", nets.NETS)
def test_ops_and_names_are_paddles(name: str) -> None:
    with fluid.scope_guard(fluid.Scope()):
        main, _, _ = built(name)
    found = [nets.described(op) for op in main.global_block().ops]
    for op in found:
        op[1].pop(OURS.get(op[0], ""), None)
    theirs = [op for op in RECORD[name]["ops"] if op[0] not in SEEDED]
    assert [op for op in found if op[0] not in SEEDED] == theirs


@pytest.mark.parametrize("reduces", [False, True], ids=["all_reduce", "reduce"])
@pytest.mark.parametrize(
    "switches", [ON, OFF, {**ON, "verify_passes": True}], ids=["on", "off", "verified"]
)
@pytest.mark.parametrize("name", ["wgan_gp", "wide"])
def test_two_places_compute_what_one_does(name: str, switches: Any, reduces: bool) -> None:
    strategy = BuildStrategy(**{**switches, **(REDUCE if reduces else {})})
    with fluid.scope_guard(fluid.Scope()), lasting("threads"):
        main, loss, others = built(name)
        program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name, build_strategy=strategy, places=fluid.cpu_places(2)
        )
        exe = fluid.Executor(fluid.CPUPlace())
        for step, expected in enumerate(RECORD[name]["steps"]):
            values = exe.run(program, feed=nets.feeds(step), fetch_list=[loss, *others])
            for value, reference in zip(values, expected, strict=True):
                close(np.mean(value), reference)


class _Layers:
    """Layers by the names that ``of_2x`` uses."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        own = {"sum": L.reduce_sum, "rsqrt": L.rsqrt}
        return own.get(name) or getattr(L, name)

    def data(self, name: str, shape: Any) -> Any:
        if name not in self.known:
            self.known[name] = fluid.data(name, shape, "float32")
            self.known[name].stop_gradient = False
        return self.known[name]

    parameter = data

    def leaky_relu(self, x: Any) -> Any:
        return L.leaky_relu(x, 0.01)

    def gradients(self, targets: Any, inputs: Any) -> Any:
        return fluid.gradients(targets, inputs)


@pytest.mark.parametrize("name", RECORD["of_2x"])
def test_functions_of_2x(name: str) -> None:
    main, net = fluid.Program(), _Layers()
    with fluid.program_guard(main):
        loss, grads = nets.of_2x(net, name)
    given = {key: value for key, value in nets.inputs_of_2x().items() if key in net.known}
    with fluid.scope_guard(fluid.Scope()):
        values = fluid.Executor(fluid.CPUPlace()).run(main, feed=given, fetch_list=[loss, *grads])
    for value, reference in zip(values, RECORD["of_2x"][name], strict=True):
        close(value, reference)
