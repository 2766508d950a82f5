"""Results that lie where operands do are what they are in memory of their own, whatever is read when."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from rowlock.executor.codegen.array_calls import bind_calls
from rowlock.executor.codegen.array_schedule import COPY, schedule
from rowlock.executor.device.device import Device
from rowlock.graph.ops import expr as e
from rowlock.graph.ops.expr import Expr
from rowlock.graph.ops.registry import OPS

STATE, SCALARS = ("a", "b", "c"), ("r", "s")


def drawn(rng: random.Random, parts: list[Expr]) -> Expr:
    """Return an expression over parts, which it may share with others."""
    for _ in range(rng.randint(0, 4)):
        first, second = rng.choice(parts), rng.choice([*parts, e.constant(0.5)])
        parts.append(rng.choice([first + second, first * second, first - second, e.abs_(first)]))
    return rng.choice(parts)


def value(node: Expr, arrays: dict[str, Any]) -> Any:
    """Return an expression's value, without sharing any memory."""
    if node.fn in ("arg", "const"):
        return arrays[node.value] if node.fn == "arg" else np.float64(node.value)
    return getattr(np, node.fn)(*(value(arg, arrays) for arg in node.args))


def run(results: dict[str, Expr], arrays: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Run a schedule in place; return the results, and how many arrays of scratch it took."""
    order = schedule(results, SCALARS)
    memory = dict(arrays) | {f"{name}_out": array for name, array in arrays.items()}
    memory |= {name: np.full(1, np.nan) for name in order.numbers}
    memory |= {name: np.full_like(arrays["a"], np.nan) for name in order.scratch}
    for fn, operands, out in (*order.once, *order.each, *order.last):
        getattr(np, fn)(*(memory.get(x, x) for x in operands), memory[out])
    return {name: memory[name] for name in results}, len(order.scratch)


@pytest.mark.parametrize("seed", range(300))
def test_in_place_is_as_apart(seed: int) -> None:
    rng = random.Random(seed)
    arrays = {name: np.array([rng.uniform(-1, 1) for _ in range(3)]) for name in STATE}
    arrays |= {name: np.array([rng.uniform(-1, 1)]) for name in SCALARS}
    leaves = {name: e.argument(name) for name in (*STATE, *SCALARS)}
    parts = list(leaves.values())
    results = {f"{name}_out": drawn(rng, parts) + leaves["a"] * 0 for name in STATE}
    if rng.random() < 0.5:  # the operands, in each other's places
        results |= dict(zip(("a_out", "b_out"), (leaves["b"], leaves["a"]), strict=True))
    results["r_out"] = leaves["r"] * leaves["s"]
    expected = {name: value(result, arrays) for name, result in results.items()}
    ours, _ = run(results, {name: array.copy() for name, array in arrays.items()})
    for name, array in expected.items():
        np.testing.assert_array_equal(ours[name], np.broadcast_to(array, ours[name].shape), name)


# What is read again behind its result.
COPIED = {"asgd": ["y_out"], "rmsprop": ["mean_grad_out"], "ftrl": ["squared_accumulator_out"]}
SCRATCH = {"ftrl": 4, "nadam": 4, "radam": 4}


def test_updates_take_little_scratch_and_no_copies() -> None:
    for name, op in OPS.items():
        if op.update is None:
            continue
        base = name.removesuffix("_without_grad")
        totals = op.update.totals(op.attrs, np.float32)
        scalars = (*op.update.scalars, *totals)
        order = schedule(op.update.results(op.attrs, np.float32), scalars)
        assert len(order.scratch) <= SCRATCH.get(base, 2), name
        assert len(schedule(totals, scalars).scratch) <= 2, name
        copies = [call.out for call in order.each if call.fn == COPY]
        assert copies == COPIED.get(base, []), name
    adam = OPS["adam"].update
    assert adam is not None
    assert len(schedule(adam.results(OPS["adam"].attrs, np.float32), adam.scalars).scratch) == 1


def test_numbers_are_rounded_to_the_element_type() -> None:
    adam = OPS["adam"].update
    assert adam is not None
    for dtype in (np.float32, np.float64):
        order = schedule(adam.results(OPS["adam"].attrs, dtype), adam.scalars)
        numbers = {x for call in order.each for x in call.operands if isinstance(x, float)}
        assert float(dtype(1) - dtype(0.9)) in numbers


@pytest.mark.parametrize("seed", range(60))
def test_calls_are_as_apart_wherever_results_lie(seed: int) -> None:
    """Results share parts, lie where operands do, and are sums where they have fewer elements."""
    rng = random.Random(seed)
    arrays = {name: np.array([[rng.uniform(-1, 1)] * 3] * 2) for name in "ab"}
    arrays["row"] = np.array([[rng.uniform(-1, 1) for _ in range(3)]])
    leaves = [e.argument(name) for name in arrays]
    parts = [*leaves, e.where(leaves[0] > leaves[1], leaves[0], leaves[2])]
    roots = [drawn(rng, parts) + leaves[0] * 0 for _ in range(3)]
    roots[2] = rng.choice([roots[0], roots[2], e.copy(leaves[0])])

    def plain(node: Expr) -> Any:
        if node.fn in ("arg", "const"):
            return arrays[node.value] if node.fn == "arg" else node.value
        return getattr(np, node.fn)(*map(plain, node.args))

    expected = [plain(root) for root in roots]
    operands = {name: array.copy() for name, array in arrays.items()}
    outs = [operands["a"], rng.choice([operands["b"], np.empty((2, 3))]), np.empty((1, 3))]
    for step in bind_calls(Device(), list(zip(roots, outs, strict=True)), operands):
        step()
    for k, out in enumerate(outs):
        total = expected[k].sum(0, keepdims=True) if k == 2 else expected[k]
        np.testing.assert_allclose(out, np.broadcast_to(total, out.shape), rtol=1e-12)


def test_a_sum_of_what_is_written_reads_it_there() -> None:
    x, out, total = np.ones((4, 5)), np.empty((4, 5)), np.empty((1, 5))
    root, dev = e.exp(e.argument("x")) * 2, Device()
    for step in bind_calls(dev, [(root, total), (root, out)], {"x": x}):
        step()
    np.testing.assert_array_equal(total, out.sum(0, keepdims=True))
    assert not dev.scratch_bytes
