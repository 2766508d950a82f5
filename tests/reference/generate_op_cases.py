"""Make op_cases/*.json with Paddle 1.8.5: what every op that is declared here computes off its defaults.

Run with a Python 3.7 that has paddlepaddle==1.8.5 and protobuf<3.20:  python generate_op_cases.py [op type ...]
Each table op_cases/NAME.py (see op_cases/tables.py) has its record in op_cases/NAME.json.

Each op's function below draws inputs and attributes; it is called with case numbers from 0, and the seed of a
case is made of the op's name and that number. Paddle runs each case in a process of its own (some of them
crash it). What it refuses is counted, not stored: a case here must not depend on a refusal.

A record is  {op type: [[seed, {slot: [[shape, dtype, how, ...]]}, {attribute: value},
                         {output slot: [[shape, dtype, digest]]}, {input slot: [[shape, dtype, digest] or null]}]]}
A slot X@LOD holds the offsets of the sequences of X, one array a level (one a variable, if X has several).
Inputs are drawn by op_cases/inputs.py draw, digests made by its digest. The last entry holds the gradients of
sum(output * weights), where op_cases/inputs.py weighted says which outputs count, and how much.
"""

import glob
import importlib
import itertools
import json
import math
import os
import signal
import sys
import zlib

import numpy as np
from paddle import fluid

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "op_cases")
sys.path.insert(0, FOLDER)

import inputs as op_case_inputs
from tables import CASES, IN_PLACE, NO_GRADIENT, OUTPUT_COUNT


SHAPES = ("XShape", "LogitsDim", "LabelsDim")  # outputs that hold no elements


