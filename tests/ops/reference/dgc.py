"""Deep gradient compression."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("dgc_clip_by_norm")
def dgc_clip_by_norm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    late = ins["current_step"][0] >= attrs["rampup_begin_step"]
    return {"Out": x * min(1, attrs["max_norm"] / np.linalg.norm(x)) if late else x}


@reference("dgc")
def dgc(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    decay = {0: 0, 1: np.sign(ins["Param"]), 2: ins["Param"]}[attrs["regular_type"]]
    g = ins["Grad"] + attrs["regular_coeff"] * decay
    m, nesterov, late = attrs["m"], attrs["use_nesterov"], 4 - int(attrs["rampup_begin_step"])
    stages = attrs["sparsity"]
    stage = min(int(late / attrs["rampup_step"] * len(stages)), len(stages) - 1)
    if late < 0 or stages[stage] == 0:
        u = m * ins["U"] + g
        return {"U_out": u, "V_out": ins["V"], "Grad_out": g + m * u if nesterov else u}
    u = m * (ins["U"] + g) if nesterov else m * ins["U"] + g
    v = ins["V"] + u + (g if nesterov else 0)
    count = max(int(v.size * (1 - stages[stage])), 1)
    sent = np.abs(v) >= np.sort(np.abs(v), axis=None)[-count]
    return {"U_out": u * ~sent, "V_out": v * ~sent, "Grad_out": v * sent}
