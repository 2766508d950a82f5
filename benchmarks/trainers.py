"""What does another driver cost? One driver with two places beside two drivers with one place each.

Run with OMP_NUM_THREADS=1. Both ways train in turn, three times, in one Ray; prints the median step in
milliseconds of each, of a 13 -> 1 net and of one with 50 MB of parameters.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import ray

import rowlock
import rowlock.fluid as fluid

SIZES = {"13 -> 1": (13, 0, 32, 1500), "50 MB": (1024, 12, 16, 40)}  # inputs, layers, rows, steps
TIMES = 3
ENDS = ["127.0.0.1:6170", "127.0.0.1:6171"]


def net(name):
    """Return main, startup and loss; each layer of the large net has 4 MB of weights."""
    inputs, layers, _, _ = SIZES[name]
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, inputs]), fluid.data("y", [None, 1])
        hidden = x
        for _ in range(layers):
            hidden = fluid.layers.fc(hidden, inputs, act="relu")
        cost = fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y)
        loss = fluid.layers.mean(cost)
        fluid.optimizer.SGD(0.001).minimize(loss)
    return main, startup, loss


def step_ms(name, places, trainer=0, trainers=1, run=0):
    """Return the median milliseconds of a step that feeds each place as many rows."""
    inputs, _, rows, steps = SIZES[name]
    main, startup, loss = net(name)
    build = fluid.BuildStrategy()
    if trainers > 1:
        build.num_trainers, build.trainer_id = trainers, trainer
        build.trainers_endpoints = [f"{end}{run}" for end in ENDS]
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    program = fluid.CompiledProgram(main).with_data_parallel(
        loss_name=loss.name, build_strategy=build, places=fluid.cpu_places(places)
    )
    draw = np.random.default_rng(trainer)
    x = draw.standard_normal((rows * places, inputs)).astype("float32")
    feed = {"x": x, "y": x[:, :1].copy()}
    took = []
    for _ in range(steps + 20):
        began = time.perf_counter()
        exe.run(program, feed, [loss], scope=scope)
        took.append(time.perf_counter() - began)
    return 1e3 * statistics.median(took[20:])


def as_trainer(name, trainer, run):
    with rowlock.cluster(launcher="ray"):
        print("ms", step_ms(name, 1, int(trainer), 2, run))


def two_drivers(name, address, run):
    """Return the slower trainer's median step."""
    environment = {**os.environ, "RAY_ADDRESS": address}
    drivers = [
        subprocess.Popen(
            [sys.executable, __file__, "--trainer", name, str(trainer), str(run)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for trainer in range(2)
    ]
    outputs = [driver.communicate(timeout=300)[0] for driver in drivers]
    return max(float(text.partition("ms ")[2].split()[0]) for text in outputs)


def main():
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR")
    address = ray.get_runtime_context().gcs_address
    for name in SIZES:
        one, two = [], []
        for run in range(TIMES):
            with rowlock.cluster(launcher="ray"):
                one.append(step_ms(name, 2))
            two.append(two_drivers(name, address, run))
        row = {"net": name, "one driver": round(min(one), 3), "two drivers": round(min(two), 3)}
        print(json.dumps({**row, "all": [one, two]}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trainer"]:
        as_trainer(*sys.argv[2:])
    else:
        argparse.ArgumentParser(description=__doc__).parse_args()
        main()
