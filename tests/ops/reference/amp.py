"""Loss scaling."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("check_finite_and_unscale")
def check_finite_and_unscale(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    flag = not all(np.isfinite(grad).all() for grad in ins["X"])
    return {"Out": [grad / ins["Scale"] for grad in ins["X"]], "FoundInfinite": np.array([flag])}


@reference("update_loss_scaling")
def update_loss_scaling(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    bad = bool(ins["FoundInfinite"][0])
    scale, good_steps, bad_steps = (
        ins[slot][0] for slot in ("PrevLossScaling", "InGoodSteps", "InBadSteps")
    )
    if not attrs["stop_update"]:
        good_steps, bad_steps = (0, bad_steps + 1) if bad else (good_steps + 1, 0)
        if good_steps == attrs["incr_every_n_steps"]:
            good_steps, scale = 0, scale * attrs["incr_ratio"]
        if bad_steps == attrs["decr_every_n_nan_or_inf"]:
            bad_steps, scale = 0, max(1.0, scale * attrs["decr_ratio"])
    return {
        "Out": [np.zeros_like(grad) if bad else grad for grad in ins["X"]],
        "LossScaling": np.array([scale]),
        "OutGoodSteps": np.array([good_steps]),
        "OutBadSteps": np.array([bad_steps]),
    }


@reference("zero_where_infinite")
def zero_where_infinite(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": [grad * (not ins["FoundInfinite"][0]) for grad in ins["X"]]}
