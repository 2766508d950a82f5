"""Which plans are kept: those used lately, as many as a number of bytes holds."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.driver import program_on_gang
from rowlock.executor.replica.plan_cache import KEYS_KEPT, PLANS_KEPT, PlanBudget, PlanCache
from tests.programs import on_places, own_programs

from ..contract.interrupts import Strike

L = fluid.layers


class Part:
    nbytes = 40


class Bound:
    def __init__(self, size: int, *parts: Part) -> None:
        self.size, self.parts, self.closed = size, parts, False

    def close(self) -> None:
        self.closed = True


def test_the_least_lately_used_goes_first() -> None:
    cache = PlanCache(PlanBudget[Bound](most=0))
    bounds = [Bound(100) for _ in range(PLANS_KEPT + 1)]
    for k, bound in enumerate(bounds[:-1]):
        cache.keep(k, None, bound)
    assert cache.get(0) is bounds[0]
    cache.keep("new", None, bounds[-1])
    assert [bound.closed for bound in bounds[:3]] == [False, True, False]
    assert cache.get(1) is None and cache.get(0) is bounds[0] and len(cache) == PLANS_KEPT


def test_small_plans_may_be_many() -> None:
    cache = PlanCache(PlanBudget[Bound](most=1000))
    for k in range(2000):
        cache.keep(k, None, Bound(10))
    assert len(cache) == 100
    cache.keep("large", None, Bound(2000))
    assert len(cache) == PLANS_KEPT


def test_what_plans_share_counts_once_as_long_as_one_of_them_is_kept() -> None:
    cache, shared = PlanCache(PlanBudget[Bound](most=1000)), Part()
    for k in range(200):
        cache.keep(k, None, Bound(10, shared))
    assert len(cache) == 96
    for k in range(200, 400):
        cache.keep(k, None, Bound(10, Part()))
    assert len(cache) == 20
    for k in range(400, 500):
        cache.keep(k, None, Bound(10))
    assert len(cache) == 100


def test_segments_share_a_budget() -> None:
    """What one of them needs goes from whichever has the plan used least lately, but not its last few."""
    budget = PlanBudget[Bound](most=1000)
    loop, body = PlanCache(budget), PlanCache(budget)
    for k in range(50):
        loop.keep(k, None, Bound(10))
        body.keep(k, None, Bound(10))
    assert len(loop) == len(body) == 50
    assert loop.get(0) is not None
    for k in range(50, 60):
        body.keep(k, None, Bound(10))
    assert len(loop) + len(body) == 100
    assert loop.get(0) is not None and loop.get(1) is body.get(0) is None
    for k in range(60, 500):
        body.keep(k, None, Bound(10))
    assert len(loop) == PLANS_KEPT and len(body) == 100 - PLANS_KEPT
    body.clear()
    for k in range(500, 600):
        loop.keep(k, None, Bound(10))
    assert len(loop) == 100


def test_keys_of_one_shape_have_one_plan() -> None:
    cache, bound = PlanCache[Bound](), Bound(10)
    for k in range(KEYS_KEPT + 5):
        assert cache.alike("shapes") is (bound if k else None)
        cache.keep(k, "shapes", bound)
    assert cache.get(0) is None and cache.get(KEYS_KEPT) is bound and len(cache) == 1
    cache.forget(bound)
    assert bound.closed and cache.get(KEYS_KEPT) is cache.alike("shapes") is None
    cache.keep("again", "shapes", Bound(10))
    cache.clear()
    assert not len(cache) and cache.get("again") is None


@pytest.mark.parametrize("places", [1, 2])
def test_variants_for_many_lengths_are_bounded(
    places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program is compiled for each length of what a recurrent net walks."""
    monkeypatch.setattr(program_on_gang, "VARIANTS_KEPT", 4)
    with own_programs() as (main, _):
        x = fluid.data("x", [None, None, 2])
        net = L.StaticRNN()
        with net.step():
            state = net.memory(shape=[-1, 2], batch_ref=x, ref_batch_dim_idx=1)
            after = state + net.step_input(x)
            net.update_memory(state, after)
            net.step_output(after)
        total = L.reduce_sum(net())
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        exe, program = fluid.Executor(fluid.CPUPlace()), main
        if places > 1:
            program = on_places(main, places)
        for steps in [*range(1, 9), 1]:
            feed = {"x": np.ones((steps, 2, 2), "float32")}
            fed = [feed] * places if places > 1 else feed
            (sums,) = exe.run(program, feed=fed, fetch_list=[total])
            assert sums.ravel().tolist() == [2.0 * steps * (steps + 1)] * places
        (run,) = [program._parallel] if places > 1 else exe._runs._runs.values()
        assert len(run.variants) <= 4


def test_an_interrupt_at_any_bytecode_leaves_a_cache_that_works() -> None:
    """A plan that was being kept, or another that left for it, is found whole or not at all, and is closed."""

    def filled() -> tuple[PlanCache[Bound], list[Bound]]:
        cache, shared = PlanCache(PlanBudget[Bound](most=0)), Part()
        bounds = [Bound(100, shared, Part()) for _ in range(PLANS_KEPT)]
        for k, bound in enumerate(bounds):
            cache.keep(k, ("shapes", k), bound)
        return cache, bounds

    def keep(cache: PlanCache[Bound], bounds: list[Bound]) -> None:
        bounds.append(Bound(100, bounds[0].parts[0], Part()))
        cache.keep("new", "its shapes", bounds[-1])

    counting = Strike()
    counting.during(lambda: keep(*filled()))
    assert counting.count > 100
    for at in range(1, counting.count + 1):
        cache, bounds = filled()
        strike = Strike(at)
        strike.during(partial(keep, cache, bounds))
        if len(bounds) > PLANS_KEPT and bounds[-1] not in list(cache):
            bounds.pop()  # it was not known yet
        for k in (0, "new"):
            bound = cache.get(k)
            assert bound is None or (bound in bounds and not bound.closed), strike.where
        for _ in range(PLANS_KEPT + 2):
            keep(cache, bounds)
        assert len(cache) == PLANS_KEPT and cache.get("new") is bounds[-1], strike.where
        cache.clear()
        open_plans = [bound for bound in bounds if not bound.closed]
        assert len(cache) == 0 and not open_plans, strike.where
