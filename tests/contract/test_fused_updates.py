"""One update op over many parameters trains like one op for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
import rowlock.optimizer
from rowlock.graph.ir.graph import STATE, Graph, Node, Value
from rowlock.graph.ops.registry import Spec
from rowlock.graph.passes.fuse_optimizers import fuse_optimizers
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.types import VarType
from tests.conftest import one_in
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.programs import executor_after, on_places, own_programs

RULES = {
    **OPTIMIZERS,
    "adamw": lambda **how: rowlock.optimizer.AdamW(
        0.01,
        epsilon=1e-3,
        weight_decay=0.3,
        lr_ratio=lambda p: 0.5 if len(p.shape) > 1 else 1.0,
        apply_decay_param_fun=lambda name: ".w_" in name,
        **how,
    ),
    "lamb": lambda **how: fluid.optimizer.Lamb(
        0.01, exclude_from_weight_decay_fn=lambda p: ".b_" in p.name, **how
    ),
    "lars": lambda **how: fluid.optimizer.LarsMomentum(0.1, 0.9, 0.1, **how),
    "ftrl": lambda **how: fluid.optimizer.Ftrl(0.1, l1=0.01, l2=0.1, **how),
    "nadam": lambda **how: rowlock.optimizer.NAdam(0.01, **how),
    "adagrad": lambda **how: fluid.optimizer.Adagrad(0.1, **how),
    "adamax": lambda **how: fluid.optimizer.Adamax(0.01, **how),
    "adadelta": lambda **how: fluid.optimizer.Adadelta(0.1, 1e-6, 0.9, **how),
    "decayed_adagrad": lambda **how: fluid.optimizer.DecayedAdagrad(0.1, **how),
}
Reduce = BuildStrategy.ReduceStrategy.Reduce


def trained(rule: Any, places: int, **build: Any) -> tuple[Net, Any]:
    net = Net(rule, layers=2)
    program = net.compiled(places, build=build)
    for step in range(4):
        net.run(program, feed(6, step), [net.loss])
    return net, program


@pytest.mark.parametrize("name", one_in(3, sorted(RULES)))
def test_parameters_are_the_same(name: str, threads: None) -> None:
    plain, _ = trained(RULES[name], 2)
    fused, program = trained(RULES[name], 2, fuse_all_optimizer_ops=True)
    assert_close(fused.parameters(), plain.parameters(), 1e-6)
    assert "6 updates in one" in str(program.explain())


def test_owners_update_what_is_theirs(gang: str) -> None:
    rule = OPTIMIZERS["adam"]
    plain, _ = trained(rule, 2, reduce_strategy=Reduce)
    fused, program = trained(rule, 2, reduce_strategy=Reduce, fuse_all_optimizer_ops=True)
    assert_close(fused.parameters(), plain.parameters(), 1e-6)
    assert "in one fused_adam" in str(program.explain())


@pytest.mark.cpu
def test_adamw_has_a_switch_of_its_own(threads: None) -> None:
    plain, _ = trained(RULES["adamw"], 2)
    fused, program = trained(RULES["adamw"], 2, fuse_adamw=True)
    assert_close(fused.parameters(), plain.parameters(), 1e-6)
    assert "fuse_adamw: fused 6 updates in one fused_adamw" in str(program.explain())
    _, program = trained(RULES["adamw"], 1, fuse_adamw=True, fuse_all_optimizer_ops=True)
    assert "nothing fused: all updates are in fused_adamw already" in str(program.explain())
    _, program = trained(RULES["adam"], 1, fuse_adamw=True)
    assert "nothing fused: the program has no update by adamw" in str(program.explain())


def _value(name: str, version: int = 0, kind: str = STATE, size: int = 3) -> Value:
    return Value(name, Spec((size,), VarType.FP32), kind, version)


def _update(name: str, rate: Value) -> Node:
    inputs = {"Param": _value(name), "Grad": _value(f"{name}@GRAD"), "LearningRate": rate}
    return Node(
        "sgd",
        {slot: (value,) for slot, value in inputs.items()},
        {"ParamOut": (_value(name, 1),)},
        {},
    )


def fused(*nodes: Node) -> Graph:
    graph = Graph(nodes, (), {})
    result = fuse_optimizers(graph, Target())
    assert fuse_optimizers(result, Target()).nodes == result.nodes, "settled"
    return result


def test_each_keeps_its_rate_and_a_change_of_rate_stays_between() -> None:
    rate, other = _value("rate", size=1), _value("other", size=1)
    a, b, c = _update("a", rate), _update("b", other), _update("c", rate)
    (one,) = fused(a, b, c).nodes
    assert [v.name for v in one.inputs["LearningRate"] if v] == ["rate", "other", "rate"]
    raised = Node("increment", {"X": (rate,)}, {"Out": (_value("rate", 1, size=1),)}, {"step": 1.0})
    assert fused(a, raised, c).nodes == (a, raised, c)
    reader = Node("scale", {"X": (_value("a", 1),)}, {"Out": (_value("t", 0, "temp"),)}, {})
    assert [n.op for n in fused(a, b, reader, c).nodes] == ["fused_sgd", "scale", "sgd"]


def test_why_nothing_is_fused() -> None:
    assert "one update only, of a" in fused(_update("a", _value("rate", size=1))).notes[-1]
    assert "updates no parameter" in fused().notes[-1]


def test_rates_of_parameters_count() -> None:
    """Paddle's fused op gives all parameters the rate of the first; here each keeps its own."""
    state = []
    for fuse in (False, True):
        scope = fluid.Scope()
        with own_programs() as (main, startup):
            x = fluid.data("x", [None, 4])
            slow = fluid.ParamAttr(learning_rate=0.1, initializer=fluid.initializer.Constant(0.5))
            fast = fluid.ParamAttr(learning_rate=2.0, initializer=fluid.initializer.Constant(0.0))
            loss = fluid.layers.mean(fluid.layers.fc(x, 2, param_attr=slow, bias_attr=fast))
            fluid.optimizer.Adam(0.1).minimize(loss)
        exe = executor_after(startup, scope)
        program = on_places(main, 2, loss, build=BuildStrategy(fuse_all_optimizer_ops=fuse))
        exe.run(program, {"x": np.ones((4, 4), "float32")}, [loss], scope=scope)
        state.append([np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()])
    for plain, merged in zip(*state, strict=True):
        np.testing.assert_allclose(merged, plain, rtol=1e-6)
    assert abs(state[1][1]).max() > 0.15 > abs(state[1][0] - 0.5).max()
