"""Ops of Rowlock, forward and gradient, one at a time: a contender of ``op_sweep.py``."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.op_draws import named
from benchmarks.workers.op_calls import called, seed_of
from benchmarks.workers.serve import serve
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import aligned_bytes
from rowlock.executor.kernels.capabilities import capabilities, installed
from rowlock.executor.kernels.measure import Limit, Question, fastest, measure
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ir.graph import Node, Value
from rowlock.graph.lowering.select import alternatives, select_kernels
from rowlock.graph.ops.registry import OPS, Inference, Spec
from rowlock.strategies.flags import flag_value
from rowlock.strategies.types import to_numpy, to_var_type


class _One:
    """A graph of one node."""

    def __init__(self, node):
        self.nodes = [node]


def near(shape, dtype, values=0):
    """Return memory that begins on a cache line, as plans have it."""
    count, dtype = int(np.prod(shape)), np.dtype(dtype)
    array = aligned_bytes(np, max(count * dtype.itemsize, 1))[: count * dtype.itemsize]
    array = array.view(dtype).reshape(shape)
    array[...] = values
    return array


def operand(spec):
    """Return a value as the question about a node has it."""
    return list(spec.shape), int(spec.dtype), "", False


def chosen(node, kernels, able):
    """Return the kernel that a program would have."""
    (names,) = alternatives(_One(node), kernels, able, {}, "float32")
    if not names or not flag_value("FLAGS_measure_kernels"):
        return kernels[node]
    slots = [
        {s: [v and operand(v.spec) for v in many] for s, many in side.items()}
        for side in (node.inputs, node.outputs)
    ]
    question = Question(node.op, node.attrs, *slots, names)
    (seconds,) = measure([question], "float32", 1, Limit(10.0, 60.0)).seconds
    return fastest(names, seconds)


def bound(op_type, read, attrs, wanted, dev):
    """Return an op's calls, its results by slot and the back end that the compiler chooses."""
    op = OPS[op_type]
    specs = {s: [Spec(a.shape, to_var_type(a.dtype)) for a in many] for s, many in read.items()}
    specs_of = op.infer(Inference(op, specs, attrs, where="op_sweep"))
    specs_of = {slot.name: specs_of.get(slot.name, []) for slot in op.output_slots}
    written = {
        s: [near(one.shape, to_numpy(one.dtype)) if wanted(s) else None for one in many]
        for s, many in specs_of.items()
    }
    views = op.views if op.keeps_order(attrs, read) else {}
    for slot, source in views.items():  # of these plans compute nothing
        if wanted(slot) and specs_of[slot][0].shape == read[source][0].shape:
            written[slot] = read[source]
    if all(
        many is read.get(views.get(s)) or not any(a.size for a in many)
        for s, many in written.items()
    ):
        return [], written, "none"
    inputs = {s: tuple(Value(s, one) for one in many) for s, many in specs.items()}
    outputs = {
        s: tuple(Value(s, one) if wanted(s) else None for one in many)
        for s, many in specs_of.items()
    }
    node = Node(op_type, inputs, outputs, attrs)
    able = {name: end for name, end in capabilities().items() if name != "xla"}
    library = chosen(node, select_kernels(_One(node), able), able)
    with np.errstate(all="ignore"):
        return bind(op_type, read, written, attrs, dev, library), written, library


def build(name):
    """Return a call of the case, and what it computes."""
    case = named(name)
    if case.op not in OPS:
        raise LookupError("no such op here")
    op, dev = OPS[case.op], Device()
    inputs = {
        slot: [near(a.shape, a.dtype, a) for a in arrays] for slot, arrays in case.draw().items()
    }
    attrs = {**op.attrs, **case.attrs}
    steps, outputs, library = bound(case.op, inputs, attrs, lambda slot: True, dev)
    libraries, results = [library], list(outputs[case.out])
    if case.slopes:
        for _ in range(len(inputs[op.grad.each]) if op.grad.each else 1):
            more, slopes, library = gradient(case, inputs, outputs, attrs, dev)
            steps, results, libraries = steps + more, results + slopes, [*libraries, library]

    def step():
        for call in steps:
            call()
        return results

    step.libraries = "/".join(dict.fromkeys(libraries))
    return step


def gradient(case, inputs, outputs, attrs, dev):
    """Return the calls of a case's gradient op, the slopes that they compute, and its back end."""
    grad = OPS[case.op].grad
    declaration = OPS[grad.type]
    operands = {}
    for slot, source in grad.reads().items():
        base, is_grad, _ = source.partition("@GRAD")
        arrays = inputs.get(base) or outputs.get(base)
        if is_grad:
            arrays = [seed_of(a.shape) for a in outputs[base]] if base == case.out else None
        if arrays:
            operands[slot] = arrays
    operands |= {s.name: inputs[s.name] for s in declaration.lod_slots if s.name in inputs}
    targets = {s: t.partition("@GRAD")[0] for s, t in grad.writes().items()}
    slots = [s for c in case.slopes for s, t in targets.items() if t == c]
    settings = {**declaration.attrs, **grad.attributes(attrs)}
    calls, slopes, library = bound(grad.type, operands, settings, lambda slot: slot in slots, dev)
    return calls, [a for s in slots for a in slopes[s]], library


def run(step, count):
    """Return the seconds of calls, digests of what the last one gave, and what computed it."""
    with np.errstate(all="ignore"):
        return called(step, count, np.asarray, libraries=step.libraries)


if __name__ == "__main__":
    serve(lambda: {"python": sys.version.split()[0], **installed()}, build, run)
