"""Losses of two trainers with two parameter servers in Paddle 1.8.5; writes ``pservers.json``.

Run by Paddle 1.8.5's Python: every role is a process of this script. Values and data follow from formulas, so
that the test has the same ones. ``CASES`` train in sync mode. ``WAYS`` are trainings that end or begin
otherwise: "early" has trainer 1 close its executor after ``EARLY`` steps, "half-async" has trainer 1 begin when
trainer 0 has done all its steps, "saved" saves Adam's training after ``EARLY`` steps and tells what is in the
files, "resumed" goes on from these files with new servers. ``table``: an embedding trained in one process.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

STEPS, ROWS, WIDE, EARLY = 10, 8, 30, 4
HEIGHT, PADDING = 41, 5
PORTS = ("127.0.0.1:26174", "127.0.0.1:26175")
CASES = {
    "sgd": ("sgd", 0.0),
    "sgd clipped": ("sgd", 0.05),
    "momentum": ("momentum", 0.0),
    "adam clipped": ("adam", 0.05),
    "adagrad": ("adagrad", 0.0),
}
WAYS = {
    "early": ("sgd", 0.0),
    "half-async": ("constant sgd", 0.0),
    "saved": ("constant adam", 0.0),
    "resumed": ("constant adam", 0.0),
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
    rate = 0.05
    if not optimizer.startswith("constant"):
        rate = layers.piecewise_decay([3, 6], [0.05, 0.02, 0.01])
    decay = fluid.regularizer.L2Decay(0.01)
    if clip:
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(clip))
    make = {
        "sgd": lambda: fluid.optimizer.SGD(rate, regularization=decay),
        "momentum": lambda: fluid.optimizer.Momentum(rate, 0.9, regularization=decay),
        "adam": lambda: fluid.optimizer.Adam(rate),
        "adagrad": lambda: fluid.optimizer.Adagrad(rate, regularization=decay),
        "constant sgd": lambda: fluid.optimizer.SGD(rate),
        "constant adam": lambda: fluid.optimizer.Adam(rate),
    }
    make[optimizer]().minimize(loss)
    return loss


def table(fluid, distributed=False):
    """Build a net that looks a table up twice, with padding, into the default programs; return its loss."""
    layers, from_array = fluid.layers, fluid.initializer.NumpyArrayInitializer
    ids, y = fluid.data("ids", [None, 3, 1], "int64"), fluid.data("y", [None, 1])
    attr = fluid.ParamAttr("table", initializer=from_array(values(HEIGHT, 4)))
    settings = {"is_sparse": True, "is_distributed": distributed, "padding_idx": PADDING}
    settings["param_attr"] = attr
    rows = [layers.embedding(ids, [HEIGHT, 4], **settings) for _ in range(2)]
    both = layers.reduce_sum(rows[0], 1) + layers.reduce_mean(rows[1], 1)
    attr = fluid.ParamAttr("w0", initializer=from_array(values(4, 1)))
    guess = layers.fc(both, 1, param_attr=attr, bias_attr=False)
    loss = layers.mean(layers.square_error_cost(guess, y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def looked_up():
    """Return the batches of the net with a table: repeated ids, those of padding, and its last row."""
    batches = []
    for step in range(STEPS):
        ids = (np.arange(ROWS * 3).reshape(ROWS, 3, 1) * 7 + step * 3) % HEIGHT
        ids[0, 0], ids[1, 0], ids[2] = PADDING, HEIGHT - 1, 7
        batches.append({"ids": ids.astype("int64"), "y": values(ROWS, 1, scale=1.0)})
    return batches


def table_alone():
    """Return losses and the last table of one process."""
    import paddle.fluid as fluid

    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.scope_guard(scope):
        loss = table(fluid)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        losses = [float(exe.run(main, feed=f, fetch_list=[loss])[0]) for f in looked_up()]
        rows = np.array(scope.find_var("table").get_tensor())
    return {"losses": losses, "rows": rows.tolist()}


def waited_for(path):
    """Return once a file is there."""
    while not os.path.exists(path):
        time.sleep(0.01)


def transpiled(fluid, case, trainer):
    """Return the loss, the transpiler and a trainer's startup program."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = net(fluid, *dict(CASES, **WAYS)[case])
    config = fluid.DistributeTranspilerConfig()
    config.slice_var_up = False
    if case == "half-async":
        config.sync_mode, config.runtime_split_send_recv, config.half_async = False, True, True
    transpiler = fluid.DistributeTranspiler(config)
    main.random_seed = startup.random_seed = 1
    transpiler.transpile(
        trainer,
        program=main,
        pservers=",".join(PORTS),
        trainers=2,
        sync_mode=case != "half-async",
        startup_program=startup,
    )
    return loss, transpiler, startup


