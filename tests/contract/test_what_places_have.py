"""What a place alone knows of a step, or holds for itself, outlives its replica: fetches and values stay.

Replicas end at chosen points: after the vote and before the answer, or within several steps of one call.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import CollectiveError
from tests.programs import on_places

from ..conftest import lasting, one_in
from .nets import OPTIMIZERS, Net, feed
from .test_recovery import quiet
from .test_sync_batch_norm import Normed

__all__ = ["quiet"]
STEPS = 6


def doom(program: Any, rank: int, steps: int, *, answered: bool = False) -> None:
    """Let a replica's process end when it has made so many more steps, the last one's writes included.

    Its peers come to the vote with it. It does not answer, unless the next step is to find it ending.
    """
    import ray

    def arm(actor: Any) -> None:
        import os
        import signal

        replica = actor._replica
        run, left = replica._run, [steps]

        def dying(*args: Any, **settings: Any) -> None:
            if answered and not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            run(*args, **settings)
            left[0] -= 1
            if not answered and not left[0]:
                runtime = replica.runtime
                if runtime is not None:
                    runtime.synchronize()
                os.kill(os.getpid(), signal.SIGKILL)

        replica._run = dying

    actor = program._parallel.gang.delivery._members[rank].actor
    ray.get(actor.__ray_call__.remote(arm))


class Reading(Net):
    """A net in which rows meet parameters that were just updated, and a counter of the rows' sums."""

    def __init__(self, optimizer: str = "momentum") -> None:
        super().__init__(OPTIMIZERS[optimizer], layers=2, drop=0.3)
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard("after"):
            x = self.main.global_block().var("x")
            weight = self.main.all_parameters()[0]
            after = fluid.layers.mul(x, weight)
            self.sums = fluid.layers.create_global_var([1, 1], 0.0, "float32", persistable=True)
            total = fluid.layers.reduce_sum(x, dim=[0, 1], keep_dim=True)
            fluid.layers.sums([self.sums, total], self.sums)
            names = [self.loss.name, after.name, weight.name, f"{weight.name}@GRAD", self.sums.name]
            self.alike = [weight.name, f"{weight.name}@GRAD"]
            self.fetches = [*names, *[f"{weight.name}_velocity_0"] * (optimizer == "momentum")]
        self.run(self.startup)


def bits(values: Any) -> list[bytes]:
    return [np.asarray(value).tobytes() for value in values]


def held(run: Any) -> dict[str, list[bytes]]:
    """Return every persistable, of every place that holds it."""
    return {
        name: [
            run.gang.read(run.values.id, name, rank).tobytes()
            for rank in (
                [run.values.owners[name]] if name in run.values.owners else range(run.gang.size)
            )
        ]
        for name in run.values.names
    }


def train(
    net: Any, program: Any, feeds: Any, fetches: Any, ahead: bool, lethal: dict[int, Any]
) -> list[list[bytes]]:
    """Return what each step fetches, as bytes; ``lethal`` says who ends when."""
    futures, fetched = [], []
    for step in range(STEPS):
        if step in lethal:
            for future in futures:
                fetched.append(bits(future.result()))
            futures = []
            doom(program, **lethal[step])
        if ahead:
            futures.append(net.exe.run_async(program, feeds(step), fetches, scope=net.scope))
        else:
            fetched.append(bits(net.exe.run(program, feeds(step), fetches, scope=net.scope)))
    return fetched + [bits(future.result()) for future in futures]


def twice(name: str, make: Any, build: Any, execution: Any, ahead: bool, lethal: Any) -> None:
    """Hold a training that loses replicas to one that does not."""
    results = []
    for kills in ({}, lethal):
        net, feeds, fetches = make()
        program = on_places(net.main, 2, net.loss, build=build, execution=execution)
        net.exe.run(program, feeds(9), fetches, scope=net.scope)
        fetched = train(net, program, feeds, fetches, ahead, kills)
        results.append((fetched, held(program._parallel)))
    (expected, state), (fetched, left) = results
    for step, (one, other) in enumerate(zip(fetched, expected, strict=True)):
        assert one == other, f"{name}: what step {step} fetches"
    differing = [name for name in state if left[name] != state[name]]
    assert not differing, f"{name}: {differing}"


def reading(optimizer: str = "momentum") -> Any:
    net = Reading(optimizer)
    return net, lambda step: feed(8, step), net.fetches


def normed() -> Any:
    net = Normed("rows")
    mean = next(v.name for v in net.main.list_vars() if v.persistable and v.name.endswith(".w_1"))
    return net, lambda step: net.feed(6, step), [net.loss, net.normed, mean]


FIRST, SECOND = {"rank": 0, "steps": 1}, {"rank": 1, "steps": 1}
BOTH = {2: FIRST, 4: SECOND}
THRICE = {"num_iteration_per_run": 3}
CASES: dict[str, Any] = {
    "updated": (reading, {}, {}, False, {2: FIRST}),
    "updated, in flight": (reading, {}, {}, True, {3: SECOND}),
    "updated, three in a call": (
        reading,
        {},
        THRICE,
        False,
        {2: {"rank": 0, "steps": 3}, 4: SECOND},
    ),
    "updated by owners": (
        *(partial(reading, "sgd"), {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce}, {}),
        *(False, {2: FIRST}),
    ),
    "statistics of all": (normed, {"sync_batch_norm": True}, {}, False, {2: SECOND}),
    "statistics": (normed, {}, {"num_threads": 4}, False, BOTH),
    "statistics, three in a call": (
        *(normed, {}, THRICE, False),
        {2: {"rank": 0, "steps": 2}, 4: {"rank": 1, "steps": 1, "answered": True}},
    ),
    "trained apart": (
        *(normed, {"reduce_strategy": BuildStrategy.ReduceStrategy._NoReduce}, {}),
        *(True, {2: FIRST}),
    ),
}


@pytest.mark.parametrize("name", one_in(4, CASES, more=6))
def test_the_same_bits_as_undisturbed(name: str) -> None:
    with lasting("ray", spares=1):
        twice(name, *CASES[name])


@pytest.mark.slow
def test_without_posts_what_is_lost_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Actor calls bring only answers: what all have alike is there, the rest is an error or is told."""
    with rowlock.cluster(launcher="ray", transport="actor"):
        twin, net = Reading(), Reading()
        programs = [twin.compiled(2), net.compiled(2)]
        for one, program in zip((twin, net), programs, strict=True):
            one.run(program, feed(8, 0), one.fetches)
        expected = [twin.run(programs[0], feed(8, step), twin.alike) for step in (1, 2, 3)]
        logging.getLogger("rowlock").setLevel(logging.WARNING)
        doom(programs[1], 0, 1)
        assert bits(net.run(programs[1], feed(8, 1), net.alike)) == bits(expected[0])
        assert "Replica 0 goes on with other values of 1 persistable(s)" in caplog.text
        doom(programs[1], 1, 1)
        with pytest.raises(CollectiveError, match=r"what replica 1 fetched was lost with it"):
            net.run(programs[1], feed(8, 2), net.fetches)
        assert bits(net.run(programs[1], feed(8, 3), net.alike)) == bits(expected[2])
