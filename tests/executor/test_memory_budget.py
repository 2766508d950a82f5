"""The planned peak is what a step takes; a step that needs more than a place has is refused before it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from benchmarks import models as benchmarked
from benchmarks import sparse_rows
from rowlock.executor.host import memory as host
from rowlock.executor.host.arena import Memory
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import EnforceNotMet, ResourceExhausted
from rowlock.strategies.execution import ExecutionStrategy
from tests.conftest import product
from tests.programs import on_places, trained
from tests.reference import models

L = fluid.layers
FLAGS: list[dict[str, Any]] = [
    {},
    {"enable_inplace": False},
    {"memory_optimize": False},
    {"memory_optimize": False, "enable_inplace": False},
    {"enable_addto": True},
]


ONE_THREAD = ExecutionStrategy(num_threads=1, num_iteration_per_drop_scope=100)


def compiled(main: Any, loss: Any, places: int = 2, **flags: Any) -> fluid.CompiledProgram:
    return on_places(main, places, loss, flags, ONE_THREAD)


@pytest.mark.parametrize("name", ["resnet18", "gpt"])
def test_the_plan_is_what_a_step_takes(name: str) -> None:
    main, startup, _, batch = benchmarked.build(fluid, name)
    feed = {fed: rows[:8] for fed, rows in batch.items()}
    loss = next(v for v in main.list_vars() if v.name.startswith("mean"))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        exe.run(startup)
        program = compiled(main, loss)
        exe.run(program, feed)
        memory = program.explain().memory
        assert memory is not None
        measured = program.temporaries()[1] / 2
    assert measured == pytest.approx(memory.peak, rel=0.05)
    text = str(memory)
    assert f"{memory.peak:,} bytes" in text and "models.py:" in text and "%" in text
    assert memory.reuse > 0.4 * memory.arena


@pytest.mark.parametrize("way", sorted(sparse_rows.WAYS.keys() - {"L2Decay"}))
@pytest.mark.parametrize("method", sparse_rows.PLANNED)
def test_a_sparse_step_takes_memory_for_the_rows_that_it_touches(method: str, way: str) -> None:
    """Adam and Momentum touch all rows: an owner has what it will write beside what is there until the vote."""
    peaks = [sparse_rows.planned(method, way, height) for height in (3_000, 30_000)]
    if method in ("Adam", "Momentum") and "Reduce" in way:
        assert peaks[1] > 4 * peaks[0]
    else:
        assert peaks[0] == peaks[1]


@product(mode=["AllReduce", "Reduce"], name=["mlp", "lenet", "resnet", "attention", "text"])
def test_flags_do_not_change_results(name: str, mode: str) -> None:
    """Where memory lies changes no bit. In place, a compiled loop is another, and may round differently."""
    reduce = getattr(BuildStrategy.ReduceStrategy, mode)
    results = []
    for flags in FLAGS:
        build = {"reduce_strategy": reduce, **flags}
        values, fetched, _ = trained(name, 2, 3, build, ONE_THREAD, bucket_bytes=256)
        results.append({**values, "fetched": np.concatenate([loss for loss, *_ in fetched])})
    by_in_place: dict[bool, dict[str, Any]] = {}
    for flags, result in zip(FLAGS, results, strict=True):
        alike = by_in_place.setdefault(flags.get("enable_inplace", True), result)
        for key, array in result.items():
            np.testing.assert_array_equal(array, alike[key], err_msg=f"{flags}: {key}")
    for key, array in by_in_place[True].items():
        np.testing.assert_allclose(array, by_in_place[False][key], rtol=1e-4, atol=1e-6)


def wide(readers: int = 12) -> tuple[Any, Any, Any]:
    """A hidden layer whose gradient has many parts."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = L.fc(L.data("x", [16]), 64)
        loss = L.mean(L.square(L.sums([L.fc(hidden, 2) for _ in range(readers)])))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


def peak(feed_rows: int, **flags: Any) -> tuple[int, list[str]]:
    main, startup, loss = wide()
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        exe.run(startup)
        program = compiled(main, loss, **flags)
        exe.run(program, {"x": np.ones((feed_rows, 16), np.float32)})
        report = program.explain()
    assert report.memory is not None
    return report.memory.arena, [n for n in report.graph.notes if n.startswith("enable_addto")]


