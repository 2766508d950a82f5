"""Optimizer updates in array calls, by blocks that stay in cache: each takes all its passes before the next.

The arithmetic is that of the declarations in ``graph/ops/optimize.py``. Kernels see low precision widened to
float32 (``widened.py``); a parameter in low precision may have a float32 master, and an update may be skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ....graph.ir.capabilities import Takes
from ....graph.ops.declare_update import MASTER, SKIP
from ....graph.ops.fused_optimize import FUSED, own_attributes
from ....graph.ops.operands import Operands, parameter_name
from ....graph.ops.pointwise import arguments
from ....graph.ops.registry import OPS
from ....graph.ops.update import Results, Update
from ...codegen.array_calls import calls
from ...codegen.array_schedule import COPY, ArrayCall, ArraySchedule, schedule
from ...device.device import Device
from ..back_ends import BACK_ENDS
from ..registry import KERNELS, Kernel, Step, call

_BLOCK = 32 * 1024  # elements: five float32 arrays of this size fit a 1 MB cache
MASTER_OPERAND, SKIP_OPERAND = parameter_name(MASTER), parameter_name(SKIP)
Arrays = dict[str, Any]  # by parameter; a slot not in use is None

UPDATES: Mapping[str, Update] = {n: op.update for n, op in OPS.items() if op.update is not None}
SINGLES = {fused: single for single, fused in FUSED.items()}


def operands_of(op_type: str, *, masters: bool = True) -> tuple[str, ...]:
    """Return the parameters of an update that a kernel can have; ``masters``: masters and SkipUpdate too."""
    op, update = OPS[op_type], UPDATES[SINGLES.get(op_type, op_type)]
    extra = (MASTER_OPERAND, SKIP_OPERAND, f"{MASTER_OPERAND}_out") if masters else ()
    names = {*update.operands, *(f"{name}_out" for name in update.updated), *extra}
    slots = (*op.input_slots, *op.output_slots)
    return tuple(s.parameter for s in slots if s.parameter in names)


def add_kernel(
    op_type: str,
    back_end: str,
    bind: Callable[..., list[Step]],
    takes: Takes | None = None,
    *,
    masters: bool = True,
    low: bool = False,
) -> None:
    """Register ``bind(dev, arrays, attrs)`` as the kernel of an update, or of the fused update of many.

    ``arrays`` are by parameter, lists of them if the op is fused; ``masters``: see :func:`operands_of`.
    """
    operands = operands_of(op_type, masters=masters)
    update = UPDATES[SINGLES.get(op_type, op_type)]

    def function(dev: Device, a: Operands) -> list[Step]:
        slots = ((name, getattr(a, name)) for name in operands)
        arrays = {
            n: array
            for n, array in slots
            if not (array is None or (isinstance(array, list) and not array))
        }
        return bind(dev, arrays, {name: getattr(a, name) for name in update.attributes})

    function.__wrapped__ = update.rule  # type: ignore[attr-defined]  # where the formula stands
    KERNELS[op_type, back_end] = Kernel(function, takes, low=low)


def blocks(*arrays: Any) -> list[tuple[Any, ...]]:
    """Cut arrays of one size into flat blocks; returns, for each block, its part of every array."""
    flat = {id(array): array.reshape(-1) for array in arrays}
    size = flat[id(arrays[0])].size
    cuts = (slice(start, start + _BLOCK) for start in range(0, max(size, 1), _BLOCK))
    parts = ({i: array[cut] for i, array in flat.items()} for cut in cuts)
    return [tuple(part[id(array)] for array in arrays) for part in parts]


def in_use(
    results: Results, totals: Results, arrays: Arrays, address: Callable[[Any], int]
) -> Arrays:
    """Leave out the arrays of state that an update neither reads nor changes."""
    same = {
        name: result.value
        for name, result in results.items()
        if result.fn == "arg" and _stays(name, result.value, arrays, address)
    }
    changed = (result for name, result in results.items() if name not in same)
    read = arguments([*changed, *totals.values()])
    unused = {*same, *(name for name in same.values() if name not in read)}
    return {name: array for name, array in arrays.items() if name not in unused}


def _stays(name: str, source: str, arrays: Arrays, address: Callable[[Any], int]) -> bool:
    return name not in arrays or address(arrays[source]) == address(arrays[name])


class _Order(NamedTuple):
    """The calls that compute what ``totals`` are the sums of, and those of the update, which read these."""

    totals: tuple[str, ...]
    ahead: ArraySchedule
    update: ArraySchedule


@lru_cache(1000)
def _order(
    op_type: str, attrs: tuple[tuple[str, Any], ...], dtype: Any, written: frozenset[str]
) -> _Order:
    update, numbers = UPDATES[op_type], dict(attrs)
    totals, results = update.totals(numbers, dtype), update.results(numbers, dtype)
    wanted = {name: result for name, result in results.items() if name in written}
    ahead = schedule(totals, update.scalars)
    return _Order(tuple(totals), ahead, schedule(wanted, (*update.scalars, *totals)))


def _bind(op_type: str, dev: Device, arrays: Arrays, attrs: Mapping[str, Any]) -> list[Step]:
    param, scalars = arrays["param"], UPDATES[op_type].scalars
    order = _order(op_type, tuple(attrs.items()), param.dtype, frozenset(arrays))
    if not order.totals:
        return _by_block(dev, order.update, arrays, scalars)
    totals = {name: dev.scratch((1,), param.dtype) for name in order.totals}
    count = max(-(-param.size // _BLOCK), 1)
    with dev.in_turn():
        sums = {name: dev.scratch((count, 1), param.dtype) for name in totals}

        def add_up(k: int, parts: Arrays) -> list[Step]:
            return [
                partial(parts[name].sum, out=each[k].reshape(())) for name, each in sums.items()
            ]

        steps = _by_block(dev, order.ahead, arrays, scalars, order.totals, add_up)
        steps += [partial(sums[n].sum, out=total.reshape(())) for n, total in totals.items()]
    scalars = (*scalars, *totals)
    return steps + _by_block(dev, order.update, {**arrays, **totals}, scalars)


def _by_block(
    dev: Device,
    order: ArraySchedule,
    arrays: Arrays,
    scalars: Collection[str],
    temporaries: Sequence[str] = (),
    behind: Callable[[int, Arrays], list[Step]] = lambda k, parts: [],
) -> list[Step]:
    """Return the calls of a schedule, and those ``behind`` each block, of its number and arrays.

    ``temporaries`` are results that live no longer than their block.
    """
    param = arrays["param"]
    ones = {n: a for n, a in arrays.items() if n.removesuffix("_out") in scalars}
    whole = {n: a for n, a in arrays.items() if n not in ones}
    ones |= {name: dev.scratch((1,), param.dtype) for name in order.numbers}
    names, size = (*order.scratch, *temporaries), min(param.size, _BLOCK)
    scratch = {name: dev.scratch((size,), param.dtype) for name in names}
    steps = _steps(dev, order.once, ones)
    for k, block in enumerate(blocks(*whole.values())):
        parts = dict(zip(whole, block, strict=True))
        size = parts["param"].size
        parts |= {n: array[:size] for n, array in scratch.items()}
        steps += _steps(dev, order.each, {**ones, **parts})
        steps += behind(k, parts)
    return steps + _steps(dev, order.last, ones)


def _steps(dev: Device, order: Sequence[ArrayCall], arrays: Arrays) -> list[Step]:
    steps: list[Step] = []
    for fn, operands, out in order:
        arguments = [arrays.get(x, x) for x in operands]
        if fn != COPY or not dev.xp.may_share_memory(arguments[0], arrays[out]):
            with dev.in_turn():
                steps += calls(dev, fn, arguments, arrays[out])
    return steps


def _alone(op_type: str) -> Callable[..., list[Step]]:
    """Return what binds the update of one parameter, or of its master in its place."""

    def bind(dev: Device, arrays: Arrays, attrs: Mapping[str, Any]) -> list[Step]:
        arrays, copy = dict(arrays), dev.xp.copyto
        param_out, skip = arrays["param_out"], arrays.pop(SKIP_OPERAND, None)
        master = arrays.pop(MASTER_OPERAND, None), arrays.pop(f"{MASTER_OPERAND}_out", None)
        if master[0] is not None:
            arrays["param"], arrays["param_out"] = master
        saves: list[Step] = []
        restores: list[Step] = []
        for name in (n for n in arrays if n.endswith("_out") and skip is not None):
            old, new = arrays[name.removesuffix("_out")], arrays[name]
            if new is old:
                old = dev.scratch(new.shape, new.dtype)
                saves.append(partial(copy, old, new))
            restores.append(partial(copy, new, old, where=skip))
        steps = [*saves, *_bind(op_type, dev, arrays, attrs), *restores]
        rounds = [] if master[0] is None else [partial(copy, param_out, arrays["param_out"])]
        return [*steps, *rounds]

    return bind


def one_by_one(op_type: str, back_end: str) -> Callable[..., list[Step]]:
    """Return what binds the updates of many parameters in turn, by the kernel that updates one."""
    single = KERNELS[op_type, back_end]

    def bind(dev: Device, columns: Arrays, attrs: Mapping[str, Any]) -> list[Step]:
        steps: list[Step] = []
        for k in range(len(columns["param"])):
            arrays = {n: column[k] if column else None for n, column in columns.items()}
            with dev.in_turn():
                own = own_attributes(op_type, attrs, k)
                steps += call(OPS[op_type], single, OPS[op_type].filled({**arrays, **own}), dev)
        return steps

    return bind


for _op_type, _fused in FUSED.items():
    for _back_end in BACK_ENDS:
        add_kernel(_op_type, _back_end, _alone(_op_type))
        add_kernel(_fused, _back_end, one_by_one(_op_type, _back_end), low=True)
