"""The arithmetic of gates and of the cells of LSTM and GRU, as expressions: recurrent kernels follow from it.

Gates of an LSTM: ``candidate``, ``put`` (input), ``keep`` (forget) and ``out`` (output). Those of a GRU:
``update``, ``reset`` and ``candidate``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from . import expr as e
from .expr import Expr

Results = Mapping[str, Expr]  # ``x_out`` takes the place of the operand x
ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "sigmoid": lambda x: e.tanh(x * 0.5) * 0.5 + 0.5,  # neither tanh nor its slope overflows
    "tanh": e.tanh,
    "relu": lambda x: e.maximum(x, 0),
    "identity": lambda x: x,
}


def times_slope(kind: str, d: Any, result: Any) -> Any:
    """Return a gradient times the slope of an activation, a function of the activation's result."""
    if kind == "sigmoid":
        return d * ((1 - result) * result)
    if kind == "tanh":
        return d * (1 - result * result)
    return d * (result > 0) if kind == "relu" else d


class Cells(NamedTuple):
    """The kind of an LSTM: activations of gates, cells and candidates, and whether optional operands are there.

    ``before`` are the cells of the previous step. ``clip`` limits cells, unless it is 0.
    """

    gate: str
    cell: str
    candidate: str
    peepholes: bool
    before: bool
    clip: float


@lru_cache(1000)
def lstm_step(cells: Cells) -> Results:
    """Return the gates in place of their sums, the cells, their activation, and the output (``hidden``).

    ``w_put``, ``w_keep`` and ``w_out`` are the weights of peepholes.
    """
    candidate, put, keep, out, before = map(
        e.argument, ("candidate", "put", "keep", "out", "before")
    )
    gate, sees = ACTIVATIONS[cells.gate], cells.peepholes and cells.before
    candidate = ACTIVATIONS[cells.candidate](candidate)
    put = gate(put + e.argument("w_put") * before if sees else put)
    keep = gate(keep + e.argument("w_keep") * before if sees else keep)
    cell = candidate * put + keep * before if cells.before else candidate * put
    cell = e.minimum(e.maximum(cell, -cells.clip), cells.clip) if cells.clip > 0 else cell
    out = gate(out + cell * e.argument("w_out") if cells.peepholes else out)
    active = ACTIVATIONS[cells.cell](cell)
    gates = {"candidate_out": candidate, "put_out": put, "keep_out": keep, "out_out": out}
    return {**gates, "cell": cell, "active": active, "hidden": out * active}


@lru_cache(1000)
def lstm_step_back(cells: Cells) -> Results:
    """Return the gradients of the gates' sums; the cells' gradient ``d_cell`` becomes that of ``before``.

    Without ``before`` the forget gate has no gradient.
    """
    candidate, put, keep, out, before = map(
        e.argument, ("candidate", "put", "keep", "out", "before")
    )
    active, d_hidden = e.argument("active"), e.argument("d_hidden")
    d_out = times_slope(cells.gate, d_hidden * active, out)
    d_cell = e.argument("d_cell") + times_slope(cells.cell, d_hidden * out, active)
    if cells.peepholes:
        d_cell = d_cell + d_out * e.argument("w_out")
    if cells.clip > 0:
        d_cell = d_cell * (e.abs_(e.argument("cell")) < cells.clip)
    d_candidate = times_slope(cells.candidate, d_cell * put, candidate)
    d_put = times_slope(cells.gate, d_cell * candidate, put)
    d_before = d_cell * keep
    if cells.peepholes:
        d_before = d_before + d_put * e.argument("w_put")
    slopes = {"d_candidate": d_candidate, "d_put": d_put, "d_out": d_out}
    if cells.before:
        slopes["d_keep"] = d_keep = times_slope(cells.gate, d_cell * before, keep)
        d_before = d_before + d_keep * e.argument("w_keep") if cells.peepholes else d_before
    return {**slopes, "d_cell_out": d_before}


class GruCells(NamedTuple):
    """The kind of a GRU: activations of gates and candidates, and in which of two ways they are mixed."""

    gate: str
    candidate: str
    origin: bool

    def mixed(self, before: Expr, candidate: Expr) -> tuple[Expr, Expr]:
        """Return what the update gate takes, and what it leaves: h' = u first + (1 - u) second."""
        return (before, candidate) if self.origin else (candidate, before)


@lru_cache(1000)
def gru_gates(cells: GruCells) -> Results:
    """Return update and reset gate in place of their sums, and what the candidate's weights multiply.

    To the sums are added products of what goes out of the previous step (``before``).
    """
    gate = ACTIVATIONS[cells.gate]
    update, reset = (
        gate(e.argument(name) + e.argument(f"product_{name}")) for name in ("update", "reset")
    )
    after_reset = reset * e.argument("before")
    return {"update_out": update, "reset_out": reset, "after_reset": after_reset}


@lru_cache(1000)
def gru_step(cells: GruCells) -> Results:
    """Return the candidate in place of its sum, to which ``product`` is added, and the output (``hidden``)."""
    candidate = ACTIVATIONS[cells.candidate](e.argument("candidate") + e.argument("product"))
    first, second = cells.mixed(e.argument("before"), candidate)
    return {"candidate_out": candidate, "hidden": (first - second) * e.argument("update") + second}


@lru_cache(1000)
def gru_step_back(cells: GruCells) -> Results:
    """Return the gradients of the sums of update gate and candidate.

    ``d_state`` is that of what the next step read, and becomes that of ``before``, as far as it is mixed in.
    """
    update, candidate, before = map(e.argument, ("update", "candidate", "before"))
    d = e.argument("d_state") + e.argument("d_hidden")
    first, second = cells.mixed(before, candidate)
    d_first = d * update
    d_before, d_candidate = cells.mixed(d_first, d - d_first)
    return {
        "d_update": times_slope(cells.gate, (first - second) * d, update),
        "d_candidate": times_slope(cells.candidate, d_candidate, candidate),
        "d_state_out": d_before,
    }


@lru_cache(1000)
def gru_gates_back(cells: GruCells) -> Results:
    """Return the gradient of the reset gate's sum; to ``d_state`` comes what went through the gate.

    ``d_after_reset`` is the gradient of what the candidate's weights multiply.
    """
    reset, d_after_reset = e.argument("reset"), e.argument("d_after_reset")
    d_reset = times_slope(cells.gate, d_after_reset * e.argument("before"), reset)
    return {"d_reset": d_reset, "d_state_out": e.argument("d_state") + d_after_reset * reset}


GRU_STEPS = (gru_gates, gru_step, gru_step_back, gru_gates_back)
