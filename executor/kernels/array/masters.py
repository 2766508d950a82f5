"""Updates of parameters in low precision that have a float32 master, and updates that may be skipped.

Kernels see low precision widened to float32 (``widened.py``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from ...device.device import Device
from ..registry import Step

Update = Callable[..., list[Step]]
MASTER_OPERANDS = ("master_param", "skip_update", "master_param_out")


def with_masters(*operands: str) -> Callable[[Update], Update]:
    """Let an update's kernel also take these of ``MASTER_OPERANDS``.

    A master is updated in place of the parameter, which becomes the master, rounded. Where SkipUpdate holds,
    everything stays as it was.
    """

    def decorate(update: Update) -> Update:
        signature = inspect.signature(update)
        own = list(signature.parameters.values())
        names = [p.name for p in own[1:] if p.kind is not p.KEYWORD_ONLY]
        extra = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in operands]

        @wraps(update)
        def bind(dev: Device, *arrays: Any, **attrs: Any) -> list[Step]:
            held = dict(zip((*names, *operands), arrays, strict=False))
            return _bind(dev, partial(update, dev, **attrs), held, names)

        parameters = [*own[: len(names) + 1], *extra, *own[len(names) + 1 :]]
        bind.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return bind

    return decorate


def _bind(dev: Device, update: Update, held: dict[str, Any], names: list[str]) -> list[Step]:
    param_out, skip = held["param_out"], held.get("skip_update")
    if held.get("master_param") is not None:
        held["param"], held["param_out"] = held["master_param"], held["master_param_out"]
    written = [name for name in names if name.endswith("_out")]
    pairs = [(held[name.removesuffix("_out")], held[name]) for name in written]
    kept, saving = _kept(dev, pairs) if skip is not None else ([], [])
    steps = saving + update(*(held[name] for name in names))
    for (_, out), before in zip(pairs, kept, strict=False):
        steps.append(partial(dev.xp.copyto, out, before, where=skip))
    if held["param_out"] is not param_out:
        steps.append(partial(dev.xp.copyto, param_out, held["param_out"]))
    return steps


def _kept(dev: Device, pairs: list[tuple[Any, Any]]) -> tuple[list[Any], list[Step]]:
    """Return what was there before for each (old, new), and how to keep it where new replaces old."""
    kept: list[Any] = []
    steps: list[Step] = []
    for old, new in pairs:
        if new is old:
            old = dev.scratch(new.shape, new.dtype)
            steps.append(partial(dev.xp.copyto, old, new))
        kept.append(old)
    return kept, steps
