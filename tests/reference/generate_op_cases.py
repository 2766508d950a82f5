"""Make op_cases/*.json with Paddle 1.8.5: what every op that is declared here computes off its defaults.

Run with a Python 3.7 that has paddlepaddle==1.8.5 and protobuf<3.20:  python generate_op_cases.py [op type ...]
Each table op_cases/NAME.py (see op_cases/tables.py) has its record in op_cases/NAME.json.

Each op's function below draws inputs and attributes; it is called with case numbers from 0, and the seed of a
case is made of the op's name and that number. Paddle runs each case in a process of its own (some of them
crash it). What it refuses is counted, not stored: a case here must not depend on a refusal.

A record is  {op type: [[seed, {slot: [[shape, dtype, how, ...]]}, {attribute: value},
                         {output slot: [[shape, dtype, digest]]}, {input slot: [[shape, dtype, digest] or null]}]]}
Inputs are drawn by op_cases/inputs.py draw, digests made by its digest. The last entry holds the gradients of
sum(output * weights) over the differentiable outputs.
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
from tables import CASES, IN_PLACE, NO_GRADIENT, OUTPUT_COUNT, SIDE


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


def run_case(op_type, described, attrs, seed):
    arrays = op_case_inputs.draw(described, seed)
    main = fluid.Program()
    feed = {}
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        inputs = {}
        for slot, many in arrays.items():
            inputs[slot] = []
            for i, array in enumerate(many):
                name = "%s_%d" % (slot, i)
                feed[name] = array
                inputs[slot].append(
                    block.create_var(
                        name=name,
                        shape=array.shape,
                        dtype=array.dtype,
                        stop_gradient=array.dtype.kind != "f",
                    )
                )
        outputs = {slot: inputs[source] for slot, source in IN_PLACE.get(op_type, {}).items()}
        for slot in slots_of(op_type)[1]:
            if slot.name in outputs or (
                slot.dispensable and slot.name not in ("XShape", "NeutralPair")
            ):
                continue
            count = OUTPUT_COUNT[op_type](attrs, arrays) if slot.duplicable else 1
            outputs[slot.name] = [
                block.create_var(name="%s_out_%d" % (slot.name, i)) for i in range(count)
            ]
        block.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs)
        differentiable = [
            v
            for slot, variables in outputs.items()
            for v in variables
            if slot not in SIDE.get(op_type, ())
            and slot not in ("XShape", "MatchX", "Indices", "Mask")
            and v.dtype in (fluid.core.VarDesc.VarType.FP32, fluid.core.VarDesc.VarType.FP64)
        ]
        exe = fluid.Executor(fluid.CPUPlace())
        wanted = [
            (slot, v.name) for slot, vs in sorted(outputs.items()) for v in vs if slot != "XShape"
        ]
        made = exe.run(main, feed=feed, fetch_list=[name for _, name in wanted])
        results = {}
        for (slot, _), array in zip(wanted, made):
            results.setdefault(slot, []).append(array)
        sources = [
            v for slot in sorted(inputs) for v in inputs[slot] if feed[v.name].dtype.kind == "f"
        ]
        tested = op_type == "batch_norm" and attrs["is_test"]  # has no gradient
        if tested or op_type in NO_GRADIENT or not differentiable or not sources:
            return results, {}
        shapes = {name: array.shape for (_, name), array in zip(wanted, made)}
        targets = []
        for number, v in enumerate(sorted(differentiable, key=lambda v: v.name)):
            dtype = "float32" if v.dtype == fluid.core.VarDesc.VarType.FP32 else "float64"
            name = v.name + "_weights"
            feed[name] = op_case_inputs.weights(shapes[v.name], number).astype(dtype)
            targets.append((v, block.create_var(name=name, shape=shapes[v.name], dtype=dtype)))
        grads = fluid.gradients([v for v, _ in targets], sources, [w for _, w in targets])
        known = [g for g in grads if g is not None]
        values = exe.run(main, feed=feed, fetch_list=known) if known else []
        found = dict(zip([g.name for g in known], values))
        gradients = {}
        for v, g in zip(sources, grads):
            gradients.setdefault(v.name.rsplit("_", 1)[0], []).append(
                None if g is None else found[g.name]
            )
        return results, gradients


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
    """Run a case in a process of its own; returns its entry, or why there is none."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        os.close(receiving)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        signal.alarm(30)  # Paddle hangs on some
        try:
            made = [described_arrays(s) for s in run_case(op_type, described, attrs, seed)]
        except Exception as error:
            made = str(error).strip().splitlines()[-1][:300] if str(error).strip() else repr(error)
        with os.fdopen(sending, "w") as stream:
            json.dump(made, stream)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "crashed"


def cases_of(op_type):
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
        made = apart(op_type, described, attrs, seed)
        if isinstance(made, str):
            refused.append((described, attrs, made))
        else:
            entries.append([seed, described, attrs] + made)
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
