"""What is compiled, for which places, in which scope."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.device import place
from rowlock.executor.device.gpus import local_gpus
from rowlock.executor.replica.orders import Inventory
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import EnforceNotMet, InvalidState
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.programs import on_places

Scale = BuildStrategy.GradientScaleStrategy


def one_step(net: Net, program: Any, rows: int = 6) -> dict[str, np.ndarray]:
    net.run(program, feed(rows), [net.loss])
    return net.parameters()


def test_a_graph_is_as_good_as_its_program(gang: str) -> None:
    net, other = Net(), Net()
    graph = fluid.core.Graph(net.main.desc)
    IrGraph = fluid.framework.IrGraph
    for source in (graph, IrGraph(graph, for_test=False).graph):
        program = on_places(source, 2, net.loss)
        net.run(program, feed(6), [net.loss])
    compiled = other.compiled(2)
    other.run(compiled, feed(6), [])
    other.run(compiled, feed(6), [])
    assert_close(net.parameters(), other.parameters(), 1e-6)
    assert [op.type for op in IrGraph(graph).to_program().global_block().ops] == [
        op.type for op in net.main.global_block().ops
    ]
    with pytest.raises(TypeError, match="takes a Program"):
        fluid.core.Graph("main")


def test_the_later_build_strategy_replaces_the_earlier(threads: None) -> None:
    one, half = BuildStrategy(gradient_scale_strategy=Scale.One), BuildStrategy()

    def after(first: Any, second: Any) -> float:
        net = Net()
        program = fluid.CompiledProgram(net.main, build_strategy=first).with_data_parallel(
            loss_name=net.loss.name, build_strategy=second, places=fluid.cpu_places(2)
        )
        return float(one_step(net, program)["fc_1.b_0"][0])

    coefficient = after(None, None)
    assert after(one, None) == pytest.approx(2 * coefficient)
    assert after(one, half) == pytest.approx(coefficient)
    assert after(half, one) == pytest.approx(2 * coefficient)


def test_compiled_without_data_parallelism() -> None:
    net, plain = Net(), Net()
    program = fluid.CompiledProgram(net.main)
    (loss, seed) = net.run(program, feed(6), [net.loss, net.loss.name + "@GRAD"])
    assert loss.shape == (1,) and seed.tolist() == [1.0]
    assert_close(net.parameters(), one_step(plain, plain.main))
    with pytest.warns(UserWarning, match="no effect: this CompiledProgram ran on one place"):
        program.with_data_parallel(loss_name=net.loss.name, places=fluid.cpu_places(2))
    assert net.run(program, feed(6), [net.loss])[0].shape == (1,)
    with pytest.raises(ValueError, match="2 elements for 1 places"):
        net.run(program, [feed(2), feed(2)], [])


def test_a_program_is_compiled_as_it_was(gang: str) -> None:
    """What is added to the program afterwards is not seen, and a warning says so, once."""
    net = Net()
    program = net.compiled(2)
    net.run(program, feed(6), [net.loss])
    with fluid.program_guard(net.main, net.startup):
        later = fluid.layers.scale(net.loss, 2.0)
    with pytest.warns(UserWarning, match="changed after it was compiled"):
        net.run(program, feed(6), [net.loss])
    with pytest.raises(EnforceNotMet, match="cannot fetch"):
        net.run(program, feed(6), [later])
    again = net.compiled(2)
    assert net.run(again, feed(6), [later])[0].shape == (2,)
    assert net.run(net.main, feed(6), [later])[0].shape == (1,)


def test_strategies_can_change_after_compiling_without_effect(threads: None) -> None:
    net, build = Net(), BuildStrategy()
    program = on_places(net.main, 2, net.loss, build=build)
    net.run(program, feed(6), [])
    build.gradient_scale_strategy = Scale.One
    with pytest.warns(UserWarning, match="gradient_scale_strategy changed after"):
        (seed,) = net.run(program, feed(6), [net.loss.name + "@GRAD"])
    assert seed.tolist() == [0.5, 0.5]


def test_flags() -> None:
    name = "FLAGS_eager_delete_tensor_gb"
    assert fluid.get_flags(name) == {name: 0.0}
    try:
        fluid.set_flags({name: 1})
        assert fluid.get_flags([name]) == {name: 1.0}
    finally:
        fluid.set_flags({name: 0.0})
    with pytest.raises(ValueError, match=r"no flag 'FLAGS_eager_delete_tensor'\. Did you mean"):
        fluid.get_flags("FLAGS_eager_delete_tensor")
    with pytest.raises(ValueError, match="takes a value of type float, got 'much'"):
        fluid.set_flags({name: "much"})
    with pytest.raises(TypeError, match="takes a dict"):
        fluid.set_flags([name])


# -- places ---------------------------------------------------------------------------------------


@pytest.mark.cpu
def test_places_from_the_environment(monkeypatch: pytest.MonkeyPatch, threads: None) -> None:
    monkeypatch.setenv("CPU_NUM", "3")
    assert len(fluid.cpu_places()) == 3
    net = Net()
    program = fluid.CompiledProgram(net.main).with_data_parallel(loss_name=net.loss.name)
    assert net.run(program, feed(6), [net.loss])[0].shape == (3,)
    parallel = fluid.ParallelExecutor(False, net.loss.name, net.main, scope=net.scope)
    monkeypatch.setenv("CPU_NUM", "2")  # its places were taken when it was made
    assert parallel.device_count == 3
    assert parallel.run([net.loss], feed(6))[0].shape == (3,)
    monkeypatch.setenv("CPU_NUM", "two")
    with pytest.raises(ValueError, match="CPU_NUM must be an integer, got 'two'"):
        fluid.cpu_places()
    monkeypatch.delenv("CPU_NUM")
    assert len(fluid.cpu_places()) == 1


def test_one_place_may_stand_alone(gang: str) -> None:
    net = Net()
    program = on_places(net.main, fluid.CPUPlace(), net.loss)
    assert net.run(program, feed(6), [net.loss])[0].shape == (1,)


@pytest.mark.cpu
def test_gpu_places(monkeypatch: pytest.MonkeyPatch) -> None:
    from rowlock.executor.device import place

    # No cluster is joined, or none with GPUs; one that lends some of this host's, or has more hosts
    for cluster, places in ((0, 8), (4, 4), (16, 16)):
        monkeypatch.setattr(place, "_counters", [lambda: 8, lambda cluster=cluster: cluster])
        assert len(fluid.cuda_places()) == places
    monkeypatch.setattr(place, "gpu_count", lambda: 0)
    with pytest.raises(AssertionError, match="no GPU"):
        fluid.cuda_places()
    monkeypatch.setattr(place, "gpu_count", lambda: 3)
    assert [p.device_id for p in fluid.cuda_places()] == [0, 1, 2]
    assert [p.device_id for p in fluid.cuda_places([2, 0])] == [2, 0]
    monkeypatch.setenv("FLAGS_selected_gpus", "1,2")
    assert [p.device_id for p in fluid.cuda_places()] == [1, 2]
    monkeypatch.setenv("FLAGS_selected_gpus", "1,4")
    with pytest.raises(EnforceNotMet, match="there is no GPU 4: there are 3"):
        fluid.cuda_places()
    monkeypatch.setenv("FLAGS_selected_gpus", "a")
    with pytest.raises(ValueError, match="FLAGS_selected_gpus must list whole numbers, got 'a'"):
        fluid.cuda_places()


@pytest.mark.cpu
@pytest.mark.skipif(local_gpus() > 0, reason="there is a GPU")
def test_a_gpu_that_is_not_there(threads: None) -> None:
    net = Net()
    with pytest.raises(
        (NotImplementedError, AssertionError), match=r"pip install '\.\[gpu\]'|there is no GPU"
    ):
        fluid.Executor(fluid.CUDAPlace(0)).run(net.main, feed(2), [net.loss], scope=net.scope)


@pytest.mark.cpu
def test_places_of_two_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "gpu_count", lambda: 1)
    net = Net()
    program = on_places(net.main, [fluid.CPUPlace(), fluid.CUDAPlace(0)], net.loss)
    with pytest.raises(AssertionError, match="another kind than the executor's"):
        net.run(program, feed(6), [])


# -- scopes and sharing ---------------------------------------------------------------------------


def test_train_and_test_share_variables(gang: str) -> None:
    net = Net(OPTIMIZERS["momentum"])
    train = net.compiled(2)
    test = net.compiled(2, net.test, share_vars_from=train)
    with pytest.raises(ValueError, match="not run yet"):
        net.run(test, feed(4), [net.loss])
    for step in range(3):
        net.run(train, feed(6, step), [])
        (there,) = net.run(test, feed(4), [net.prediction])
        (here,) = net.run(net.test, feed(4), [net.prediction])
        np.testing.assert_allclose(there, here, 1e-6, 1e-6)
    third = net.compiled(3, net.test, share_vars_from=train)
    with pytest.raises(EnforceNotMet, match="runs on 2 places, this one on 3"):
        net.run(third, feed(6), [])
    alone = fluid.CompiledProgram(net.test)
    net.run(alone, feed(4), [])
    with pytest.raises(ValueError, match="not data parallel"):
        net.run(net.compiled(2, net.test, share_vars_from=alone), feed(4), [])


def test_sharing_ignores_the_scope_and_says_so(
    threads: None, capsys: pytest.CaptureFixture[str]
) -> None:
    net = Net()
    train = net.compiled(2)
    net.run(train, feed(6), [])
    test = net.compiled(2, net.test, share_vars_from=train)
    (there,) = net.exe.run(test, feed(4), [net.prediction], scope=fluid.Scope())
    assert "the scope is not used" in capsys.readouterr().err
    np.testing.assert_allclose(there, net.run(net.test, feed(4), [net.prediction])[0], 1e-6, 1e-6)


def test_programs_on_one_scope_go_on_from_each_other(gang: str) -> None:
    """As the two programs of a GAN do, which nobody told to share: each sees what the other trained.

    And what the user wrote, whichever ran since, as when a checkpoint is tried before training goes on.
    """
    net, alone = Net(), Net()
    one, other, test = net.compiled(2), net.compiled(2), net.compiled(2, net.test)
    (*_, bias) = net.parameters()
    for step, program in enumerate((one, other, one, one, other, net.main, one)):
        for each in (net, alone):
            each.scope.find_var(bias).get_tensor().set(np.full(1, step, "float32"))
        net.run(test, feed(6), [])
        net.run(program, feed(6, step), [])
        alone.run(alone.main, feed(6, step), [])
        assert_close(net.parameters(), alone.parameters(), 1e-5)


def test_programs_that_nobody_holds_are_unloaded(gang: str) -> None:
    """A notebook compiles again and again: replicas keep what is still in use, and values stay readable."""
    net = Net()
    first = net.compiled(2)
    net.run(first, feed(6), [])
    for step in range(6):
        program = net.compiled(2, net.test, share_vars_from=first)
        net.run(program, feed(6), [net.loss])
        apart = net.compiled(2)
        net.run(apart, feed(6, step), [])
        trained = net.parameters()
        del program, apart
        gc.collect()
    assert_close(net.parameters(), trained, 0)
    run = first._parallel
    inventories = [answer.head for answer in run.gang.all(Inventory())]
    assert all(one["programs"] <= 4 and one["scopes"] <= 3 for one in inventories), inventories


def test_values_are_saved_as_trained(gang: str) -> None:
    """What a scope is read for after training is what training made, also after the gang has ended."""
    net, alone = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
    program = net.compiled(2)
    for step in range(3):
        net.run(program, feed(6, step), [])
        alone.run(alone.main, feed(6, step), [])
    names = [v.name for v in net.main.list_vars() if v.persistable]
    saved = {name: net.value(name) for name in names}
    assert_close(saved, {name: alone.value(name) for name in names}, 1e-5)
    restored = Net(OPTIMIZERS["adam"])
    for name, array in saved.items():
        restored.scope.find_var(name).get_tensor().set(array, None)
    again = restored.compiled(2)
    restored.run(again, feed(6, 3), [])
    net.run(program, feed(6, 3), [])
    assert_close(restored.parameters(), net.parameters(), 0)


@pytest.mark.cpu
def test_another_scope_or_place(threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "gpu_count", lambda: 1)
    net = Net()
    program = net.compiled(2)
    net.run(program, feed(6), [])
    with pytest.raises(ValueError, match="another scope"):
        net.exe.run(program, feed(6), [], scope=fluid.Scope())
    other = fluid.Executor()
    other.place = fluid.CUDAPlace(0)
    with pytest.raises(ValueError, match="compile it again for this place"):
        other.run(program, feed(6), [], scope=net.scope)


def test_a_loss_name_is_only_a_flag(threads: None) -> None:
    net, other = Net(), Net()
    with pytest.warns(UserWarning, match="loss_name 'cost' is no variable"):
        program = on_places(net.main, 2, "cost")
    assert_close(one_step(net, program), one_step(other, other.compiled(2)), 0)


def test_feed_dict_is_deprecated(threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    net = Net()
    parallel = fluid.ParallelExecutor(False, net.loss.name, net.main, scope=net.scope)
    with pytest.warns(DeprecationWarning, match="use feed"):
        (loss,) = parallel.run([net.loss], feed_dict=feed(4))
    assert loss.shape == (2,)


def test_tracing_says_when_there_is_nothing(threads: None) -> None:
    net = Net()
    program = net.compiled(2)
    with pytest.raises(InvalidState, match="call trace"):
        program.executed()
    net.run(program, feed(4), [])
    with pytest.raises(InvalidState, match="call trace"):
        program.executed()
    program.trace()
    net.run(program, feed(4), [])
    executed = [[event for event in place if event.op != "fetch"] for place in program.executed()]
    assert [len(place) for place in executed] == [len(program.explain().graph.nodes)] * 2
    program.trace(False)
    with pytest.raises(InvalidState), warnings.catch_warnings():
        program.executed()
