"""Losses of two trainers with two parameter servers in Paddle 1.8.5, in sync mode; writes ``pservers.json``.

Run by Paddle 1.8.5's Python: every role is a process of this script. Values and data follow from formulas, so
that the test has the same ones.
"""

import json
import os
import subprocess
import sys

import numpy as np

STEPS, ROWS, WIDE = 10, 8, 30
PORTS = ("127.0.0.1:26174", "127.0.0.1:26175")
CASES = {
    "sgd": ("sgd", 0.0),
    "sgd clipped": ("sgd", 0.05),
    "momentum": ("momentum", 0.0),
    "adam clipped": ("adam", 0.05),
    "adagrad": ("adagrad", 0.0),
}


def values(*shape, scale=0.3):
    """Return numbers that look drawn, the same everywhere."""
    count = int(np.prod(shape))
    return (np.sin(np.arange(count) * 1.7 + len(shape)) * scale).reshape(shape).astype("float32")


def feeds(trainer):
    """Return a trainer's rows of each batch."""
    batches = []
    for step in range(STEPS):
        x = values(ROWS, 6, scale=1.0) * np.float32(np.cos(step + 1))
        x = x + np.float32(0.1) * np.arange(ROWS, dtype="float32").reshape(-1, 1)
        y = x.sum(1, keepdims=True) * np.float32(0.5)
        batches.append({"x": x[trainer::2], "y": y[trainer::2]})
    return batches


def net(fluid, optimizer, clip):
    """Build the net into the default programs; return its loss."""
    layers, from_array = fluid.layers, fluid.initializer.NumpyArrayInitializer
    x, y = fluid.data("x", [None, 6]), fluid.data("y", [None, 1])

    def attr(name, *shape):
        return fluid.ParamAttr(name, initializer=from_array(values(*shape)))

    hidden = layers.fc(x, WIDE, act="tanh", param_attr=attr("w0", 6, WIDE), bias_attr=attr("b0", WIDE))
    guess = layers.fc(hidden, 1, param_attr=attr("w1", WIDE, 1), bias_attr=attr("b1", 1))
    loss = layers.mean(layers.square_error_cost(guess, y))
    rate = layers.piecewise_decay([3, 6], [0.05, 0.02, 0.01])
    decay = fluid.regularizer.L2Decay(0.01)
    if clip:
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(clip))
    make = {
        "sgd": lambda: fluid.optimizer.SGD(rate, regularization=decay),
        "momentum": lambda: fluid.optimizer.Momentum(rate, 0.9, regularization=decay),
        "adam": lambda: fluid.optimizer.Adam(rate),
        "adagrad": lambda: fluid.optimizer.Adagrad(rate, regularization=decay),
    }
    make[optimizer]().minimize(loss)
    return loss


def role(case, kind, number):
    """Be a server or a trainer; a trainer prints its losses."""
    import paddle.fluid as fluid

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = net(fluid, *CASES[case])
    config = fluid.DistributeTranspilerConfig()
    config.slice_var_up = False
    transpiler = fluid.DistributeTranspiler(config)
    trainer = number if kind == "trainer" else 0
    main.random_seed = startup.random_seed = 1
    transpiler.transpile(
        trainer, program=main, pservers=",".join(PORTS), trainers=2, startup_program=startup
    )
    exe = fluid.Executor(fluid.CPUPlace())
    if kind == "server":
        server, first = transpiler.get_pserver_programs(PORTS[number])
        exe.run(first)
        exe.run(server)
        return
    main = transpiler.get_trainer_program()
    exe.run(startup)
    losses = [float(exe.run(main, feed=f, fetch_list=[loss])[0]) for f in feeds(number)]
    print("LOSSES " + json.dumps(losses))
    exe.close()


def losses_of(case):
    """Run all roles of a case; return the losses by trainer."""
    roles = [("server", 0), ("server", 1), ("trainer", 0), ("trainer", 1)]
    running = [
        subprocess.Popen(
            [sys.executable, __file__, case, kind, str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
        )
        for kind, number in roles
    ]
    try:
        texts = [process.communicate(timeout=60)[0] for process in running[2:]]
    finally:
        for process in running:  # Paddle's servers may stay when their trainers have finished
            process.kill()
    return [json.loads(text.split("LOSSES ")[1].splitlines()[0]) for text in texts]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        role(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pservers.json")
        with open(path, "w") as file:
            json.dump({case: losses_of(case) for case in CASES}, file, indent=1)
            file.write("\n")
