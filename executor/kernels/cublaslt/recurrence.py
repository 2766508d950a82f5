"""LSTM and GRU over sequences: a launch for all steps (``cuda/time_steps.py``), and a product for each weight.

What goes back in time is the launch's work; it keeps by row what each step read of the one before, so that
the slopes of weights are products over all rows. What is narrower than single precision is computed in that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.gates import GRU_STEPS, Cells, GruCells, Results, lstm_step, lstm_step_back
from ....graph.ops.gru import Gru, GruGrad
from ....graph.ops.lstm import Lstm, LstmGrad, LstmOperands, Lstmp, LstmpGrad
from ....graph.ops.operands import Array
from ....strategies.types import VarType, to_numpy
from ...codegen.cuda_launches import Maybe, ints, numbers, read, written
from ...codegen.cuda_source import CudaWriter, Value, c_type
from ...device.device import Device
from ..cuda.copies import moved
from ..cuda.time_steps import MOST_BYTES, TimeOrder
from ..registry import Step, kernel
from .product import product
from .support import column_sums


def _takes(node: Node) -> bool:
    """Floats must be of one type, and the weights of a step fit."""
    dtypes = {v.spec.dtype for v in (*node.reads(), *node.writes())} - {VarType.INT64}
    slots = (node.inputs.get(name, ()) for name in ("Weight", "ProjWeight"))
    weights = [v.spec for slot in slots for v in slot if v is not None]
    nbytes = sum(to_numpy(s.dtype).itemsize * s.shape[0] * s.shape[1] for s in weights)
    return dtypes in ({VarType.FP32}, {VarType.FP64}) and nbytes <= MOST_BYTES


_on = partial(kernel, on=("cublaslt",), takes=_takes, needs=("cuda",), nonempty=True)


def _turned(dev: Device, steps: list[Step], matrix: Array) -> Array:
    """Return scratch for a transpose, and add the calls that write it."""
    target: Array = dev.scratch(matrix.shape[::-1], matrix.dtype)
    steps += moved(dev, target, matrix.T)
    return target


_GATES = ("candidate", "put", "keep", "out")
# Where the text of a cell has what expressions name otherwise
_PLACES = {
    **{name: f"gate[{k}]" for k, name in enumerate(_GATES)},
    **{f"d_{name}": f"d_gate[{k}]" for k, name in enumerate(_GATES)},
    **{f"w_{name}": f"w[{k}]" for k, name in enumerate(_GATES[1:])},
}


def _cells(a: LstmOperands) -> dict[str, Any]:
    """Return how the kernels of an LSTM are launched: template arguments, and what these need."""
    kind, fields = c_type(a.input.dtype), vars(a)
    names = (a.gate_activation, a.cell_activation, a.candidate_activation)
    cells = Cells(*names, a.use_peepholes, True, float(fields.get("cell_clip", 0.0)))
    ahead = f"{kind} (&gate)[4], const {kind} (&w)[3], {kind} before, {kind}"
    results = f"{ahead}& cell, {kind}& active, {kind}& hidden"
    slopes = f"{ahead} cell, {kind} active, {kind} d_hidden, {kind}& d_cell, {kind} (&d_gate)[4]"
    definitions = f"""
