"""What trainers and servers hold is saved as Paddle saves it, and training goes on from there."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from rowlock import fluid
from rowlock.executor.saving.variables import read_values
from rowlock.strategies.errors import (
    InvalidState,
    InvalidValue,
    MissingFile,
    NotInitialized,
    StateMismatch,
    Unsupported,
)
from tests.reference.generate_pservers import EARLY, PADDING, WAYS, feeds, looked_up, values
from tests.reference.generate_pservers import STEPS as PADDLE_STEPS
from tests.reference.generate_pservers import net as small_net
from tests.reference.generate_pservers import table as small_table

from .nets import ROWS, Layers, batches, plain_sgd, regression, shared_out
from .roles import Feed, Roles, Trainer, endpoints, threads, together, transpiled
from .test_pservers_beside_paddle import PADDLE, whole
from .test_tables import interleaved, spread, with_padding

STEPS, SAVED = 7, 4


def adam() -> Any:
    return fluid.optimizer.Adam(Layers.piecewise_decay([3, 6], [0.001, 0.0005, 0.0002]))


def trained(net: Any, feeds: Any, target: Path, steps: int, **how: Any) -> Roles:
    """Train; behind so many steps trainer 0 saves."""
    count = [0]

    def step(trainer: Trainer, feed: Feed) -> float:
        loss = trainer.step(feed)
        if trainer.number == 0:
            count[0] += 1
            if count[0] == steps:
                with fluid.scope_guard(trainer.scope), fluid.program_guard(trainer.main):
                    fluid.io.save_persistables(trainer.exe, str(target))
        return loss

    with threads():
        roles = together(net, feeds, step=step, **how)
    assert not roles.errors
    return roles


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("slices", [False, True])
def test_training_goes_on_from_what_was_saved(sparse: bool, slices: bool, tmp_path: Path) -> None:
    net, data = partial(regression, adam, sparse), shared_out(batches(STEPS, sparse))
    config = None if slices else whole
    without = trained(net, data, tmp_path, SAVED, config=config)
    files = {path.name for path in tmp_path.iterdir()}
    assert "@LR_DECAY_COUNTER@" in files
    assert {f"fc_0.w_0_{kind}_0" for kind in ("moment1", "beta1_pow_acc")} <= files
    rest = [each[SAVED:] for each in data]
    how = {"config": config, "folder": str(tmp_path), "servers": 3 if slices else 2}
    again = trained(net, rest, tmp_path, -1, **how)
    np.testing.assert_allclose(
        again.losses, [losses[SAVED:] for losses in without.losses], 1e-6, 1e-6
    )


def test_asynchronous_servers_begin_a_schedule_anew(tmp_path: Path) -> None:
    net, data = partial(regression, adam, True), shared_out(batches(SAVED, True))
    trained(net, data, tmp_path, SAVED, sync=False)
    assert {"table", "table_moment1_0", "fc_0.w_0"} <= {path.name for path in tmp_path.iterdir()}
    trained(net, data, tmp_path, -1, sync=False, folder=str(tmp_path))


def test_files_are_those_of_paddle(tmp_path: Path) -> None:
    net = partial(small_net, fluid, *WAYS["saved"])
    roles = trained(net, [feeds(k)[:EARLY] for k in range(2)], tmp_path, EARLY, config=whole)
    np.testing.assert_allclose(roles.losses, PADDLE["saved"], 1e-4, 1e-5)
    assert {path.name for path in tmp_path.iterdir()} == set(PADDLE["files"])
    for name, expected in PADDLE["files"].items():
        value = read_values(str(tmp_path / name), [name])[name]
        np.testing.assert_allclose(value.reshape(-1), expected, 1e-4, 1e-6, err_msg=name)
    rest = [feeds(k)[EARLY:] for k in range(2)]
    again = trained(net, rest, tmp_path, -1, config=whole, folder=str(tmp_path))
    np.testing.assert_allclose(again.losses, PADDLE["resumed"], 1e-4, 1e-5)


@pytest.mark.parametrize("distributed", [False, True])
def test_tables_are_trained_as_paddle_trains_them_in_one_process(
    distributed: bool, tmp_path: Path
) -> None:
    net = partial(small_table, fluid, distributed)
    roles = trained(net, shared_out(looked_up()), tmp_path, PADDLE_STEPS)
    np.testing.assert_allclose(np.mean(roles.losses, 0), PADDLE["table"]["losses"], 1e-4, 1e-5)
    rows = np.array(PADDLE["table"]["rows"])
    parts = {str(k): tmp_path / "__lookup_table__" / f"table_{k}" / "table" for k in range(2)}
    if distributed:
        each = {k: read_values(str(path), ["table"])["table"] for k, path in parts.items()}
        saved = interleaved(each)[: len(rows)]
    else:
        saved = read_values(str(tmp_path / "table"), ["table"])["table"]
    rows[PADDING] = values(len(rows), 4)[PADDING]  # Paddle moves it, although its lookups are zeros
    np.testing.assert_allclose(saved, rows, 1e-4, 1e-6)


def test_a_distributed_table_is_saved_by_its_servers(tmp_path: Path) -> None:
    net, data = partial(spread, True), shared_out(with_padding(STEPS))
    without = trained(net, data, tmp_path, SAVED)
    parts = {str(k): tmp_path / "__lookup_table__" / f"table_{k}" / "table" for k in range(2)}
    assert all(path.exists() for path in parts.values())
    again = trained(net, [each[SAVED:] for each in data], tmp_path, -1, folder=str(tmp_path))
    np.testing.assert_allclose(
        again.losses, [losses[SAVED:] for losses in without.losses], 1e-6, 1e-6
    )
    saved = {k: read_values(str(path), ["table"])["table"] for k, path in parts.items()}
    np.testing.assert_array_equal(interleaved(saved), interleaved(again.tables))


def clicks(distributed: bool = False) -> Any:
    """Build a net that looks a table up for single ids, with a padding, and for sequences; return its loss."""
    y = fluid.data("y", [None, 1])
    ids = fluid.data("ids", [None, 3, 1], "int64")
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    settings: dict[str, Any] = {"is_sparse": True, "is_distributed": distributed}
    settings |= {"size": [ROWS + 1, 20], "param_attr": "table"}
    padding = None if distributed else PADDING
    first = Layers.embedding(ids, padding_idx=padding, **settings)
    both = [Layers.reduce_sum(first, 1)]
    if not distributed:
        both.append(Layers.sequence_pool(Layers.embedding(words, **settings), "average"))
    guess = Layers.fc(Layers.concat(both, 1), 1, act="tanh", name="guess")
    loss = Layers.mean(Layers.square_error_cost(guess, y))
    (fluid.optimizer.SGD if distributed else fluid.optimizer.Adam)(0.05).minimize(loss)
    return loss


def clicked(steps: int) -> list[Feed]:
    feeds = with_padding(steps)
    for feed in feeds:
        rows = feed["ids"].reshape(-1, 1)[: 3 * len(feed["x"])]
        words = fluid.create_lod_tensor(rows, [[3] * len(feed["x"])], fluid.CPUPlace())
        feed["words"] = words
        del feed["x"]
    return feeds


GUESS = "guess.tmp_2"


def test_a_model_of_a_trainer_has_the_tables_of_its_servers(tmp_path: Path) -> None:
    """It predicts alone what the trainer, which asks the servers, predicts."""
    data, last, predictions = clicked(SAVED + 1), [0], []
    fed = {name: data[-1][name] for name in ("ids", "words")}

    def step(trainer: Trainer, feed: Feed) -> float:
        loss = trainer.step(feed)
        last[0] += 1
        if last[0] == SAVED:
            main, exe = trainer.main, trainer.exe
            target = main.global_block().var(GUESS)
            inputs = [main.global_block().var(name) for name in fed]
            with fluid.scope_guard(trainer.scope):
                tested = main.clone(for_test=True)._prune_with_input(list(fed), [target])
                predictions.extend(exe.run(tested, feed=fed, fetch_list=[GUESS]))
                old = str(tmp_path / "old")
                fluid.io.save_inference_model(old, list(fed), [target], exe, main)
                new = str(tmp_path / "new")
                paddle.static.save_inference_model(new, inputs, [target], exe, program=main)
            assert not trainer.scope.find_tensor("table").initialized  # it is no trainer's, still
        return loss

    with threads():
        roles = together(clicks, [data[:SAVED]], step=step)
    assert not roles.errors
    exe = fluid.Executor(fluid.CPUPlace())
    for load, path in (
        (fluid.io.load_inference_model, "old"),
        (paddle.static.load_inference_model, "new"),
    ):
        with fluid.scope_guard(fluid.Scope()):
            program, _, fetches = load(str(tmp_path / path), exe)
            (guess,) = exe.run(program, feed=fed, fetch_list=fetches)
        np.testing.assert_allclose(guess, predictions[0], 1e-6, 1e-6)
        assert not [op.type for op in program.global_block().ops if "distributed" in op.type]


def test_a_clone_from_before_that_looks_up_what_servers_hold_is_told_what_to_do(
    tmp_path: Path,
) -> None:
    clones: list[Any] = []

    def net() -> Any:
        loss = clicks()
        clones.append(fluid.default_main_program().clone(for_test=True))
        return loss

    def step(trainer: Trainer, feed: Feed) -> float:
        loss, exe, target = trainer.step(feed), trainer.exe, clones[0].global_block().var(GUESS)
        said = r"value of 'table', .*servers 127.* hold.*has rewritten.*save_persistables.*fleet\.save_inf"
        with fluid.scope_guard(trainer.scope):
            with pytest.raises(NotInitialized, match=said):
                exe.run(clones[0], feed=feed, fetch_list=[target])
            with pytest.raises(NotInitialized, match=said):
                fluid.io.save_params(exe, str(tmp_path), trainer.main)
            with pytest.raises(NotInitialized, match=said):
                fluid.io.save_inference_model(
                    str(tmp_path), ["ids", "words"], [target], exe, clones[0]
                )
        return loss

    with threads():
        roles = together(net, [clicked(1)], step=step)
    assert not roles.errors


def test_a_model_whose_table_servers_cut_by_row_is_refused(tmp_path: Path) -> None:
    def step(trainer: Trainer, feed: Feed) -> float:
        loss = trainer.step(feed)
        target = trainer.main.global_block().var(GUESS)
        with (
            fluid.scope_guard(trainer.scope),
            pytest.raises(Unsupported, match=r"'table'.*is_distributed=True.*save_persistables"),
        ):
            fluid.io.save_inference_model(
                str(tmp_path), ["ids"], [target], trainer.exe, trainer.main
            )
        return loss

    with threads():
        roles = together(partial(clicks, True), [clicked(1)], step=step)
    assert not roles.errors


def test_what_cannot_be_saved_or_loaded_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net, folder = partial(regression, plain_sgd), str(tmp_path / "saved")
    where = endpoints(2)
    with threads(start_deadline_s=1.0):
        transpiler, main, _, _ = transpiled(net, 0, where)
        exe = fluid.Executor(fluid.CPUPlace())
        with pytest.raises(InvalidState, match=rf"trainer 0 .*{where[0]}.*before exe\.close"):
            fluid.io.save_persistables(exe, folder, main)
        with pytest.raises(InvalidValue, match="no filename"):
            fluid.io.save_persistables(exe, folder, main, filename="all")
    server, startup = transpiler.get_pserver_programs(where[0])
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        with pytest.raises(MissingFile, match="there is no folder"):
            fluid.io.load_persistables(exe, folder, server)
        with pytest.raises(InvalidValue, match="no filename"):
            fluid.io.load_persistables(exe, folder, server, filename="all")
    trained(net, [batches(1)], Path(folder), 1, servers=1)
    (tmp_path / "saved" / "fc_0.w_0").write_bytes((tmp_path / "saved" / "fc_1.w_0").read_bytes())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        with pytest.raises(StateMismatch, match=r"\[20, 1000\].*\[1000, 1\]"):
            fluid.io.load_persistables(exe, folder, server)
    with caplog.at_level(logging.WARNING, "rowlock"):
        expected = partial(regression, adam)
        trained(expected, [batches(1)], tmp_path / "more", 1, servers=1)
        for path in (tmp_path / "more").glob("*_moment1_0"):
            path.unlink()
        trained(expected, [batches(1)], tmp_path, -1, servers=1, folder=str(tmp_path / "more"))
    assert "4 variable(s) of optimizers" in caplog.text
