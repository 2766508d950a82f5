"""Inference programs: the ops between the fed and the fetched variables, with feed and fetch ops."""

from __future__ import annotations

from collections.abc import Sequence

from ....strategies.errors import DamagedFile, InvalidValue, nearest
from ....strategies.types import VarType
from ..clone import copy_program, prune, set_test_mode
from ..operator import Operator
from ..program import Program
from ..role import CALLSTACK, DEVICE, NAMESCOPE, ROLE, ROLE_VAR
from ..variable import Variable
from ..where import user_line
from .messages import decode
from .op_table import compatible_map
from .program import PADDLE_VERSION

_FEED, _FETCH = "feed", "fetch"


def inference_program(
    program: Program,
    feed_names: Sequence[str],
    targets: Sequence[Variable],
    everything: bool = False,
) -> Program:
    """Return a copy with the ops that the targets need when these variables are fed, and feed and fetch ops.

    ``everything``: keep the other ops, too.

    Raises:
        InvalidValue: the targets do not need a fed variable.
    """
    clone = copy_program(program)
    block = clone.global_block()
    block.ops = [op for op in block.ops if op.type not in (_FEED, _FETCH)]
    for name in (_FEED, _FETCH):
        block.vars.pop(name, None)
    if not everything:
        clone = prune(clone, list(feed_names), [target.name for target in targets])
    for block in clone.blocks:
        for op in block.ops:
            op.attrs[DEVICE] = ""
    set_test_mode(clone)
    prepend_feed_ops(clone, feed_names)
    append_fetch_ops(clone, [target.name for target in targets])
    clone.lr_scheduler, clone.readers = None, []
    return clone


def stamp_versions(program: Program) -> None:
    """Write into a program the Paddle version of its file, and which of its ops changed since the last one."""
    program.file_fields = {
        "version": {"version": PADDLE_VERSION},
        "op_compatible_map": decode("OpCompatibleMap", compatible_map()),
    }


def prepend_feed_ops(
    inference_program: Program, feed_target_names: Sequence[str], feed_holder_name: str = _FEED
) -> None:
    """Add an op for each variable that is fed, the last one first.

    Raises:
        InvalidValue: the program has no such variable.
    """
    if not feed_target_names:
        return
    block = inference_program.global_block()
    names = {name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    for name in feed_target_names:
        if name not in block.vars or (block.ops and name not in names):
            raise InvalidValue(
                f"the fed variable {name!r} is not needed for the fetched ones, or is no variable of the "
                f"program.{nearest(name, sorted(names))}"
            )
    _holder(inference_program, feed_holder_name, VarType.FEED_MINIBATCH)
    for column, name in enumerate(feed_target_names):
        op = _column_op(inference_program, _FEED, feed_holder_name, name, column)
        block.ops.insert(0, op)
    inference_program.touch()


def append_fetch_ops(
    inference_program: Program, fetch_target_names: Sequence[str], fetch_holder_name: str = _FETCH
) -> None:
    """Add an op for each variable that is fetched."""
    _holder(inference_program, fetch_holder_name, VarType.FETCH_LIST)
    block = inference_program.global_block()
    for column, name in enumerate(fetch_target_names):
        block.ops.append(_column_op(inference_program, _FETCH, name, fetch_holder_name, column))
    inference_program.touch()


def _holder(program: Program, name: str, kind: VarType) -> None:
    block = program.global_block()
    block.vars[name] = Variable(block, name=name, type=kind, persistable=True)


def _column_op(program: Program, kind: str, source: str, target: str, column: int) -> Operator:
    stamp = {**program.stamp(), ROLE: 0, ROLE_VAR: [], DEVICE: "", CALLSTACK: [user_line()]}
    stamp.setdefault(NAMESCOPE, "/")
    op = Operator.loaded(
        program.global_block(), kind, {"X": [source]}, {"Out": [target]}, {"col": column, **stamp}
    )
    op.explicit -= {DEVICE, ROLE_VAR}
    return op


def feed_and_fetch_names(program: Program, label: str) -> tuple[list[str], list[str]]:
    """Return the feeds and the fetches of a loaded program, in the order of their columns.

    Raises:
        DamagedFile: columns are missing or named twice.
    """
    ops = program.global_block().ops
    feeds = [(op.attrs.get("col"), op.outputs.get("Out", [])) for op in ops if op.type == _FEED]
    fetches = [(op.attrs.get("col"), op.inputs.get("X", [])) for op in ops if op.type == _FETCH]
    result = []
    for kind, columns in ((_FEED, feeds), (_FETCH, fetches)):
        names = {
            column: names[0] for column, names in columns if type(column) is int and len(names) == 1
        }
        if set(names) != set(range(len(columns))):
            raise DamagedFile(f"{label} is no program: its {kind} ops do not count from 0 on.")
        result.append([names[column] for column in range(len(columns))])
    return result[0], result[1]
