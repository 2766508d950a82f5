"""memory_optimize and release_memory rewrite programs, and no result changes by a bit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.graph.transpiler import memory_optimize as module
from rowlock.strategies.errors import InvalidType, InvalidValue, NotFound
from tests.conftest import lasting
from tests.programs import own_programs
from tests.reference import models

STEPS = 2
Change = Callable[[Any], None]


def fetched(model: Any) -> set[Any]:
    return set(model.fetches.values())


def level_0(model: Any) -> None:
    fluid.memory_optimize(model.main, skip_opt_set=fetched(model))


def level_1(model: Any) -> None:
    fluid.memory_optimize(model.main, skip_opt_set=list(fetched(model)), level=1)


def with_gradients(model: Any) -> None:
    fluid.memory_optimize(model.main, fetched(model), level=1, skip_grads=False)


def released(model: Any) -> None:
    fluid.release_memory(model.main)


def both(model: Any) -> None:
    level_1(model)
    released(model)


def trained(name: str, change: Change | None, places: int = 1) -> tuple[list[bytes], Any]:
    """Return what some steps fetch, and the parameters behind them, as bytes; and the model."""
    model = models.build(name, fluid)
    if change is not None:
        change(model)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(model.startup)
        models.set_initial_values(model.main, scope, fluid.CPUPlace())
        program: Any = model.main
        if places > 1:
            compiled = fluid.CompiledProgram(program)
            program = compiled.with_data_parallel(model.loss.name, places=fluid.cpu_places(places))
        data: list[Any] = []
        for step in range(STEPS):
            fetches = [model.loss, *model.fetches.values()]
            data += exe.run(program, feed=models.feed(name, step), fetch_list=fetches)
        data += [np.array(scope.find_var(p.name).get_tensor()) for p in model.main.all_parameters()]
    return [np.asarray(value).tobytes() for value in data], model


@pytest.mark.parametrize("change", [level_0, level_1, with_gradients, released, both])
@pytest.mark.parametrize("name", ["mlp", "lenet", "text"])
def test_results_are_the_same_bits(name: str, change: Change) -> None:
    expected, plain = trained(name, None)
    results, model = trained(name, change)
    assert results == expected
    kinds = [op.type for op in model.main.global_block().ops]
    assert (change in (released, both)) == ("delete_var" in kinds)
    fewer = len(plain.main.global_block().vars) - len(model.main.global_block().vars)
    assert (fewer > 0) == (change is not released)


@pytest.mark.slow
@pytest.mark.parametrize("change", [level_0, level_1, with_gradients, both])
@pytest.mark.parametrize("name", ["fit13", "logistic", "resnet", "attention"])
def test_results_of_more_models_are_the_same_bits(name: str, change: Change) -> None:
    assert trained(name, change)[0] == trained(name, None)[0]


@pytest.mark.parametrize("change", [with_gradients, both])
def test_results_on_several_places_are_the_same_bits(change: Change) -> None:
    with lasting("threads"):
        assert trained("mlp", change, 2)[0] == trained("mlp", None, 2)[0]


def test_a_dead_variable_is_taken_by_the_first_that_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with own_programs() as (main, _):
        x = fluid.layers.data("x", [4])
        h = fluid.layers.fc(x, 8, bias_attr=False)  # fc_0.tmp_0
        a = fluid.layers.relu(h)  # h dies
        b = fluid.layers.tanh(a)  # takes h
        c = fluid.layers.fc(b, 4, bias_attr=False)  # smaller than what is dead
        fluid.layers.mean(c)
    other = main.clone()
    fluid.memory_optimize(main, print_log=True)
    written = [op.output_arg_names[0] for op in main.global_block().ops]
    assert written == [h.name, a.name, h.name, c.name, "mean_0.tmp_0"]
    assert f"{b.name} [-1, 8] takes the variable {h.name}" in capsys.readouterr().out
    fluid.memory_optimize(other, level=1)
    written = [op.output_arg_names[0] for op in other.global_block().ops]
    assert written == [h.name, a.name, h.name, a.name, "mean_0.tmp_0"]


def test_what_is_named_keeps_its_variable_and_what_is_not_cannot_be_fetched() -> None:
    model = models.build("mlp", fluid)
    prediction = next(iter(model.fetches.values()))
    level_0(model)
    assert prediction.name in model.main.global_block().vars
    model = models.build("mlp", fluid)
    fluid.memory_optimize(model.main)
    name = next(iter(model.main.shared_variables))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(model.startup)
        with pytest.raises(NotFound, match=r"cannot be fetched: memory_optimize.*skip_opt_set"):
            exe.run(model.main, feed=models.feed("mlp", 0), fetch_list=[name])


def test_random_numbers_and_branches_keep_their_variables() -> None:
    with own_programs() as (main, _):
        x = fluid.layers.data("x", [4])
        h = fluid.layers.tanh(fluid.layers.relu(fluid.layers.relu(x)))
        dropped = fluid.layers.dropout(h, 0.5)
        low = fluid.layers.less_than(fluid.layers.mean(dropped), fluid.layers.ones([1], "float32"))
        taken = fluid.layers.cond(low, lambda: dropped * 2.0, lambda: dropped * 3.0)
        fluid.layers.mean(taken)
    before = [op.output_arg_names for op in main.global_block().ops]
    fluid.memory_optimize(main, level=1)
    after = [op.output_arg_names for op in main.global_block().ops]
    kinds = [op.type for op in main.global_block().ops]
    for index in (kinds.index("dropout"), kinds.index("conditional_block")):
        assert before[index] == after[index]
    assert before != after


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        ({"level": 2}, InvalidValue, "level must be 0 or 1, got 2"),
        ({"level": True}, InvalidType, "level must be an int, got True"),
        (
            {"skip_opt_set": "loss"},
            InvalidValue,
            "a set or a list of variables, got 'loss' \\(str\\)",
        ),
        ({"skip_opt_set": [3]}, InvalidType, "variables or their names, got 3"),
        ({"input_program": None}, InvalidType, "a Program is rewritten, got None \\(NoneType\\)"),
    ],
)
def test_wrong_arguments(call: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        fluid.memory_optimize(**{"input_program": fluid.Program(), **call})
    if "level" not in call:
        with pytest.raises(error, match=text):
            fluid.release_memory(**{"input_program": fluid.Program(), **call})


def test_it_warns_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "_warned", set())
    with caplog.at_level(logging.WARNING, "rowlock"):
        for _ in range(2):
            fluid.memory_optimize(fluid.Program())
            fluid.release_memory(fluid.Program())
    assert [record.args for record in caplog.records] == [("memory_optimize",), ("release_memory",)]
