"""Runs one declared op on its samples, the way a plan does, and holds it to the rules of kernels.

A plan binds a kernel once and then runs it step after step on the same memory. So :func:`run` binds on
memory without values, writes the operands, runs, and runs again: what a kernel works out while it is bound
from values, or leaves behind in its scratch, shows. Outputs are filled with a sentinel before each run.

Outputs that an op updates (``ParamOut`` declared in place of ``Param``) are the operand's own memory; every
other operand must come out of a run as it went in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np

from rowlock.executor.cuda.runtime import graph_can_hold
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import shaped
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.registry import bind
from rowlock.executor.simulated.simulated import SimulatedRuntime
from rowlock.graph.ops.registry import OPS, Inference, Op, Spec
from rowlock.graph.ops.samples import Draw, Sample
from rowlock.strategies.types import is_float, is_low, to_numpy, to_var_type

capabilities()  # imports every declaration and every kernel

Arrays = dict[str, list[Any]]
Attrs = dict[str, Any]


def everything(slot: str) -> bool:
    """Every output is wanted."""
    return True


def draw(op: Op, sample: Sample, dtype: Any, seed: int = 0) -> tuple[Arrays, Attrs]:
    """Return a sample's operands and attributes, defaults filled in."""
    rng = np.random.default_rng(seed)
    inputs: Arrays = {}
    for slot, drawn in sample.inputs.items():
        many = drawn if isinstance(drawn, list) else [drawn]
        assert all(isinstance(one, Draw) for one in many)
        inputs[slot] = [one.array(rng, dtype) for one in many]
    attrs = {**op.attrs, **sample.attrs}
    if "in_dtype" in sample.attrs:
        attrs["in_dtype"] = int(to_var_type(dtype))
    return inputs, attrs


def specs_of(inputs: Arrays) -> dict[str, list[Spec]]:
    """Return the specs of arrays by slot."""
    return {
        slot: [Spec(a.shape, to_var_type(a.dtype)) for a in many] for slot, many in inputs.items()
    }


def infer(
    op: Op, read: dict[str, list[Spec]], attrs: Attrs, arrays: Arrays | None = None
) -> dict[str, list[Spec]]:
    """Apply the shape rule; it may read the elements of ``arrays``."""
    values = None if arrays is None else arrays.__getitem__
    return op.infer(Inference(op, read, attrs, where="train.py:7", values=values))


def updates(op: Op) -> dict[str, str]:
    """Return the outputs that are the memory of an input: ``{"ParamOut": "Param"}``."""
    return {out: source for out, source in op.in_place.items() if out == f"{source}Out"}


def copies(arrays: Arrays) -> Arrays:
    """Return copies of arrays by slot."""
    return {slot: [a.copy() for a in many] for slot, many in arrays.items()}


def run(
    op: Op,
    inputs: Arrays,
    attrs: Attrs,
    *,
    wanted: Callable[[str], bool] = everything,
    overwrite: bool = False,
    dev: Device | None = None,
    back_end: str = "",
    layout: str = "",
) -> Arrays:
    """Run an op twice and return what it wrote (None for an output that is not ``wanted``).

    With ``overwrite``, outputs take the memory of the operands that they may take the place of.
    ``back_end`` is the library that computes, ``layout`` the order of images in memory.
    """
    dev = dev or Device()
    shaped = set(op.shape_slots(attrs, inputs))  # another value may lie there by now
    inputs = {s: list(map(lost, arrays)) if s in shaped else arrays for s, arrays in inputs.items()}
    operands = {
        slot: [laid_out(a.shape, a.dtype, layout, dev.xp) for a in arrays]
        for slot, arrays in inputs.items()
    }
    how = (back_end, layout)
    return _run(op, inputs, operands, attrs, wanted, overwrite, dev, how)


def laid_out(shape: tuple[int, ...], dtype: Any, layout: str, xp: Any = np) -> Any:
    """Return zeroed memory of this shape; images (four dimensions) lie in the order of ``layout``."""
    flat = xp.zeros(math.prod(shape), dtype)
    return shaped(flat, shape, layout if len(shape) == 4 else "")


def run_strided(op: Op, inputs: Arrays, attrs: Attrs) -> Arrays:
    """Run an op on operands whose memory has gaps."""
    gaps = {s: [np.repeat(a, 2, 0)[::2] if a.ndim else a for a in v] for s, v in inputs.items()}
    return _run(op, inputs, gaps, attrs, everything, False, Device())


def repeated(op: Op, inputs: Arrays, attrs: Attrs) -> Callable[[], Arrays]:
    """Bind an op once; each call runs it on the values that the operands have then."""
    copied = copies(inputs)
    return _bound(op, inputs, copied, attrs, everything, False, Device())


def _run(
    op: Op,
    inputs: Arrays,
    operands: Arrays,
    attrs: Attrs,
    wanted: Callable[[str], bool],
    overwrite: bool,
    dev: Device,
    how: tuple[str, str] = ("", ""),
) -> Arrays:
    run_once = _bound(op, inputs, operands, attrs, wanted, overwrite, dev, how)
    first, second = run_once(), run_once()
    _check_same_bits(op, first, second)
    return second


