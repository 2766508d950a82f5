"""Tables that servers hold: rows are looked up before a step, and only gradients of these rows are sent."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from rowlock.strategies.errors import FeedError, InvalidValue, Unsupported
from tests.programs import on_places

from .nets import ROWS, Layers, batches, plain_sgd, regression, shared_out
from .roles import Roles, Trainer, alone, table, threads, together

PADDING = 5


def spread(distributed: bool, odd: int = 1) -> Any:
    """Build a net whose table has a row of padding, and is looked up twice."""
    x, y = fluid.data("x", [None, 20]), fluid.data("y", [None, 1])
    ids = fluid.data("ids", [None, 3, 1], "int64")
    settings: dict[str, Any] = {"is_sparse": True, "is_distributed": distributed}
    size = [ROWS + odd, 20]
    first = Layers.embedding(ids, size, padding_idx=PADDING, param_attr="table", **settings)
    second = Layers.embedding(ids, size, padding_idx=PADDING, param_attr="table", **settings)
    both = Layers.reduce_sum(first, 1) + Layers.reduce_mean(second, 1)
    hidden = Layers.fc(Layers.concat([x, both], 1), 1000, act="tanh")
    loss = Layers.mean(Layers.square_error_cost(Layers.fc(hidden, 1), y))
    fluid.optimizer.SGD(0.005).minimize(loss)
    return loss


def with_padding(steps: int) -> list[dict[str, Any]]:
    feeds = batches(steps, sparse=True)
    for feed in feeds:
        feed["ids"][0, 0, 0], feed["ids"][1, 0, 0], feed["ids"][2] = PADDING, ROWS, 7
    return feeds


def interleaved(parts: dict[str, np.ndarray]) -> np.ndarray:
    """Return a table of which each server has every so many rows."""
    ordered = [parts[endpoint] for endpoint in sorted(parts)]
    return np.stack(ordered, 1).reshape(-1, ordered[0].shape[1])


@pytest.mark.parametrize("distributed", [False, True])
def test_rows_that_are_looked_up_are_trained(distributed: bool) -> None:
    net, feeds = partial(spread, distributed), with_padding(20)
    with threads():
        roles = together(net, shared_out(feeds))
    assert not roles.errors
    whole = interleaved(roles.tables) if distributed else table(roles.served, "table")
    losses, _ = alone(partial(spread, False), feeds, {**roles.initial, "table": whole[: ROWS + 1]})
    np.testing.assert_allclose(np.mean(roles.losses, 0), losses, 1e-5, 1e-5)
    assert "table" not in roles.parameters[0]  # trainers have none of it


def test_rows_fed_by_a_reader_are_looked_up() -> None:
    loaders: list[Any] = []
    net, feeds = partial(_read, loaders), batches(4, sparse=True)

    def step(trainer: Trainer, feed: dict[str, Any]) -> float:
        (loader,) = loaders
        loader.set_batch_generator(lambda: iter([tuple(feed[name] for name in ("x", "y", "ids"))]))
        loader.start()
        loss = trainer.exe.run(trainer.main, fetch_list=[trainer.loss], scope=trainer.scope)[0]
        loader.reset()
        return float(loss)

    with threads():
        roles = together(net, [feeds], servers=1, step=step)
    assert not roles.errors
    losses, _ = alone(
        partial(regression, plain_sgd, True),
        feeds,
        {**roles.initial, "table": table(roles.served, "table")},
    )
    np.testing.assert_allclose(roles.losses[0], losses, 1e-5, 1e-5)


def test_rows_of_sequences_are_trained() -> None:
    def net() -> Any:
        ids, x = fluid.data("ids", [None, 1], "int64", lod_level=1), fluid.data("x", [None, 20])
        rows = Layers.embedding(ids, [ROWS, 20], is_sparse=True, param_attr="table")
        pooled = Layers.sequence_pool(rows, "sum")
        score = Layers.reduce_sum(Layers.elementwise_mul(pooled, x), 1)
        loss = Layers.mean(Layers.square(score - 1.0))
        plain_sgd().minimize(loss)
        return loss

    lengths, feeds = [3, 1, 2, 4], batches(4, rows=4)
    for step, feed in enumerate(feeds):
        del feed["y"]
        ids = (np.arange(sum(lengths)).reshape(-1, 1) + step) % ROWS
        feed["ids"] = fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())
    with threads():
        roles = together(net, [feeds], servers=1)
    assert not roles.errors
    losses, _ = alone(net, feeds, {**roles.initial, "table": table(roles.served, "table")})
    np.testing.assert_allclose(roles.losses[0], losses, 1e-5, 1e-5)


def _read(loaders: list[Any]) -> Any:
    loss = regression(plain_sgd, sparse=True)
    block = fluid.default_main_program().global_block()
    variables = [block.var(name) for name in ("x", "y", "ids")]
    loaders.append(fluid.io.DataLoader.from_generator(variables, capacity=2, iterable=False))
    return loss


def _fails(net: Any, feeds: list[dict[str, Any]]) -> BaseException:
    with threads():
        roles: Roles = together(net, [feeds], servers=1)
    return roles.errors["trainer 0"]


def test_ids_beyond_the_table_are_refused() -> None:
    feeds = batches(1, sparse=True)
    feeds[0]["ids"][0, 0, 0] = ROWS
    error = _fails(partial(regression, plain_sgd, True), feeds)
    assert isinstance(error, InvalidValue)
    assert f"'ids' has id {ROWS}, and the table has {ROWS} rows" in str(error)


def test_ids_may_be_computed_from_what_is_fed() -> None:
    def net() -> Any:
        x, y = fluid.data("x", [None, 20]), fluid.data("y", [None, 1])
        raw = fluid.data("ids", [None, 3, 1], "int64")
        ids = Layers.reshape(Layers.scale(raw, bias=1.0) % ROWS, [-1, 3, 1])
        rows = Layers.embedding(ids, [ROWS, 20], is_sparse=True, param_attr="table")
        hidden = Layers.fc(Layers.concat([x, Layers.reduce_sum(rows, 1)], 1), 50, act="tanh")
        loss = Layers.mean(Layers.square_error_cost(Layers.fc(hidden, 1), y))
        fluid.optimizer.SGD(0.005).minimize(loss)
        return loss

    feeds = batches(5, sparse=True)
    with threads():
        roles = together(net, shared_out(feeds))
    assert not roles.errors
    whole = table(roles.served, "table")
    losses, _ = alone(net, feeds, {**roles.initial, "table": whole})
    np.testing.assert_allclose(np.mean(roles.losses, 0), losses, 1e-5, 1e-5)


def test_ids_that_follow_from_nothing_fed_are_refused() -> None:
    feeds = batches(1, sparse=True)
    del feeds[0]["ids"]
    error = _fails(partial(regression, plain_sgd, True), feeds)
    assert isinstance(error, FeedError)
    assert "'ids'" in str(error)


def test_a_clip_of_rows_on_two_places_is_refused() -> None:
    net = partial(regression, plain_sgd, True, 1.0)

    def compiled(main: Any, loss: Any) -> Any:
        return on_places(main, 2, loss)

    with threads():
        roles = together(net, [batches(1, sparse=True)], servers=1, compiled=compiled)
    error = roles.errors["trainer 0"]
    assert isinstance(error, Unsupported)
    assert "rows of one place" in str(error)


def test_servers_write_their_parts_of_a_table(tmp_path: Any) -> None:
    net, feeds = partial(spread, True), with_padding(1)

    def step(trainer: Trainer, feed: dict[str, Any]) -> float:
        loss = trainer.step(feed)
        saving = fluid.Program()
        where = sorted(trainer.main.distribution.topology.endpoints)
        attrs = {"epmap": where, "dir": str(tmp_path), "lookup_table": "table"}
        saving.global_block().append_op("checkpoint_notify", {}, {}, attrs)
        trainer.exe.run(saving, scope=trainer.scope)
        return loss

    with threads():
        roles = together(net, [feeds], step=step)
    assert not roles.errors
    sizes = [(tmp_path / f"table_{k}" / "table").stat().st_size for k in range(2)]
    assert min(sizes) > (ROWS // 2) * 20 * 4


def test_a_test_program_looks_rows_up_and_sends_nothing() -> None:
    net, feeds = partial(regression, plain_sgd, True), batches(3, sparse=True)
    tested: list[float] = []
    clones: dict[int, Any] = {}

    def step(trainer: Trainer, feed: dict[str, Any]) -> float:
        if trainer.number not in clones:
            clones[trainer.number] = trainer.main.clone(for_test=True)
        test = {"feed": feed, "fetch_list": [trainer.loss.name], "scope": trainer.scope}
        tested.append(float(trainer.exe.run(clones[trainer.number], **test)[0]))
        return trainer.step(feed)

    with threads():
        roles = together(net, [feeds], step=step)
    assert not roles.errors
    np.testing.assert_allclose(tested, roles.losses[0], 1e-6)
    assert roles.reports[0]["steps"] == 3
