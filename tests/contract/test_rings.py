"""Trainers of one place meet by the collectives that stand in their programs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.errors import (
    CollectiveError,
    EnforceNotMet,
    InvalidArgument,
    InvalidState,
    InvalidValue,
    Unsupported,
)
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.contract.rings import add_ring
from tests.contract.trainers import all_well, at_once, part
from tests.contract.trainers import endpoints_on_one_place as endpoints
from tests.programs import own_programs

STEPS = 5


class Unstarted(Net):
    """A net whose startup program is rewritten before it is run."""

    def run(self, program: Any, *args: Any, **settings: Any) -> list[Any]:
        return (
            [] if program is self.startup and not args else super().run(program, *args, **settings)
        )

    def start(self) -> None:
        super().run(self.startup)


def rewritten(kind: str, rank: int, ends: list[str], optimizer: str, rings: int = 1) -> Unstarted:
    net = Unstarted(OPTIMIZERS[optimizer])
    net.startup.random_seed = net.main.random_seed = 5 + rank  # rank 0's parameters count
    config = fluid.DistributeTranspilerConfig()
    config.mode, config.collective_mode, config.nccl_comm_num = "collective", kind, rings
    fluid.DistributeTranspiler(config).transpile(
        rank,
        net.main,
        trainers=",".join(ends),
        startup_program=net.startup,
        current_endpoint=ends[rank],
    )
    return net


def trained(net: Unstarted, rank: int, ranks: int) -> dict[str, np.ndarray]:
    net.start()
    for step in range(STEPS):
        net.run(net.main, part(feed(12, step), rank, ranks), [net.loss])
    return net.parameters()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_summed_gradients_are_those_of_the_whole_batch(
    gang: str, optimizer: str, ranks: int
) -> None:
    ends = endpoints(ranks)
    nets = [rewritten("grad_allreduce", r, ends, optimizer, ranks - 1) for r in range(ranks)]
    ways = [partial(trained, net, rank, ranks) for rank, net in enumerate(nets)]
    alone = Net(OPTIMIZERS[optimizer])
    for step in range(STEPS):
        alone.run(alone.main, feed(12, step), [])
    for parameters in all_well(at_once(ways)):
        assert_close(parameters, alone.parameters(), 1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_local_updates_are_averaged(gang: str, optimizer: str) -> None:
    ends = endpoints(2)
    nets = [rewritten("local_sgd", rank, ends, optimizer) for rank in range(2)]
    ways = [partial(trained, net, rank, 2) for rank, net in enumerate(nets)]
    apart = [Net(OPTIMIZERS[optimizer]) for _ in range(2)]
    for step in range(STEPS):
        for rank, net in enumerate(apart):
            net.run(net.main, part(feed(12, step), rank, 2), [])
        for name in apart[0].parameters():
            mean = (apart[0].value(name) + apart[1].value(name)) / np.float32(2)
            for net in apart:
                net.scope.find_var(name).get_tensor().set(mean)
    for parameters in all_well(at_once(ways)):
        assert_close(parameters, apart[0].parameters(), 1e-5)


KINDS = {
    "c_allreduce_sum": lambda xs, rank: xs[0] + xs[1],
    "c_allreduce_max": lambda xs, rank: np.maximum(*xs),
    "c_allreduce_min": lambda xs, rank: np.minimum(*xs),
    "c_allreduce_prod": lambda xs, rank: xs[0] * xs[1],
    "c_broadcast": lambda xs, rank: xs[1],
    "c_allgather": lambda xs, rank: np.concatenate(xs),
    "c_reducescatter": lambda xs, rank: np.split(xs[0] + xs[1], 2)[rank],
}
ATTRS: dict[str, dict[str, int]] = {
    "c_broadcast": {"root": 1},
    "c_allgather": {"nranks": 2},
    "c_reducescatter": {"nranks": 2},
}


def meeting(rank: int, ends: list[str], rows: int | None, kinds: list[str]) -> tuple[Any, Any]:
    """Return a program that has collectives of x [rows, 3], and its startup program."""
    with own_programs() as (main, startup):
        x = fluid.data("x", [rows, 3])
        block = main.global_block()
        for kind in kinds:
            out = block.create_var(name=kind, shape=[-1, 3], dtype=x.dtype)
            attrs = {"ring_id": 0, **ATTRS.get(kind, {})}
            block.append_op(type=kind, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
        if len(ends) > 1:
            add_ring(startup, rank, ends)
    return main, startup


@pytest.mark.parametrize("rows", [4, None])
def test_each_collective(gang: str, rows: int | None) -> None:
    ends, xs = endpoints(2), [np.arange(12, dtype="float32").reshape(4, 3) - 7, np.ones((4, 3))]
    xs[1] = (xs[1] * 3).astype("float32")
    programs = [meeting(rank, ends, rows, list(KINDS)) for rank in range(2)]

    def run(rank: int) -> list[np.ndarray]:
        (main, startup), scope, exe = programs[rank], fluid.Scope(), fluid.Executor()
        exe.run(startup, scope=scope)
        for _ in range(3):
            fetched = exe.run(main, {"x": xs[rank]}, list(KINDS), scope=scope)
        return fetched

    for rank, fetched in enumerate(all_well(at_once([partial(run, rank) for rank in range(2)]))):
        for kind, value in zip(KINDS, fetched, strict=True):
            np.testing.assert_array_equal(value, KINDS[kind](xs, rank), err_msg=kind)


def test_a_step_is_cut_between_two_collectives(gang: str) -> None:
    """What follows from the second is known before the first has to be: they keep their order all the same."""
    ends, xs = endpoints(2), [np.arange(12, dtype="float32").reshape(4, 3) - k for k in (7, 2)]
    programs = []
    for rank in range(2):
        main, startup = meeting(rank, ends, 4, ["c_allreduce_max", "c_allreduce_sum"])
        with fluid.program_guard(main, startup):
            rows = fluid.layers.where(main.global_block().var("c_allreduce_sum") > 0.0)
        programs.append((main, startup, rows))

    def run(rank: int) -> list[np.ndarray]:
        (main, startup, rows), scope, exe = programs[rank], fluid.Scope(), fluid.Executor()
        exe.run(startup, scope=scope)
        for _ in range(3):
            fetched = exe.run(main, {"x": xs[rank]}, [rows, "c_allreduce_max"], scope=scope)
        return fetched

    for rows, largest in all_well(at_once([partial(run, rank) for rank in range(2)])):
        np.testing.assert_array_equal(rows, np.argwhere(xs[0] + xs[1] > 0))
        np.testing.assert_array_equal(largest, np.maximum(*xs))


def test_ranks_that_meet_for_other_things(gang: str) -> None:
    ends = endpoints(2)
    kinds = [["c_allreduce_sum"], ["c_allreduce_max"]]
    programs = [meeting(rank, ends, 4, kinds[rank]) for rank in range(2)]

    def run(rank: int) -> None:
        (main, startup), scope, exe = programs[rank], fluid.Scope(), fluid.Executor()
        exe.run(startup, scope=scope)
        exe.run(main, {"x": np.ones((4, 3), "float32")}, kinds[rank], scope=scope)

    for result in at_once([partial(run, rank) for rank in range(2)]):
        assert isinstance(result, CollectiveError), result
        assert "came for another collective" in str(result) and "trainer 1 (process" in str(result)


def test_a_program_that_nobody_made_a_ring_for(threads: None, monkeypatch: Any) -> None:
    main, _ = meeting(0, ["one:1"], 4, ["c_allreduce_sum"])
    exe, fed = fluid.Executor(), {"x": np.ones((4, 3), "float32")}
    with pytest.raises(InvalidState, match=r"nobody made ring 0.*startup program"):
        exe.run(main, fed, scope=fluid.Scope())
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "one:1")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    (value,) = exe.run(main, fed, ["c_allreduce_sum"], scope=fluid.Scope())
    np.testing.assert_array_equal(value, fed["x"])
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    with pytest.raises(InvalidValue, match=r"PADDLE_TRAINER_ID is '1'.*lists 1 trainers.*0 to 0"):
        exe.run(main, fed, scope=fluid.Scope())
    with pytest.raises(Unsupported, match="c_allreduce_sum stands in the program"):
        exe.run(fluid.CompiledProgram(main).with_data_parallel(), fed, scope=fluid.Scope())


def test_rings_that_contradict_themselves(threads: None) -> None:
    ends = endpoints(2)
    for name, value, error in (("rank", 2, EnforceNotMet), ("nranks", 3, InvalidArgument)):
        main, startup = meeting(0, ends, 4, ["c_allreduce_sum"])
        for op in startup.global_block().ops:
            if name in op.attrs:
                op._set_attr(name, value)
        with pytest.raises(error, match="Built at"):
            fluid.Executor().run(startup, scope=fluid.Scope())
    main, startup = meeting(0, ends, 4, ["c_allreduce_sum", "c_allreduce_max"])
    add_ring(startup, 0, endpoints(2), ring=1)
    main.global_block().ops[1]._set_attr("ring_id", 1)
    scope, exe = fluid.Scope(), fluid.Executor()
    with rowlock.cluster(launcher="threads"):
        exe.run(startup, scope=scope)
        with pytest.raises(Unsupported, match="rings of one program"):
            exe.run(main, {"x": np.ones((4, 3), "float32")}, scope=scope)
