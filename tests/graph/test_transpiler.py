"""Programs that DistributeTranspiler writes are Paddle 1.8.5's, operator by operator."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

import rowlock.fluid as fluid
from tests.reference import transpiled_nets as nets

RECORD = json.loads(Path(nets.__file__).with_name("transpiled.json").read_text())
OPS = RECORD["ops"]
PADDLE_FAILS = {name for name, programs in RECORD["programs"].items() if "error" in programs}
SHAPED = {"uniform_random", "gaussian_random", "fill_constant", "fake_init"}
# The backward pass here reads one more operand of these, which the forward pass made.
LEFT_OUT = {"sequence_pool_grad": "MaxIndex"}
Blocks = list[list[Any]]
pytestmark = pytest.mark.filterwarnings("ignore:lars_momentum steps by the norm")


def source(net: str) -> tuple[fluid.Program, fluid.Program]:
    """Return the programs of a net: those that Paddle built, where they differ here."""
    if net not in nets.FROM_FILES:
        main, startup = nets.built(fluid, net)
        return main, startup
    data = [zlib.decompress(base64.b64decode(text)) for text in RECORD["sources"][net]]
    main, startup = map(fluid.Program.parse_from_string, data)
    return main, startup


def rewritten(name: str) -> dict[str, fluid.Program]:
    case = nets.CASES[name]
    return nets.transpiled(fluid, case, *source(case.net))


def plain(text: str) -> str:
    """Return a name without the number that Paddle counts over all servers."""
    return "tmp_dc_output" if text.startswith("tmp_dc_output_") else text


def names_of(op: list[Any]) -> list[Any]:
    kind, *sides, _ = op
    return [
        {slot: [plain(n) for n in of] for slot, of in side.items() if slot != LEFT_OUT.get(kind)}
        for side in sides
    ]


def variables_of(block: list[Any]) -> dict[str, list[Any]]:
    """Return the variables of a block by name, without those that hold no value."""
    rows = ([plain(name), *rest] for name, *rest in block[2])
    return {
        name: rest
        for name, *rest in rows
        if not name.startswith("__control_var") and name != "@EMPTY@"
    }


def check_attributes(ours: list[Any], theirs: list[Any], ignored: set[str]) -> None:
    for attr in (ours[3].keys() & theirs[3].keys()) - ignored:
        value, other = ours[3][attr], theirs[3][attr]
        if isinstance(other, float):
            assert value == pytest.approx(other, rel=1e-5), (ours[0], attr)
        else:
            assert value == other, (ours[0], attr)


def check_ops(ours: list[Any], theirs: list[Any], startup: bool) -> None:
    if startup:  # Paddle takes the order of tables from a set
        ours, theirs = (sorted(ops, key=fake_last) for ops in (ours, theirs))
    assert [op[0] for op in ours] == [op[0] for op in theirs]
    for op, other in zip(ours, theirs, strict=True):
        assert names_of(op) == names_of(other)
        # Paddle gives initializers of the trainer the shape of a server's part: see docs/differences.md.
        check_attributes(op, other, {"shape"} if startup and op[0] in SHAPED else set())


def fake_last(op: list[Any]) -> tuple[bool, str]:
    return op[0] == "fake_init", str(op[2]) if op[0] == "fake_init" else ""


def check(ours: Blocks, theirs: Blocks, startup: bool) -> None:
    assert [block[:2] for block in ours] == [block[:2] for block in theirs]
    for block, other in zip(ours, theirs, strict=True):
        variables, others = variables_of(block), variables_of(other)
        assert set(variables) == set(others)
        for name, (kind, persistable, shape) in variables.items():
            assert [kind, persistable] == others[name][:2], name
            if others[name][2] and not startup:  # Paddle leaves some shapes open
                assert shape == others[name][2], name
        check_ops(json.loads(json.dumps(block[3])), [OPS[k] for k in other[3]], startup)


@pytest.mark.parametrize("name", sorted(nets.CASES.keys() - PADDLE_FAILS))
def test_programs_are_paddles(name: str) -> None:
    programs = rewritten(name)
    record = RECORD["programs"][name]
    assert set(programs) == set(record)
    for kind, program in programs.items():
        check(nets.described(program), record[kind], startup=kind == "startup")


@pytest.mark.parametrize(
    "name", ["mlp async", "ctr", "text_cnn", "regression delay", "geo", "lenet local_sgd 3"]
)
def test_programs_are_saved_printed_and_cloned(name: str) -> None:
    for program in rewritten(name).values():
        data = program.desc.serialize_to_string()
        loaded = fluid.Program.parse_from_string(data)
        assert loaded.desc.serialize_to_string() == data
        assert nets.described(program.clone()) == nets.described(program)
        for block, other in zip(nets.described(loaded), nets.described(program), strict=True):
            assert block[:3] == other[:3]
            assert [op[:3] for op in block[3]] == [op[:3] for op in other[3]]
        assert program.to_string(True, True) and str(program)


@pytest.mark.parametrize("net", ["mlp", "ctr"])
def test_a_program_from_a_file_is_rewritten_as_the_one_that_was_built(net: str) -> None:
    case = nets.CASES[net]
    programs = nets.built(fluid, net)
    data = [program.desc.serialize_to_string() for program in programs]
    ours = nets.transpiled(fluid, case, *programs)
    loaded = nets.transpiled(fluid, case, *map(fluid.Program.parse_from_string, data))
    for kind in ours:
        assert nets.described(loaded[kind]) == nets.described(ours[kind]), kind


def test_clips_of_an_optimizer_stay_with_the_trainer() -> None:
    """Paddle 1.8.5 fails to cut these (``grad_clip=`` beside L2Decay and slices)."""
    programs = rewritten("adam 2")
    trainer = [op.type for op in programs["trainer"].global_block().ops]
    assert trainer.count("elementwise_mul") == 6 and "sqrt" in trainer
    for kind, program in programs.items():
        if kind.startswith("server"):
            kinds = {op.type for block in program.blocks[1:] for op in block.ops}
            assert kinds == {"sum", "scale", "adam"}