class Pick:
    """Draws attributes: ``of`` goes through the options, so that each comes up; ``any`` is random."""

    def __init__(self, seed, number):
        self.rng, self.number, self.calls = np.random.RandomState(seed), number, 0

    def any(self, *options):
        return options[self.rng.randint(len(options))]

    def of(self, *options):
        """Later calls of one case turn more slowly, so that combinations differ."""
        self.calls += 1
        return options[
            (self.number + (self.number // len(options)) * (self.calls - 1)) % len(options)
        ]


def slots_of(op_type):
    proto = fluid.framework.OpProtoHolder.instance().get_op_proto(op_type)
    return proto.inputs, proto.outputs


def with_sequences(array, levels):
    """Return a LoDTensor, if there are offsets, else the array."""
    if not levels:
        return array
    tensor = fluid.LoDTensor()
    tensor.set(array, fluid.CPUPlace())
    tensor.set_lod([level.tolist() for level in levels])
    return tensor


def fetched(exe, main, feed, names):
    """Return arrays, None for a variable that nothing was written to."""
    tensors = exe.run(main, feed=feed, fetch_list=names, return_numpy=False)
    return [np.array(t) if t._is_initialized() else None for t in tensors]


def run_case(op_type, described, attrs, seed):
    """Yield the outputs of a case, then its gradients."""
    arrays = op_case_inputs.draw(described, seed)
    offsets = {s[:-4]: arrays.pop(s) for s in sorted(arrays) if s.endswith("@LOD")}
    main = fluid.Program()
    feed = {}
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        inputs = {}
        for slot, many in arrays.items():
            inputs[slot] = []
            for i, array in enumerate(many):
                name = "%s_%d" % (slot, i)
                levels = offsets.get(slot, [])
                levels = levels[i : i + 1] if len(many) > 1 else levels
                feed[name] = with_sequences(array, levels)
                inputs[slot].append(
                    block.create_var(
                        name=name,
                        shape=array.shape,
                        dtype=array.dtype,
                        lod_level=len(levels),
                        stop_gradient=array.dtype.kind != "f",
                    )
                )
        outputs = {slot: inputs[source] for slot, source in IN_PLACE.get(op_type, {}).items()}
        for slot in slots_of(op_type)[1]:
            if slot.name in outputs or (
                slot.dispensable and slot.name not in ("XShape", "NeutralPair", "Labels")
            ):
                continue
            count = OUTPUT_COUNT[op_type](attrs, arrays) if slot.duplicable else 1
            outputs[slot.name] = [
                block.create_var(name="%s_out_%d" % (slot.name, i)) for i in range(count)
            ]
        block.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs)
        exe = fluid.Executor(fluid.CPUPlace())
        wanted = [
            (slot, v.name) for slot, vs in sorted(outputs.items()) for v in vs if slot not in SHAPES
        ]
        outs = fetched(exe, main, feed, [name for _, name in wanted])
        results = {}
        for (slot, _), array in zip(wanted, outs):
            results.setdefault(slot, []).append(array)
        yield results
        sources = [v for slot in sorted(inputs) for v in inputs[slot] if not v.stop_gradient]
        factors = op_case_inputs.weighted(op_type, results)
        if op_type in NO_GRADIENT or not factors or not sources:
            yield {}
            return
        targets = []
        for slot in factors:
            for v, factor in zip(outputs[slot], factors[slot]):
                dtype = fluid.framework.convert_np_dtype_to_dtype_(factor.dtype)
                v.desc.set_dtype(dtype)  # Paddle infers none here
                name = v.name + "_weights"
                feed[name] = factor
                targets.append((v, block.create_var(name=name, shape=v.shape, dtype=dtype)))
        grads = fluid.gradients([v for v, _ in targets], sources, [w for _, w in targets])
        known = [g for g in grads if g is not None]
        values = fetched(exe, main, feed, known) if known else []
        by_name = dict(zip([g.name for g in known], values))
        gradients = {}
        for v, g in zip(sources, grads):
            many = gradients.setdefault(v.name.rsplit("_", 1)[0], [])
            many.append(None if g is None else by_name[g.name])
        yield {slot: many for slot, many in gradients.items() if any(g is not None for g in many)}


def rounded(value):
    if isinstance(value, float):
        return value if math.isinf(value) or math.isnan(value) else float("%.7g" % value)
    return value


def described_arrays(slots):
    return {
        slot: [
            None
            if a is None
            else [list(a.shape), str(a.dtype), [rounded(x) for x in op_case_inputs.digest(a)]]
            for a in arrays
        ]
        for slot, arrays in slots.items()
    }


def apart(op_type, described, attrs, seed):
    """Run a case in a process of its own; returns its outputs and gradients, or text: why there are none."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        os.close(receiving)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        signal.alarm(30)  # Paddle hangs on some
        with os.fdopen(sending, "w") as stream:
            try:
                for slots in run_case(op_type, described, attrs, seed):
                    print(json.dumps(described_arrays(slots)), file=stream, flush=True)
            except Exception as error:
                text = str(error).strip() or repr(error)
                print(json.dumps(text.splitlines()[-1][:300]), file=stream)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as stream:
        parts = [json.loads(line) for line in stream]
    os.waitpid(child, 0)
    return (parts + ["crashed", "crashed"])[:2]


def cases_of(op_type):
    """Return the entries of an op and what Paddle refused: cases, or gradients of those that it computes."""
    count, function = CASES[op_type]
    entries, refused = [], []
    for number in itertools.count():
        if number >= 3 * count or len(entries) >= count:
            break
        seed = zlib.crc32(("%s %d" % (op_type, number)).encode()) & 0x7FFFFFFF
        described, attrs = function(Pick(seed, number))
        described = {
            slot: many if isinstance(many[0][0], (list, tuple)) else [many]
            for slot, many in described.items()
        }
        outputs, gradients = apart(op_type, described, attrs, seed)
        if isinstance(outputs, str):
            refused.append((described, attrs, outputs))
            continue
        if isinstance(gradients, str):
            refused.append((described, attrs, "gradient: " + gradients))
            gradients = {}
        entries.append([seed, described, attrs, outputs, gradients])
    return entries, refused


def write(path, record):
    lines = []
    for op_type in sorted(record):
        cases = ",\n".join(
            json.dumps(c, separators=(",", ":"), sort_keys=True) for c in record[op_type]
        )
        lines.append('"%s": [\n%s\n]' % (op_type, cases))
    with open(path, "w") as stream:
        stream.write("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    asked = sys.argv[1:]
    for table in sorted(glob.glob(os.path.join(FOLDER, "*.py"))):
        before = set(CASES)
        importlib.import_module(os.path.basename(table)[:-3])
        own = sorted(set(CASES) - before)
        chosen = [op_type for op_type in own if op_type in asked or not asked]
        if not chosen:
            continue
        path = table[:-3] + ".json"
        record = json.load(open(path)) if asked and os.path.exists(path) else {}
        for op_type in chosen:
            record[op_type], refused = cases_of(op_type)
            print(op_type, len(record[op_type]), "refused", len(refused), flush=True)
            if os.environ.get("SHOW_REFUSED"):
                for one in refused:
                    print("   ", one)
        write(path, record)


if __name__ == "__main__":
    main()
