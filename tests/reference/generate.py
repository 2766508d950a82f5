"""Make losses.json and programs.json with Paddle 1.8.5.

Run with a Python 3.7 that has paddlepaddle==1.8.5 and protobuf<3.20:  python generate.py

Each model is built and each run made in a process of its own, because Paddle's name_scope counters
(they show in op_namescope) are global to the process.

losses.json    {model: {run: {"steps": [{"loss": array, label: array, ...} per step],
                              "norms": {parameter: L2 norm after the last step}}}}
               run is "single", "parallel" (CompiledProgram, two CPU places) and for fit13 also
               "parallel_executor", "parallel_one" and "parallel_customized" (loss@GRAD fed).
               Fetches of parallel runs are merged: dimension 0 is concatenated in place order.
programs.json  {model: {"loss": name, "fetches": {label: name},
                        "main": [block], "startup": [block], "for_test": [op type of block 0]}}
               block is {"idx", "parent_idx", "forward_block_idx", "ops", "vars"}.
"""

import json
import os
import subprocess
import sys

os.environ["CPU_NUM"] = "2"

import numpy as np

import compact_json
import models

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = ("single", "parallel")
FIT13_RUNS = ("parallel_executor", "parallel_one", "parallel_customized")
CUSTOM_SCALE = [0.5, 0.25]
# These four are written beside the other attributes; a call stack and a device hint say nothing.
SEPARATE = ("op_role", "op_role_var", "op_namescope", "op_callstack", "op_device")


# --- structure ------------------------------------------------------------------------------


def describe_op(op):
    attrs = {}
    for name in sorted(op.attr_names):
        if name in SEPARATE:
            continue
        attrs[name] = op._block_attr_id(name) if name == "sub_block" else op.attr(name)
    described = {
        "type": op.type,
        "inputs": {slot: op.input(slot) for slot in op.input_names},
        "outputs": {slot: op.output(slot) for slot in op.output_names},
        "attrs": attrs,
    }
    for name in ("op_role", "op_role_var", "op_namescope"):
        described[name] = op.attr(name) if op.has_attr(name) else None
    return described


def describe_var(var, fluid):
    types = fluid.core.VarDesc.VarType
    described = {
        "name": var.name,
        "type": int(var.type),
        "persistable": var.persistable,
        "stop_gradient": var.stop_gradient,
    }
    if var.type in (types.LOD_TENSOR, types.SELECTED_ROWS, types.LOD_TENSOR_ARRAY):
        described["shape"] = list(var.shape)
        described["dtype"] = int(var.dtype)
    if var.type in (types.LOD_TENSOR, types.LOD_TENSOR_ARRAY):
        described["lod_level"] = var.lod_level
    if isinstance(var, fluid.framework.Parameter):
        described["trainable"] = var.trainable
    return described


def describe_program(program, fluid):
    return [
        {
            "idx": block.idx,
            "parent_idx": block.parent_idx,
            "forward_block_idx": block.forward_block_idx,
            "ops": [describe_op(op) for op in block.ops],
            "vars": [describe_var(block.vars[name], fluid) for name in sorted(block.vars)],
        }
        for block in program.blocks
    ]


def describe_model(name, fluid):
    model = models.build(name, fluid)
    for_test = model.main.clone(for_test=True)
    return {
        "loss": model.loss.name,
        "fetches": {label: var.name for label, var in model.fetches.items()},
        "main": describe_program(model.main, fluid),
        "startup": describe_program(model.startup, fluid),
        "for_test": [op.type for op in for_test.global_block().ops],
    }


# --- numbers --------------------------------------------------------------------------------


def make_step(run, model, exe, fluid):
    """A function feed -> fetched arrays for one way of running."""
    fetch_list = [model.loss.name] + [var.name for var in model.fetches.values()]
    if run == "single":
        return lambda data: exe.run(model.main, feed=data, fetch_list=fetch_list)
    strategy = fluid.BuildStrategy()
    scales = fluid.BuildStrategy.GradientScaleStrategy
    if run == "parallel_one":
        strategy.gradient_scale_strategy = scales.One
    if run == "parallel_customized":
        strategy.gradient_scale_strategy = scales.Customized
    if run == "parallel_executor":
        parallel = fluid.ParallelExecutor(
            use_cuda=False, loss_name=model.loss.name, main_program=model.main
        )
        return lambda data: parallel.run(fetch_list, feed=data)
    compiled = fluid.CompiledProgram(model.main).with_data_parallel(
        loss_name=model.loss.name, build_strategy=strategy
    )

    def step(data):
        if run == "parallel_customized":
            data[model.loss.name + "@GRAD"] = np.array(CUSTOM_SCALE, dtype="float32")
        return exe.run(compiled, feed=data, fetch_list=fetch_list)

    return step


def run_model(name, run, fluid):
    model = models.build(name, fluid)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    scope = fluid.global_scope()
    exe.run(model.startup)
    models.set_initial_values(model.main, scope, place)
    step = make_step(run, model, exe, fluid)
    labels = ["loss"] + list(model.fetches)
    steps = []
    for index in range(models.STEPS):
        fetched = step(models.feed(name, index))
        steps.append({label: value.tolist() for label, value in zip(labels, fetched)})
    norms = {}
    for parameter in sorted(p.name for p in model.main.all_parameters()):
        value = np.array(scope.find_var(parameter).get_tensor()).astype("float64")
        norms[parameter] = float(np.sqrt((value**2).sum()))
    return {"steps": steps, "norms": norms}


# --- one process a job ----------------------------------------------------------------------


def job(*arguments):
    """Run this script in a fresh process and read the JSON it prints on its last line."""
    command = [sys.executable, os.path.abspath(__file__)] + list(arguments)
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(output.decode().splitlines()[-1])


def main():
    if len(sys.argv) > 1:
        from paddle import fluid

        kind, name = sys.argv[1:3]
        result = describe_model(name, fluid) if kind == "program" else run_model(name, kind, fluid)
        print(json.dumps(result))
        return
    losses = {}
    programs = {}
    for name in models.MODELS:
        runs = RUNS + FIT13_RUNS if name == "fit13" else RUNS
        losses[name] = {run: job(run, name) for run in runs}
        programs[name] = job("program", name)
    compact_json.write(os.path.join(HERE, "losses.json"), losses, depth=4)
    compact_json.write(os.path.join(HERE, "programs.json"), programs, depth=5)


if __name__ == "__main__":
    main()