struct Cells {{
  static constexpr bool PEEPHOLES = {str(a.use_peepholes).lower()};
  static EVERYWHERE void step({results}) {{{_text(lstm_step(cells), kind, _PLACES)}
  }}
  static EVERYWHERE void back({slopes}) {{{_text(lstm_step_back(cells), kind, _PLACES)}
  }}
}};
"""
    projected = fields.get("proj_activation", "identity").capitalize()
    clip = numbers(a.input, proj_clip=float(fields.get("proj_clip", 0.0)))
    return {"kinds": ("Cells", projected), "numbers": clip, "definitions": definitions}


def _text(results: Results, kind: str, places: Mapping[str, str]) -> str:
    """Return the C++ that computes expressions, each into its place; what has none goes by its name."""
    reads = frozenset().union(*(result.reads for result in results.values()))
    writer = CudaWriter({name: Value(places.get(name, name), kind) for name in reads})
    values = {name: writer.number(result, kind) for name, result in results.items()}
    lines = [f"const {c.kind} {c.name} = {c.value!r};" for c in writer.constants] + writer.lines
    for name, value in values.items():
        own = name if name in places else name.removesuffix("_out")
        lines.append(f"{places.get(own, own)} = {value};")
    return "".join(f"\n    {line}" for line in lines)


def _lstm(dev: Device, op: str, a: Lstm | Lstmp, fed: Array | None) -> list[Step]:
    """Run all steps; ``fed`` gets what a step reads of the one before: what goes out, or its projection."""
    x, rows, back = a.input, len(a.input), a.weight.shape[0]
    width = a.weight.shape[1] // 4
    order = TimeOrder(dev, op, a.input_lod[-1], rows, a.is_reverse)
    proj = a.proj_weight if isinstance(a, Lstmp) else None
    hidden = None
    if isinstance(a, Lstmp):
        hidden = dev.array_or_scratch(a.batch_hidden, (rows, width), x.dtype)
    operands = read(
        x=x, weight=a.weight, bias=a.bias, h0=Maybe(a.h0, x), c0=Maybe(a.c0, x), proj=Maybe(proj, x)
    )
    results = written(
        gates=dev.array_or_scratch(a.batch_gate, (rows, 4 * width), x.dtype),
        active=dev.array_or_scratch(a.batch_cell_pre_act, (rows, width), x.dtype),
        cell=dev.array_or_scratch(a.cell, (rows, width), x.dtype),
        hidden=Maybe(hidden, x),
        fed=dev.array_or_scratch(fed, (rows, back), x.dtype),
    )
    how = {"width": width, "others": ints(back=back), **_cells(a)}
    return [*order.steps, order.launch("block_lstm", operands=operands, results=results, **how)]


def _lstm_grad(
    dev: Device, op: str, a: LstmGrad | LstmpGrad, fed: Array, d_fed: Array | None
) -> list[Step]:
    """Go back through all steps; ``d_fed`` is the gradient of what went out."""
    x, rows, back = a.input, len(a.input), a.weight.shape[0]
    width, count = a.weight.shape[1] // 4, a.input_lod[-1].shape[0] - 1
    like = x.dtype
    order = TimeOrder(dev, op, a.input_lod[-1], rows, a.is_reverse)
    steps = order.steps
    proj = d_projected = None
    if isinstance(a, LstmpGrad):
        proj = _turned(dev, steps, a.proj_weight)
        d_projected = dev.scratch((rows, back), like)
    d_x = dev.array_or_scratch(a.d_input, (rows, 4 * width), like)
    before = dev.scratch((rows, back), like)
    holes = dev.scratch((rows, 3 * width), like) if a.use_peepholes else None
    operands = read(
        gates=a.batch_gate, active=a.batch_cell_pre_act, cell=a.cell, fed=fed,
        turned=_turned(dev, steps, a.weight), bias=a.bias, h0=Maybe(a.h0, x), c0=Maybe(a.c0, x),
        proj_turned=Maybe(proj, x), d_fed=Maybe(d_fed, x), d_cells=Maybe(a.d_cell, x),
    )  # fmt: skip
    results = written(
        d_x=d_x,
        d_h0=dev.array_or_scratch(a.d_h0, (count, back), like),
        d_c0=dev.array_or_scratch(a.d_c0, (count, width), like),
        before=before,
        holes=Maybe(holes, x),
        d_projected=Maybe(d_projected, x),
    )
    how = {"width": width, "others": ints(back=back), **_cells(a)}
    steps.append(order.launch("block_lstm_grad", operands=operands, results=results, **how))
    if a.d_weight is not None:
        steps += product(dev, before.T, d_x, a.d_weight)
    if a.d_bias is not None:
        steps += column_sums(dev, d_x, a.d_bias[0, : 4 * width])
        if holes is not None:
            steps += column_sums(dev, holes, a.d_bias[0, 4 * width :])
    if isinstance(a, LstmpGrad) and d_projected is not None and a.d_proj_weight is not None:
        steps += product(dev, a.batch_hidden.T, d_projected, a.d_proj_weight)
    return steps


@_on("lstm")
def lstm(dev: Device, a: Lstm) -> list[Step]:
    return _lstm(dev, "lstm", a, a.hidden)


@_on("lstm_grad")
def lstm_grad(dev: Device, a: LstmGrad) -> list[Step]:
    return _lstm_grad(dev, "lstm", a, a.hidden, a.d_hidden)


@_on("lstmp")
def lstmp(dev: Device, a: Lstmp) -> list[Step]:
    return _lstm(dev, "lstmp", a, a.projection)


@_on("lstmp_grad")
def lstmp_grad(dev: Device, a: LstmpGrad) -> list[Step]:
    return _lstm_grad(dev, "lstmp", a, a.projection, a.d_projection)


def _parts(weight: Array) -> tuple[Array, Array]:
    """View what lies in the memory of a GRU's weight: [D, 2D] of update and reset, [D, D] of the candidate."""
    width = weight.shape[0]
    flat = weight.reshape(-1)
    pair, single = flat[: 2 * width * width], flat[2 * width * width :]
    return pair.reshape(width, 2 * width), single.reshape(width, width)


