"""Load with Paddle what Rowlock saved, and compare what it predicts.

Run by hand, in two steps, from the top of the repository:

    python -m tests.reference.formats.reverse save FOLDER        with Rowlock
    python tests/reference/formats/reverse.py load FOLDER        with Paddle 1.8.5, and again with 3.3.1
                                                                 (FLAGS_enable_pir_api=0)

``tests/executor/test_saved_files.py`` does both where ROWLOCK_PADDLE185 and ROWLOCK_PADDLE331 name a Python with it.
"""

import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import models as training

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "paddle185")


def save(folder):
    """Build the models, give them the fixtures' parameters, and save them in every way."""
    from rowlock import fluid, static
    from tests.reference.formats.models import MODELS, dense

    exe = fluid.Executor(fluid.CPUPlace())
    with open(os.path.join(FIXTURES, "expected.json")) as file:
        expected = json.load(file)
    for name, build, params in MODELS:
        main, startup = fluid.Program(), fluid.Program()
        scope = fluid.scope_guard(fluid.Scope())
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), scope:
            feeds, fetches = build(fluid)
            exe.run(startup)
            fluid.io.load_persistables(exe, os.path.join(FIXTURES, name), main, params)
            names = [v.name for v in feeds]
            target = os.path.join(folder, name)
            fluid.io.save_inference_model(target, names, fetches, exe, main, None, params)
            static.save_inference_model(target, feeds, fetches, exe, program=main)
    main, startup = fluid.Program(), fluid.Program()
    scope = fluid.scope_guard(fluid.Scope())
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), scope:
        feeds, (prediction,) = dense(fluid)
        y = fluid.layers.data("y", [1], dtype="int64")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.Adam(0.1).minimize(loss)
        exe.run(startup)
        fluid.load(main, os.path.join(FIXTURES, "state"), exe)
        fluid.save(main, os.path.join(folder, "state"))
        feed = {"x": np.array(expected["dense"]["feed"]["x"], "float32"), "y": np.array([[0], [1]])}
        steps = [float(exe.run(main, feed, [loss])[0][0]) for _ in range(3)]
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump(steps, file)
    for name in training.MODELS:
        model = training.build(name, fluid)
        for which, program in (("main", model.main), ("startup", model.startup)):
            with open(os.path.join(folder, name + "." + which), "wb") as file:
                file.write(program.desc.serialize_to_string())


def train(folder):
    """Train the reference models with the programs of Rowlock."""
    from paddle import fluid

    with open(os.path.join(HERE, os.pardir, "losses.json")) as file:
        losses = json.load(file)
    exe = fluid.Executor(fluid.CPUPlace())
    for name in training.MODELS:
        programs = []
        for which in ("main", "startup"):
            with open(os.path.join(folder, name + "." + which), "rb") as file:
                programs.append(fluid.Program.parse_from_string(file.read()))
        model = training.build(name, fluid)
        fetches = [model.loss.name]
        with fluid.scope_guard(fluid.Scope()):
            exe.run(programs[1])
            training.set_initial_values(model.main, fluid.global_scope(), fluid.CPUPlace())
            steps = [
                exe.run(programs[0], training.feed(name, step), fetches)[0]
                for step in range(training.STEPS)
            ]
        close(name + ", trained", steps, [step["loss"] for step in losses[name]["single"]["steps"]])


def close(name, results, expected):
    """Say how far results are from what is expected, and refuse more than 1e-5."""
    for result, value in zip(results, expected):
        value = np.array(value, "float32").reshape(result.shape)
        worst = float(np.abs(result - value).max())
        print("%s: differs by %.1e" % (name, worst))
        assert worst <= 1e-5, name


def load_old(folder, expected):
    """Load with Paddle 1.8.5."""
    from paddle import fluid

    exe = fluid.Executor(fluid.CPUPlace())
    for name in expected:
        kind = "int64" if name == "words" else "float32"
        feed = {k: np.array(v, kind) for k, v in expected[name]["feed"].items()}
        params = "params" if os.path.exists(os.path.join(folder, name, "params")) else None
        for way in (
            (os.path.join(folder, name), None, params),
            (folder, name + ".pdmodel", name + ".pdiparams"),
        ):
            with fluid.scope_guard(fluid.Scope()):
                program, fed, fetched = fluid.io.load_inference_model(way[0], exe, *way[1:])
                assert fed == list(feed)
                close(name, exe.run(program, feed, fetched), expected[name]["fetch"])
    with open(os.path.join(folder, "state.pdmodel"), "rb") as file:
        program = fluid.Program.parse_from_string(file.read())
    state = fluid.io.load_program_state(os.path.join(folder, "state"))
    feed = {"x": np.array(expected["dense"]["feed"]["x"], "float32"), "y": np.array([[0], [1]])}
    with fluid.scope_guard(fluid.Scope()), open(os.path.join(folder, "losses.json")) as file:
        for name, value in state.items():
            fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())
        steps = [exe.run(program, feed, ["mean_0.tmp_0"])[0] for _ in range(3)]
        close("state, trained on", steps, json.load(file))
    train(folder)


def load_new(folder, expected):
    """Load with Paddle 3.3.1."""
    import paddle

    paddle.enable_static()
    exe = paddle.static.Executor(paddle.CPUPlace())
    for name in expected:
        kind = "int64" if name == "words" else "float32"
        feed = {k: np.array(v, kind) for k, v in expected[name]["feed"].items()}
        with paddle.static.scope_guard(paddle.static.Scope()):
            program, fed, fetched = paddle.static.load_inference_model(
                os.path.join(folder, name), exe
            )
            assert fed == list(feed)
            close(name, exe.run(program, feed, fetched), expected[name]["fetch"])
    state = paddle.static.load_program_state(os.path.join(folder, "state"))
    assert sorted(state)[0] == "fc_0.b_0", sorted(state)


def main():
    """Save or load."""
    step, folder = sys.argv[1:]
    if step == "save":
        return save(folder)
    with open(os.path.join(FIXTURES, "expected.json")) as file:
        expected = json.load(file)
    return (load_old if sys.version_info < (3, 8) else load_new)(folder, expected)


if __name__ == "__main__":
    main()