def _bound(
    op: Op,
    inputs: Arrays,
    operands: Arrays,
    attrs: Attrs,
    wanted: Callable[[str], bool],
    overwrite: bool,
    dev: Device,
    how: tuple[str, str] = ("", ""),
) -> Callable[[], Arrays]:
    back_end, layout = how
    outputs, shared = _outputs(op, operands, inputs, attrs, wanted, overwrite, layout, dev.xp)
    with np.errstate(all="ignore"):
        steps = bind(op.type, operands, outputs, attrs, dev, back_end)

    def run_once() -> Arrays:
        for arrays in outputs.values():
            for array in arrays:
                if array is not None and not any(array is a for a in shared):
                    array.fill(_sentinel(array.dtype))
        for slot, arrays in operands.items():
            for array, values in zip(arrays, inputs[slot], strict=True):
                array[...] = dev.xp.asarray(values)
        with np.errstate(all="ignore"):
            _make(dev, steps)
        _check_operands(op, operands, inputs, shared)
        return {s: [None if a is None else _home(a) for a in v] for s, v in outputs.items()}

    return run_once


def _make(dev: Device, steps: list[Any]) -> None:
    """Make the calls, and wait until what they do is done.

    A simulated GPU makes those that a graph can hold as from a graph: it refuses there what CUDA would.
    """
    runtime = dev.runtime
    if runtime is None:
        for step in steps:
            step()
        return
    runtime.use()
    for in_graph, calls in groupby(steps, lambda step: graph_can_hold(step, dev.xp)):
        if in_graph and isinstance(runtime, SimulatedRuntime):
            runtime.capture([*calls])()
        else:
            runtime.execute([*calls])
    runtime.synchronize()


def _home(array: Any) -> Any:
    """Return a copy on the host."""
    return array.copy() if isinstance(array, np.ndarray) else array.get()


def _outputs(
    op: Op,
    operands: Arrays,
    inputs: Arrays,
    attrs: Attrs,
    wanted: Callable[[str], bool],
    overwrite: bool,
    layout: str = "",
    xp: Any = np,
) -> tuple[Arrays, list[Any]]:
    """Return memory for the outputs, and those of them that are operands' memory."""
    specs = infer(op, specs_of(inputs), attrs, inputs)
    outputs: Arrays = {
        slot.name: [
            laid_out(s.shape, to_numpy(s.dtype), layout, xp) for s in specs.get(slot.name, ())
        ]
        for slot in op.output_slots
    }
    shared: list[Any] = []
    taken = (op.in_place, op.in_place_else) if overwrite else (updates(op),)
    for slot, source in (pair for slots in taken for pair in slots.items()):
        many, others = outputs.get(slot), operands.get(source)
        if not many or not others or not wanted(slot) or any(many[0] is a for a in shared):
            continue
        alike = (many[0].shape, many[0].dtype) == (others[0].shape, others[0].dtype)
        if alike and not any(others[0] is a for a in shared):  # only one can have it
            many[0] = others[0]
            shared.append(others[0])
    for slot, many in outputs.items():
        if not wanted(slot):
            outputs[slot] = [None] * len(many)
    return outputs, shared


def _sentinel(dtype: Any) -> Any:
    return np.nan if is_float(dtype) else 77 if dtype.kind in "iu" else True


def exact(array: Any) -> Any:
    """Return low-precision floats as float64 (NumPy's tests do not know bfloat16's nan), others as they are."""
    return array.astype("float64") if array is not None and is_low(array.dtype) else array


def _check_operands(op: Op, operands: Arrays, inputs: Arrays, shared: list[Any]) -> None:
    for slot, arrays in operands.items():
        for array, before in zip(arrays, inputs[slot], strict=True):
            if not any(array is a for a in shared):
                message = f"{op.type} wrote its operand {slot}"
                np.testing.assert_array_equal(exact(_home(array)), exact(before), err_msg=message)


def _check_same_bits(op: Op, first: Arrays, second: Arrays) -> None:
    for slot, arrays in first.items():
        for one, other in zip(arrays, second[slot], strict=True):
            message = f"{op.type}: a second run gave another {slot}"
            np.testing.assert_array_equal(exact(one), exact(other), err_msg=message)


def offsets_for(grad: Op, inputs: Arrays) -> Arrays:
    """Return the offsets that a gradient op reads, from those that its op does."""
    sources = {slot.name: inputs.get(slot.name.replace("@GRAD", "")) for slot in grad.lod_slots}
    return {slot: levels for slot, levels in sources.items() if levels}


def lost(array: Any) -> Any:
    """Return an array of the same shape and type, whose elements make whatever reads them wrong."""
    return np.full_like(array, np.nan if array.dtype.kind == "f" else 77)


def gradients(
    op: Op,
    inputs: Arrays,
    outputs: Arrays,
    seeds: Arrays,
    attrs: Attrs,
    *,
    only: str | None = None,
    overwrite: bool = False,
    dev: Device | None = None,
    back_end: str = "",
    layout: str = "",
    without: str = "",
) -> Arrays:
    """Run the declared gradient op(s); returns gradients by forward slot (``only`` one, if named).

    The elements of its slot ``without`` are lost.
    """
    grad = op.grad
    assert grad is not None
    declared = OPS[grad.type]
    settings = {**declared.attrs, **grad.attributes(attrs)}
    targets = {slot: target.removesuffix("@GRAD") for slot, target in grad.writes().items()}
    result: Arrays = {}
    for _ in inputs[grad.each] if grad.each else [None]:
        operands: Arrays = {}
        for slot, source in grad.reads().items():
            arrays = inputs.get(source, outputs.get(source))
            if arrays is None and source.endswith("@GRAD"):
                arrays = seeds.get(source.removesuffix("@GRAD"))
            if arrays:
                operands[slot] = list(map(lost, arrays)) if slot == without else arrays
        operands |= offsets_for(declared, inputs)
        results = run(
            declared,
            operands,
            settings,
            wanted=lambda slot: only is None or targets.get(slot) == only,
            overwrite=overwrite,
            dev=dev,
            back_end=back_end,
            layout=layout,
        )
        for slot, base in targets.items():
            result.setdefault(base, []).extend(results[slot])
    return result
