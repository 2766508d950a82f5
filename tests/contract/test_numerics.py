"""A step that makes NaN names the first operator that did, and changes nothing (``rowlock.check_numerics``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.errors import ExecutionError
from tests.conftest import lasting
from tests.programs import on_places, own_programs


def _program() -> tuple[Any, Any, Any]:
    with own_programs(3) as (main, startup):
        x = fluid.data("x", [None, 2])
        normed = fluid.layers.batch_norm(x)  # its statistics are written in the forward pass
        hidden = x + 0.0 * fluid.layers.fc(normed, 2)
        logs = fluid.layers.log(hidden)  # of a negative number
        loss = fluid.layers.mean(logs + fluid.layers.fc(x, 2))
        fluid.optimizer.Adam(0.1).minimize(loss)
    return main, startup, loss


GOOD = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
BAD = GOOD.copy()
BAD[3, 1] = -1


def _values(scope: Any, program: Any) -> dict[str, Any]:
    return {
        v.name: np.array(scope.find_var(v.name).get_tensor())
        for v in program.list_vars()
        if v.persistable
    }


@pytest.mark.parametrize("places", ["one", "threads", "ray"])
def test_the_first_operator_is_named_and_the_step_changes_nothing(places: str) -> None:
    main, startup, loss = _program()
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    launcher = places if places == "ray" else "threads"
    with fluid.scope_guard(scope), lasting(launcher):
        exe.run(startup)
        program = on_places(main, 2, loss) if places != "one" else main
        with rowlock.check_numerics():
            exe.run(program, feed={"x": GOOD}, fetch_list=[loss])
            before = _values(scope, main)
            with pytest.raises(ExecutionError) as error:
                exe.run(program, feed={"x": BAD}, fetch_list=[loss])
            after = _values(scope, main)
            exe.run(program, feed={"x": GOOD}, fetch_list=[loss])
        exe.run(program, feed={"x": BAD}, fetch_list=[loss])  # not looked at
    text = str(error.value)
    assert "operator log failed: it made 'log_0.tmp_0', which holds 1 NaN of" in text
    assert "all it read is finite" in text and "test_numerics.py:" in text
    assert places == "one" or "replica 1" in text
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)
