"""Parameters that begin with the elements of an array, such as word vectors of a hundred thousand words."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np

import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.shapes import Shapes
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.replica_program import ReplicaProgram
from rowlock.graph.passes.target import Target
from tests.programs import own_programs


def built(values: np.ndarray) -> fluid.Program:
    """Return a startup program that creates ``w`` with these values."""
    with own_programs() as (_, startup):
        initializer = fluid.initializer.NumpyArrayInitializer(values)
        attr = fluid.ParamAttr("w", initializer=initializer)
        fluid.layers.create_parameter(list(values.shape), "float32", attr=attr)
    return startup


def lowered(values: np.ndarray) -> ReplicaProgram:
    return compile_program(built(values), (), (), Target(), capabilities()).program


def test_no_function_of_python_sees_each_element() -> None:
    values, calls = np.random.default_rng(0).random((1000, 300), "float32"), Counter[str]()

    def count(frame: Any, event: str, _: Any) -> None:
        calls[event] += event == "call"

    sys.setprofile(count)
    try:
        startup, scope = built(values), fluid.Scope()
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    finally:
        sys.setprofile(None)
    np.testing.assert_array_equal(scope.find_var("w").get_tensor(), values)
    assert calls["call"] < values.size / 2


def test_programs_are_told_by_digests_of_first_values() -> None:
    values = np.arange(6000, dtype="float32").reshape(20, 300)
    program, same, other = lowered(values), lowered(values.copy()), lowered(values + 1)
    assert program.schedule == same.schedule != other.schedule
    assert all(len(form) < 1000 for form in Shapes(program)._known)
    # What is no list of numbers, or a short one, stands for itself.
    (node,) = program.nodes
    assert node.short_attrs["shape"] == [20, 300] and node.attrs["fp32_values"] == list(range(6000))
