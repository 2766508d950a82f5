"""Programs built by the reference models are Paddle's: ops, names, attributes, roles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REFERENCE = Path(__file__).parents[1] / "reference"
PROGRAMS = json.loads((REFERENCE / "programs.json").read_text())

# Models whose schedule Paddle builds with conditional blocks, which are selections here.
WITH_BRANCHES = {"lenet"}
NAMES = sorted(set(PROGRAMS) - WITH_BRANCHES)

DUMP = """
import json, os, sys
import rowlock.fluid as fluid
from tests.reference import models
def ops(program):
    return [{"type": o.type, "inputs": o.inputs, "outputs": o.outputs, "role": o.attr("op_role"),
             "role_var": o.attr("op_role_var"), "scope": o.attr("op_namescope"), "attrs": o.all_attrs()}
            for o in program.global_block().ops]
def names(program):
    return {v.name: [list(v.shape or ()), int(v.dtype), v.persistable] for v in program.list_vars()}
for name in sys.argv[1:]:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, name
        continue
    built = models.build(name, fluid)
    test = [o.type for o in built.main.clone(for_test=True).global_block().ops]
    print(json.dumps({"main": ops(built.main), "startup": ops(built.startup),
                      "vars": names(built.main), "for_test": test}, default=str), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    """Models, each built in a fork of its own: name scopes are numbered for the whole process."""
    process = subprocess.run(
        [sys.executable, "-c", DUMP, *NAMES],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return dict(zip(NAMES, map(json.loads, process.stdout.splitlines()), strict=True))


def slots(by_slot: dict[str, list[str]]) -> dict[str, list[str]]:
    return {slot: names for slot, names in by_slot.items() if names}


@pytest.mark.parametrize("name", NAMES)
def test_program_is_paddles(programs: dict[str, Any], name: str) -> None:
    mine, theirs = programs[name], PROGRAMS[name]
    for part in ("main", "startup"):
        expected = theirs[part][0]["ops"]
        assert [op["type"] for op in mine[part]] == [op["type"] for op in expected], part
        for op, other in zip(mine[part], expected, strict=True):
            assert slots(op["inputs"]) == slots(other["inputs"]), other["type"]
            assert slots(op["outputs"]) == slots(other["outputs"]), other["type"]
            assert op["role"] == other["op_role"], (other["type"], other["outputs"])
            assert op["role_var"] == (other["op_role_var"] or []), (other["type"], other["outputs"])
            assert op["scope"] == (other["op_namescope"] or op["scope"]), other["type"]
            for attr, value in other["attrs"].items():
                if attr in op["attrs"]:
                    assert op["attrs"][attr] == pytest.approx(value) or attr == "seed", (
                        other["type"],
                        attr,
                    )
    for name_, entry in mine["vars"].items():
        variable = next((v for v in theirs["main"][0]["vars"] if v["name"] == name_), None)
        assert variable is not None, f"variable {name_} is not Paddle's"
        if variable["shape"] is not None and variable["dtype"] is not None:
            # Paddle multiplies unknown sizes: -1 rows of 6 are "-6".
            shape = [max(size, -1) for size in variable["shape"]]
            assert entry == [shape, variable["dtype"], variable["persistable"]], name_
    assert mine["for_test"] == theirs["for_test"]
