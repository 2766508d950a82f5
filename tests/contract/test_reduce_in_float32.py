"""Gradients in low precision that meet in float32: other buckets, the same learning, fewer roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock import static
from rowlock.graph.ir.graph import Graph
from rowlock.graph.ir.reader import from_program
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.graph.passes.target import Target
from rowlock.graph.pipeline import run_pipeline
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.types import VarType
from tests.programs import on_places, own_programs

L = fluid.layers
PLACES, WIDTH = 3, 6
REDUCE = {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce}


def program() -> tuple[Any, Any, Any, Any]:
    with own_programs(4) as (main, startup):
        x = fluid.data("x", [None, WIDTH])
        loss = L.mean(L.square(L.fc(L.fc(x, WIDTH, act="relu"), 2)))
        clip = fluid.clip.GradientClipByGlobalNorm(1.0)
        optimizer = fluid.optimizer.Momentum(0.1, 0.9, grad_clip=clip)
        optimizer = static.amp.decorate(optimizer, level="O2", dtype="bfloat16")
        optimizer.minimize(loss)
    return main, startup, loss, optimizer


def changed(**flags: Any) -> Graph:
    main, _, loss, _ = program()
    build = BuildStrategy(**flags)
    target = Target(replicas=PLACES, has_loss=True, strategy=build, fetches=(loss.name,))
    return run_pipeline(from_program(main, ["x"]), target)[0]


def reduced(graph: Graph) -> list[VarType]:
    return [v.spec.dtype for n in graph.nodes if n.op in COLLECTIVES for v in n.writes()]


@pytest.mark.parametrize("mode", [{}, REDUCE])
def test_gradients_meet_in_one_bucket_of_float32(mode: dict[str, Any]) -> None:
    low, wide = changed(**mode), changed(reduce_in_float32=True, **mode)
    assert set(reduced(low)[:4]) == {VarType.BF16}
    assert set(reduced(wide)[:4]) == {VarType.FP32}
    count = [sum(n.op in COLLECTIVES for n in graph.nodes) for graph in (low, wide)]
    assert count[0] == count[1], "casts of sums do not end buckets"


def learned(**flags: Any) -> dict[str, np.ndarray]:
    main, startup, loss, optimizer = program()
    place, scope = fluid.CPUPlace(), fluid.Scope()
    exe = fluid.Executor(place)
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(scope):
        exe.run(startup)
        optimizer.amp_init(place)
        run = on_places(main, PLACES, loss, build=flags)
        for step in range(5):
            x = np.random.default_rng(step).standard_normal((12, WIDTH)).astype("f4")
            exe.run(run, feed={"x": x}, fetch_list=[loss])
        names = [v.name for v in main.list_vars() if v.persistable and "master" in v.name]
        return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


@pytest.mark.parametrize("mode", [{}, REDUCE])
def test_what_is_learned_is_the_same_but_for_rounding(mode: dict[str, Any]) -> None:
    low, wide = learned(**mode), learned(reduce_in_float32=True, **mode)
    assert len(low) == 8
    for name, value in low.items():
        np.testing.assert_allclose(wide[name], value, atol=5e-3, err_msg=name)
