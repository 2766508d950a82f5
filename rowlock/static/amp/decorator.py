"""``static.amp.decorate`` with the arguments of Paddle 3 (by level) and of Paddle 2.0 to 2.4 (by flags)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...executor.driver.mixed_precision import OptimizerWithMixedPrecision, checked_lists
from ...graph.program.where import warn_user
from ...graph.training.amp.lists import low_type
from ...graph.training.amp.optimizer import Scaling
from ...graph.training.amp.rewrite import Rules
from ...graph.training.optimizer.base import Optimizer
from ...strategies.errors import InvalidType, InvalidValue, nearest
from ...strategies.types import VarType

_LEVELS = ("O0", "OD", "O1", "O2")
_COMMON = {
    "init_loss_scaling": 2.0**16,
    "incr_every_n_steps": 2000,
    "decr_every_n_nan_or_inf": 1,
    "incr_ratio": 2.0,
    "decr_ratio": 0.5,
}
_BY_LEVEL: dict[str, Any] = {
    "level": "O1",
    "dtype": "float16",
    "master_weight": None,
    "master_grad": False,
    **_COMMON,
    "use_dynamic_loss_scaling": None,
    "use_amp_guard": False,
    "use_promote": False,
}
_BY_FLAGS: dict[str, Any] = {
    "init_loss_scaling": 2.0**15,
    "incr_every_n_steps": 1000,
    "decr_every_n_nan_or_inf": 2,
    "incr_ratio": 2.0,
    "decr_ratio": 0.8,
    "use_dynamic_loss_scaling": True,
    "use_pure_fp16": False,
    "use_fp16_guard": None,
    "use_bf16": False,
    "use_promote": False,
}


def decorate(
    optimizer: Optimizer, amp_lists: Any = None, *args: Any, **settings: Any
) -> OptimizerWithMixedPrecision:
    """Return an optimizer that trains in mixed precision.

    By level, as in Paddle 3: ``decorate(optimizer, amp_lists=None, level="O1", dtype="float16",
    master_weight=None, master_grad=False, init_loss_scaling=65536.0, incr_every_n_steps=2000,
    decr_every_n_nan_or_inf=1, incr_ratio=2.0, decr_ratio=0.5, use_dynamic_loss_scaling=None,
    use_amp_guard=False, use_promote=False)``.

    By flags, as before, where a flag is named or the third argument is a number: ``decorate(optimizer,
    amp_lists=None, init_loss_scaling=32768.0, incr_every_n_steps=1000, decr_every_n_nan_or_inf=2,
    incr_ratio=2.0, decr_ratio=0.8, use_dynamic_loss_scaling=True, use_pure_fp16=False, use_fp16_guard=None,
    use_bf16=False, use_promote=False)``.

    bfloat16 has the range of float32: its loss is never scaled.

    Raises:
        InvalidType: an argument that neither form has, or arguments of both; a wrong type.
        InvalidValue: an unknown level or dtype.
        InvalidArgument: the optimizer is decorated already.
    """
    flags = set(_BY_FLAGS) - set(_BY_LEVEL)
    number = bool(args) and isinstance(args[0], (int, float))
    by_flags = number or not flags.isdisjoint(settings)
    arguments = _arguments(_BY_FLAGS if by_flags else _BY_LEVEL, args, settings)
    if by_flags:
        return _by_flags(optimizer, amp_lists, arguments)
    return _by_level(optimizer, amp_lists, arguments)


def _arguments(
    defaults: dict[str, Any], args: tuple[Any, ...], settings: dict[str, Any]
) -> dict[str, Any]:
    names = list(defaults)
    if len(args) > len(names):
        raise InvalidType(
            f"decorate takes at most {len(names) + 2} arguments, got {len(args) + 2}."
        )
    positional = dict(zip(names, args, strict=False))
    for name in settings:
        if name in positional:
            raise InvalidType(f"decorate: {name} is passed twice.")
        if name not in defaults:
            misplaced = name in _BY_FLAGS or name in _BY_LEVEL
            hint = " beside level, dtype, ... or use_pure_fp16, use_bf16, ..." if misplaced else ""
            raise InvalidType(f"decorate has no argument {name!r}{hint}.{nearest(name, names)}")
    return {**defaults, **positional, **settings}


def _by_level(
    optimizer: Any, amp_lists: Any, arguments: dict[str, Any]
) -> OptimizerWithMixedPrecision:
    level = (
        arguments["level"].upper() if isinstance(arguments["level"], str) else arguments["level"]
    )
    if level not in _LEVELS:
        raise InvalidValue(f"decorate: level must be one of {', '.join(_LEVELS)}, got {level!r}.")
    dtype = low_type(arguments["dtype"], "decorate")
    if level == "OD" and amp_lists is not None:
        warn_user("decorate: level OD computes by the default white list alone.")
        amp_lists = None
    rules = Rules(
        checked_lists(amp_lists),
        dtype,
        level,
        bool(arguments["use_amp_guard"]),
        bool(arguments["use_promote"]),
    )
    scaling = _scaling(arguments, dtype, rewrites=level != "O0")
    decorated = OptimizerWithMixedPrecision(
        optimizer,
        None if level == "O0" else rules,
        scaling,
        master_grad=bool(arguments["master_grad"]) and level == "O2",
    )
    if arguments["master_weight"] is not False:
        optimizer._multi_precision = True
    return decorated


def _by_flags(
    optimizer: Any, amp_lists: Any, arguments: dict[str, Any]
) -> OptimizerWithMixedPrecision:
    pure = bool(arguments["use_pure_fp16"])
    dtype = VarType.BF16 if arguments["use_bf16"] else VarType.FP16
    guard = pure if arguments["use_fp16_guard"] is None else bool(arguments["use_fp16_guard"])
    rules = Rules(checked_lists(amp_lists), dtype, promote=bool(arguments["use_promote"]))
    if pure:  # only there does the guard count
        rules = replace(rules, level="O2", guard=guard)
    return OptimizerWithMixedPrecision(optimizer, rules, _scaling(arguments, dtype))


def _scaling(arguments: dict[str, Any], dtype: VarType, rewrites: bool = True) -> Scaling:
    dynamic = arguments["use_dynamic_loss_scaling"]
    scaling = Scaling(
        arguments["init_loss_scaling"],
        dtype == VarType.FP16 if dynamic is None else dynamic,
        *(arguments[name] for name in list(_COMMON)[1:]),
    )
    if rewrites and dtype == VarType.FP16:
        return scaling
    return replace(scaling, start=1.0, dynamic=False)