def _gru_cells(a: Gru | GruGrad) -> dict[str, Any]:
    """Return how the kernels of a GRU are launched: the cells, and their text."""
    kind, cells = c_type(a.input.dtype), GruCells(a.gate_activation, a.activation, a.origin_mode)
    text = "".join(_function(step, step(cells), kind) for step in GRU_STEPS)
    return {"kinds": ("Cells",), "definitions": f"\nstruct Cells {{{text}}};\n"}


def _function(step: Callable[..., Results], results: Results, kind: str) -> str:
    """Return the C++ function of a step, whose parameters go by the names of operands and results."""
    reads = sorted(frozenset().union(*(result.reads for result in results.values())))
    written = [name.removesuffix("_out") for name in results]
    operands = [f"{kind} {name}" for name in reads if name not in written]
    parameters = ", ".join([*operands, *(f"{kind}& {name}" for name in written)])
    name = step.__name__.removeprefix("gru_")
    return f"\n  static EVERYWHERE void {name}({parameters}) {{{_text(results, kind, {})}\n  }}\n"


@_on("gru")
def gru(dev: Device, a: Gru) -> list[Step]:
    x, rows, width = a.input, len(a.input), a.weight.shape[0]
    order = TimeOrder(dev, "gru", a.input_lod[-1], rows, a.is_reverse)
    pair, single = _parts(a.weight)
    operands = read(x=x, pair=pair, single=single, bias=Maybe(a.bias, x), h0=Maybe(a.h0, x))
    results = written(
        gates=dev.array_or_scratch(a.batch_gate, (rows, 3 * width), x.dtype),
        after_reset=dev.array_or_scratch(a.batch_reset_hidden_prev, (rows, width), x.dtype),
        by_time=dev.array_or_scratch(a.batch_hidden, (rows, width), x.dtype),
        hidden=dev.array_or_scratch(a.hidden, (rows, width), x.dtype),
    )
    return [
        *order.steps,
        order.launch("block_gru", operands=operands, results=results, width=width, **_gru_cells(a)),
    ]


@_on("gru_grad")
def gru_grad(dev: Device, a: GruGrad) -> list[Step]:
    x, rows, width = a.input, len(a.input), a.weight.shape[0]
    order = TimeOrder(dev, "gru", a.input_lod[-1], rows, a.is_reverse)
    steps = order.steps
    d_x = dev.array_or_scratch(a.d_input, (rows, 3 * width), x.dtype)
    before, reset_before = (dev.scratch((rows, width), x.dtype) for _ in range(2))
    pair, single = (_turned(dev, steps, part) for part in _parts(a.weight))
    operands = read(
        gates=a.batch_gate, after_reset=a.batch_reset_hidden_prev, hidden=a.hidden,
        pair_turned=pair, single_turned=single, h0=Maybe(a.h0, x), d_hidden=a.d_hidden,
    )  # fmt: skip
    d_h0 = dev.array_or_scratch(a.d_h0, (order.count, width), x.dtype)
    results = written(d_x=d_x, d_h0=d_h0, before=before, reset_before=reset_before)
    how = {"width": width, **_gru_cells(a)}
    steps.append(order.launch("block_gru_grad", operands=operands, results=results, **how))
    if a.d_weight is not None:
        d_pair, d_single = _parts(a.d_weight)
        steps += product(dev, before.T, d_x[:, : 2 * width], d_pair)
        steps += product(dev, reset_before.T, d_x[:, 2 * width :], d_single)
    if a.d_bias is not None:
        steps += column_sums(dev, d_x, a.d_bias[0])
    return steps