def test_parts_of_a_gradient_die_early() -> None:
    plain, nothing = peak(256)
    added, notes = peak(256, enable_addto=True)
    assert added < 0.5 * plain
    assert not nothing
    assert notes == [
        "enable_addto: 1 sum(s) of gradients became running additions; they have 12 parts"
    ]


def test_addto_says_why_it_finds_nothing() -> None:
    model = models.build("mlp", fluid)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        exe.run(model.startup)
        program = compiled(model.main, model.loss, enable_addto=True)
        exe.run(program, models.feed("mlp", 0))
        text = str(program.explain())
    assert "enable_addto: nothing to do: no gradient is a sum of parts" in text


def run_with(limit: int | None, rows: int) -> None:
    main, startup, loss = wide()
    exe = fluid.Executor(fluid.CPUPlace())
    with (
        fluid.scope_guard(fluid.Scope()),
        rowlock.cluster(launcher="threads", memory_per_replica_bytes=limit),
    ):
        exe.run(startup)
        exe.run(compiled(main, loss), {"x": np.ones((rows, 16), np.float32)}, [loss])


def test_more_than_allowed_is_refused_with_the_batch_that_fits() -> None:
    with pytest.raises(ResourceExhausted) as refused:
        run_with(2_000_000, 4096)
    text = str(refused.value)
    assert "ClusterConfig.memory_per_replica_bytes allows 2,000,000" in text
    assert "made by" in text and "test_memory_budget.py:" in text
    rows = int(text.split("The largest batch that fits has ")[1].split()[0])
    assert f"({2 * rows} in all); 2048 were fed" in text
    run_with(2_000_000, 2 * rows)
    with pytest.raises(ResourceExhausted):
        run_with(2_000_000, 2 * rows + 2)


def test_not_even_one_row_fits() -> None:
    with pytest.raises(ResourceExhausted, match=r"made by .*Not even a batch of 1 fits"):
        run_with(12_000, 64)


def test_persistables_that_do_not_fit_are_named() -> None:
    with pytest.raises(ResourceExhausted, match=r"Largest: fc_\S+ \(FP32.*persistable.*Not even"):
        run_with(3000, 64)


def test_the_host_sets_the_limit_where_the_user_sets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from rowlock.executor.replica import replica

    monkeypatch.setattr(replica, "available_memory", lambda: 4_000_000)
    with pytest.raises(ResourceExhausted, match="a place has 2,000,000"):
        run_with(None, 4096)


def test_a_memory_error_of_the_family() -> None:
    assert issubclass(ResourceExhausted, MemoryError) and issubclass(
        ResourceExhausted, EnforceNotMet
    )


def test_a_host_in_a_control_group(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, used, meminfo = tmp_path / "max", tmp_path / "current", tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 8000 kB\nMemAvailable: 4000 kB\n")
    monkeypatch.setattr(host, "_MEMINFO", str(meminfo))
    monkeypatch.setattr(host, "_LIMITS", ((str(limit), str(used)),))
    assert host.available_memory() == 4000 * 1024  # no control group
    limit.write_text("max\n")
    assert host.available_memory() == 4000 * 1024
    limit.write_text("3000000\n")
    used.write_text("1000000\n")
    assert host.available_memory() == 2_000_000
    host.total_memory.cache_clear()
    assert host.total_memory() == 3_000_000
    host.total_memory.cache_clear()


def test_a_thousand_shapes_share_one_arena() -> None:
    memory = Memory()
    first = memory.arena(1000)
    first[:] = 7
    for size in range(1, 5000, 100):
        assert memory.arena(size).ctypes.data == first.ctypes.data
    memory.give_back()
    assert not first.any() and memory.taken == 0
    larger = memory.arena(1 << 30)
    larger[-1] = 1
    first[0] = 3  # who holds the old one may go on
    assert first[0] == 3


def test_dropping_gives_pages_back() -> None:
    main, startup, loss = wide()
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones((256, 16), np.float32)}
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        exe.run(startup)
        program = compiled(main, loss)
        exe.run(program, feed)
        memory = program._parallel.gang.delivery.replicas[0].memory  # type: ignore[union-attr]
        assert memory.taken > 0 and program.temporaries()[1] > 0
        program.drop_local_exe_scopes()
        assert memory.taken == 0 and program.temporaries() == (0, 0)
        exe.run(program, feed)
        assert memory.taken > 0
