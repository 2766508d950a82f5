"""``block.append_op(type, inputs, outputs, attrs)`` builds every declared op, and the program runs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.graph.ops.operands import LOD_SUFFIX
from rowlock.graph.ops.registry import OPS, Op
from tests.conftest import one_in
from tests.ops.harness import Arrays, Attrs, draw, run, updates
from tests.ops.test_conformance import FORWARD, RANDOM

CASES = [(n, i) for n in [*FORWARD, *sorted(RANDOM)] for i in range(len(OPS[n].samples))]
Operands = dict[str, list[Any]]


def levels_of(inputs: Arrays, slot: str, position: int) -> list[Any]:
    """Return the offsets of a variable's sequences by level; of several variables each has one level."""
    levels = inputs.get(slot + LOD_SUFFIX, [])
    return levels if len(inputs[slot]) == 1 else levels[position : position + 1]


def declared(inputs: Arrays) -> tuple[Operands, dict[str, Any]]:
    """Return variables that are fed by slot, and what is fed."""
    operands: Operands = {}
    feed: dict[str, Any] = {}
    for slot in (s for s in inputs if not s.endswith(LOD_SUFFIX)):
        operands[slot] = []
        for k, array in enumerate(inputs[slot]):
            name, levels = f"{slot}_{k}", levels_of(inputs, slot, k)
            shape = list(array.shape)
            operands[slot].append(fluid.data(name, shape, array.dtype, lod_level=len(levels)))
            lengths = [np.diff(level).tolist() for level in levels]
            feed[name] = array
            if levels:
                feed[name] = fluid.create_lod_tensor(array, lengths, fluid.CPUPlace())
    return operands, feed


def appended(op: Op, operands: Operands, expected: Arrays, attrs: Attrs) -> Operands:
    """Append the op to the program; return its results by slot, those that it updates among them."""
    block = fluid.default_main_program().global_block()
    results: Operands = {}
    for slot, arrays in expected.items():
        updated = operands.get(updates(op).get(slot, ""))
        names = [f"{slot}_out_{k}" for k, _ in enumerate(arrays)]
        results[slot] = updated or [block.create_var(name=name) for name in names]
    block.append_op(op.type, operands, results, attrs)
    return results


def check(name: str, index: int) -> None:
    """Build a sample of an op, run it, and compare with what NumPy's kernels make."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    expected = run(op, inputs, attrs)
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        operands, feed = declared(inputs)
        results = appended(op, operands, expected, attrs)
    pairs = [
        (variable, value)
        for slot, variables in results.items()
        for variable, value in zip(variables, expected[slot], strict=True)
    ]
    exe = fluid.Executor(fluid.CPUPlace())
    fetches = [variable for variable, _ in pairs]
    with fluid.scope_guard(fluid.Scope()):
        fetched = exe.run(main, feed=feed, fetch_list=fetches, return_numpy=False)
    for (variable, value), tensor in zip(pairs, fetched, strict=True):
        array = np.array(tensor)
        assert (array.shape, array.dtype) == (value.shape, value.dtype), variable
        assert len(variable.shape) == value.ndim
        if name not in RANDOM:
            np.testing.assert_allclose(array, value, 2e-4, 2e-5, err_msg=variable.name)


@pytest.mark.parametrize(("name", "index"), one_in(16, CASES, more=0))
def test_an_op_is_built_and_run_by_libraries(name: str, index: int) -> None:
    """Loops are compiled for these: ahead of the next test, behind which none are."""
    assert ("llvm" in capabilities()) == (find_spec("llvmlite") is not None)
    check(name, index)


@pytest.mark.usefixtures("no_compiled_loops")
@pytest.mark.parametrize(("name", "index"), CASES)
def test_an_op_is_built_and_run(name: str, index: int) -> None:
    check(name, index)
