"""Ops that are messages: declared with Paddle's slots, attributes and defaults, and computed by no kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowlock.executor.kernels.registry import KERNELS
from rowlock.graph.ops.registry import BLOCK_OPS, MESSAGE_OPS, OPS
from rowlock.graph.program.formats.op_table import entry_of

PROTOS = json.loads((Path(__file__).parents[1] / "reference" / "protos.json").read_text())
ON_GPUS_ONLY = {"gen_nccl_id", "c_gen_nccl_id"}  # the CPU build of 1.8.5 lacks them
# Paddle gives these attributes no default: they must be passed.
REQUIRED = {"nranks", "rank", "ring_id", "dir", "lookup_table", "trainer_id", "file_path", "shape"}


def test_a_message_is_no_op_of_another_kind() -> None:
    assert not MESSAGE_OPS.keys() & (OPS.keys() | BLOCK_OPS.keys())
    assert not {name for name, _ in KERNELS} & MESSAGE_OPS.keys()


def test_paddle_has_every_message() -> None:
    assert MESSAGE_OPS.keys() - PROTOS.keys() == ON_GPUS_ONLY


@pytest.mark.parametrize("name", sorted(MESSAGE_OPS.keys() & PROTOS.keys()))
def test_slots_attributes_and_defaults_are_paddles(name: str) -> None:
    theirs, op = PROTOS[name], MESSAGE_OPS[name]
    # Slots that Paddle lets be empty although it has no mark for that.
    assert [slot.rstrip("?") for slot in op.inputs] == [slot.rstrip("?") for slot in theirs["in"]]
    assert [slot.rstrip("?") for slot in op.outputs] == [
        slot.rstrip("?~") for slot in theirs["out"]
    ]
    assert set(op.attrs) == set(theirs["attrs"])
    entry = entry_of(name)
    assert entry is not None
    for attr, (_, default) in entry.attrs.items():
        if default is not None and attr not in REQUIRED:
            assert op.attrs[attr] == default, attr