def communicator(fluid, program):
    """Start and return what sends gradients in half-async mode."""
    from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
        DistributedMode,
        TrainerRuntimeConfig,
    )

    flags = TrainerRuntimeConfig().get_communicator_flags()
    sender = fluid.communicator.Communicator(program, DistributedMode.HALF_ASYNC, None, flags)
    sender.start()
    return sender


def role(case, kind, number, folder):
    """Be a server or a trainer; a trainer prints its losses."""
    import paddle.fluid as fluid

    loss, transpiler, startup = transpiled(fluid, case, number if kind == "trainer" else 0)
    exe, saved = fluid.Executor(fluid.CPUPlace()), os.path.join(folder, "saved")
    if kind == "server":
        server, first = transpiler.get_pserver_programs(PORTS[number])
        if case == "resumed":
            server._ps_endpoint = PORTS[number]
        exe.run(first)
        if case == "resumed":
            fluid.io.load_persistables(exe, saved, server)
        exe.run(server)
        return
    main = transpiler.get_trainer_program()
    exe.run(startup)
    batches = feeds(number)
    if case == "early" and number or case == "saved":
        batches = batches[:EARLY]
    if case == "resumed":
        batches = batches[EARLY:]
    sender = None
    if case == "half-async":
        sender = communicator(fluid, main)
        open(os.path.join(folder, "begun%d" % number), "w").close()
        waited_for(os.path.join(folder, "done0" if number else "begun1"))
    losses = [float(exe.run(main, feed=f, fetch_list=[loss])[0]) for f in batches]
    print("LOSSES " + json.dumps(losses), flush=True)
    open(os.path.join(folder, "done%d" % number), "w").close()
    if case == "saved":
        waited_for(os.path.join(folder, "done%d" % (1 - number)))
        if not number:
            fluid.io.save_persistables(exe, saved, main)
            open(os.path.join(folder, "saved.all"), "w").close()
        waited_for(os.path.join(folder, "saved.all"))
    if sender is not None:
        sender.stop()
    exe.close()


def losses_of(case, folder):
    """Run all roles of a case; return the losses by trainer."""
    roles = [("server", 0), ("server", 1), ("trainer", 0), ("trainer", 1)]
    running = [
        subprocess.Popen(
            [sys.executable, __file__, case, kind, str(number), folder],
            stdout=subprocess.PIPE,
            stderr=open(os.path.join(folder, "%s.%s%d" % (case, kind, number)), "w"),
            universal_newlines=True,
        )
        for kind, number in roles
    ]
    try:
        texts = [process.communicate(timeout=200)[0] for process in running[2:]]
    finally:
        for process in running:  # Paddle's servers may stay when their trainers have finished
            process.kill()
    return [json.loads(text.split("LOSSES ")[1].splitlines()[0]) for text in texts]


def file_of(path):
    """Return the values of a tensor's file: they are behind a head of version, type and shape."""
    with open(path, "rb") as file:
        text = file.read()
    head = 4 + 8 + 4  # version, number of levels of sequences, version
    size = int(np.frombuffer(text, "int32", 1, head)[0])
    return np.frombuffer(text, "float32", offset=head + 4 + size).tolist()


def main():
    """Write all references."""
    folder = tempfile.mkdtemp()
    try:
        said = {}
        for case in list(CASES) + list(WAYS):
            said[case] = losses_of(case, folder)
            for name in os.listdir(folder):
                if name != "saved":
                    os.remove(os.path.join(folder, name))
        saved = os.path.join(folder, "saved")
        said["files"] = {n: file_of(os.path.join(saved, n)) for n in sorted(os.listdir(saved))}
        said["table"] = table_alone()
    finally:
        shutil.rmtree(folder)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pservers.json")
    with open(path, "w") as file:
        json.dump(said, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        role(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
