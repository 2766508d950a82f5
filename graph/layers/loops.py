"""Loops: a block that is computed again while a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ...strategies.types import VarType
from ..program.block import Block
from ..program.variable import Variable
from .control_flow import around, captured, check_condition, sub_block
from .helper import LayerHelper
from .nest import (
    assert_same_structure,
    copy_mutable_vars,
    flatten,
    hold_mutable_vars,
    map_structure,
    pack_sequence_as,
)
from .shape import assign


class While:
    """A block that is computed while ``cond``, a bool of one element that the block writes, is true::

    loop = While(cond)
    with loop.block():
        ...
        increment(i)
        less_than(i, limit, cond=cond)

    Where constants tell how often it runs, as in this example, its rounds are compiled one by one. Else a step
    is cut there, and the block runs by itself; one that goes on for ``ClusterConfig.step_deadline_s`` is given
    up.
    """

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        check_condition(cond, "cond", "While")
        self.helper = LayerHelper("while", name)
        self.cond_var, self.is_test = cond, is_test

    def block(self) -> AbstractContextManager[Block]:
        """Return a context: ops built inside belong to the loop."""
        self._shapes_before = _shapes_around(self.helper.main_program.current_block())
        return sub_block(self.helper.main_program, self._complete)

    def _complete(self, block: Block) -> None:
        parent = block.program.block(block.parent_idx)
        reads, writes = captured(block)
        condition = self.cond_var.name
        names = dict.fromkeys([*writes, condition])
        for variable in around(block, list(names)):
            _forget_sizes(variable, self._shapes_before.get(variable.name))
        parent.append_op(
            "while",
            {
                "X": around(block, [name for name in reads if name != condition]),
                "Condition": self.cond_var,
            },
            {
                "Out": around(block, list(names)),
                "StepScopes": parent.create_var(type=VarType.STEP_SCOPES),
            },
            {"sub_block": block, "is_test": self.is_test},
        )


def _shapes_around(block: Block) -> dict[str, tuple[int, ...] | None]:
    """Return the shapes of the variables that a block sees, by name."""
    outer = {} if block.parent_idx < 0 else _shapes_around(block.program.block(block.parent_idx))
    return outer | {name: variable.shape for name, variable in block.vars.items()}


def _forget_sizes(variable: Variable, before: tuple[int, ...] | None) -> None:
    """Make the sizes unknown that a variable has otherwise before a round: another may change them again."""
    after = variable.shape
    if before is not None and after is not None and len(before) == len(after):
        both = zip(before, after, strict=True)
        variable.desc.set_shape([size if size == other else -1 for size, other in both])


def while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Any],
    loop_vars: Any,
    is_test: bool = False,
    name: str | None = None,
) -> Any:
    """Compute ``loop_vars = body(*loop_vars)`` while ``cond(*loop_vars)`` is true, and return them.

    The variables passed in are overwritten.

    Raises:
        InvalidType: an argument of another type, ``cond`` returns no bool of one element, or ``body`` changes
            the type of a variable's elements.
        InvalidValue: ``loop_vars`` is empty, or ``body`` returns another structure.
    """
    for function, argument in ((cond, "cond"), (body, "body")):
        if not callable(function):
            raise InvalidType(f"while_loop: {argument} should be callable, got {function!r}.")
    require_type(loop_vars, list | tuple, "while_loop: loop_vars should be a list or tuple")
    if not loop_vars:
        raise InvalidValue("while_loop: loop_vars should not be empty.")
    for each in flatten(loop_vars):
        require_type(each, Variable, "while_loop: loop_vars should hold Variables")
    LayerHelper("while_loop", name)
    going = cond(*loop_vars)
    check_condition(going, "what cond returns", "while_loop")
    loop = While(going, is_test, name)
    with loop.block():
        variables = copy_mutable_vars(loop_vars) if hold_mutable_vars(loop_vars) else loop_vars
        results = body(*variables)
        results = results if isinstance(results, (list, tuple)) else [results]
        try:
            assert_same_structure(results, loop_vars, check_types=False)
        except InvalidValue as error:
            raise InvalidValue(
                f"while_loop: body should return the same arity (length and structure) as loop_vars: {error}"
            ) from None
        for each, variable in zip(flatten(results), flatten(loop_vars), strict=True):
            _check_type(each, variable)
        still = cond(*results)
        map_structure(assign, _copied(results, loop_vars), loop_vars)
        assign(still, going)
    return loop_vars


def _check_type(result: Any, variable: Variable) -> None:
    if isinstance(result, Variable) and result.dtype != variable.dtype:
        raise InvalidType(
            f"while_loop: body returns {result} for {variable}: what is carried from round to round keeps the "
            f"type of its elements. Cast what body returns."
        )


def _copied(results: Any, loop_vars: Any) -> Any:
    """Return the results with copies of loop variables that are overwritten before they are read."""
    flat, variables = flatten(results), flatten(loop_vars)
    early = [any(r is v for v in variables[:i]) for i, r in enumerate(flat)]
    copies = [assign(r) if copied else r for r, copied in zip(flat, early, strict=True)]
    return pack_sequence_as(results, copies)
