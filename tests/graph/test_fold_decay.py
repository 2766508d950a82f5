"""L2 decay is added by updates: to float32 masters, where parameters are of low precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock import static
from rowlock.graph.ir.graph import Graph
from rowlock.graph.ir.reader import from_program
from rowlock.graph.passes.target import Target
from rowlock.graph.pipeline import run_pipeline
from rowlock.strategies.build import BuildStrategy
from tests.programs import own_programs

L = fluid.layers
WIDTH, DECAY = 8, 1e-3
METHODS: dict[str, Any] = {
    "sgd": lambda **how: fluid.optimizer.SGD(0.5, **how),
    "momentum": lambda **how: fluid.optimizer.Momentum(0.5, 0.9, **how),
    "adam": lambda **how: fluid.optimizer.Adam(0.01, **how),
}


def program(method: str, level: str = "O2") -> tuple[Any, Any, Any, Any]:
    with own_programs(4) as (main, startup):
        x = fluid.data("x", [None, WIDTH])
        ones = fluid.ParamAttr("w", fluid.initializer.Constant(1.0))
        loss = L.mean(L.square(L.fc(x, 2, param_attr=ones)))
        decay = fluid.regularizer.L2Decay(DECAY)
        optimizer = METHODS[method](regularization=decay)
        if level != "O0":
            optimizer = static.amp.decorate(optimizer, level=level, dtype="bfloat16")
        optimizer.minimize(loss)
    return main, startup, loss, optimizer


def changed(method: str, level: str) -> Graph:
    main, _, loss, _ = program(method, level)
    target = Target(strategy=BuildStrategy(), fetches=(loss.name,))
    return run_pipeline(from_program(main, ["x"]), target)[0]


def decayed(method: str, level: str, steps: int) -> np.ndarray:
    """Return how weights of 1 shrink where every gradient is zero."""
    main, startup, _, optimizer = program(method, level)
    place, scope = fluid.CPUPlace(), fluid.Scope()
    exe = fluid.Executor(place)
    with fluid.scope_guard(scope):
        exe.run(startup)
        if level == "O2":
            optimizer.amp_init(place)
        for _ in range(steps):
            exe.run(main, feed={"x": np.zeros((3, WIDTH), "float32")})
        name = next(n for n in ("w_fp32_master_0", "w") if scope.find_var(n) is not None)
        return np.array(scope.find_var(name).get_tensor())


@pytest.mark.parametrize("method", METHODS)
def test_a_master_decays_as_a_single_parameter_does(method: str) -> None:
    moved, exact = (1 - decayed(method, level, 20) for level in ("O2", "O0"))
    assert exact.min() > 5e-3
    np.testing.assert_allclose(moved, exact, rtol=1e-4)


@pytest.mark.parametrize("level", ["O0", "O2"])
@pytest.mark.parametrize("method", METHODS)
def test_nothing_but_the_update_is_left(method: str, level: str) -> None:
    nodes = changed(method, level).nodes
    (first, second) = (node for node in nodes if node.op == method)
    assert {first.attrs["l2_decay"], second.attrs["l2_decay"]} == {DECAY}
    assert not [node for node in nodes if node.op == "scale" and "Param" in node.inputs]
    assert "sum" not in {node.op for node in nodes}
