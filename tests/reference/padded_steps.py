"""A StaticRNN over sequences that sequence_pad made long alike: its state after the last step, on 1 and 2 places.

Run with a Python 3.7 that has paddlepaddle==1.8.5 and protobuf<3.20:  python padded_steps.py

padded_steps.json  {"maxlen None, 2 places": [states [4, 2], losses of the places, gradient [2, 2] of the sum], ...}
"""

import json
import os

import numpy as np

LENGTHS = [4, 1, 2, 1]
MAXLENS = (None, 5)


def build(fluid, maxlen):
    """Return the programs of one cell, with the state, the loss and the gradient of a weight."""
    layers, main, startup = fluid.layers, fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2], "float32", lod_level=1)
        zero = layers.fill_constant([1], "float32", 0.0)
        padded, _ = layers.sequence_pad(x, zero, maxlen)
        start = layers.fill_constant_batch_size_like(padded, [-1, 2], "float32", 0.0)
        steps = layers.transpose(padded, [1, 0, 2])
        rnn = layers.StaticRNN()
        with rnn.step():
            row, state = rnn.step_input(steps), rnn.memory(init=start)
            weight = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.5))
            bias = fluid.initializer.Constant(0.1)
            after = layers.fc(
                layers.concat([row, state], 1), 2, act="tanh", param_attr=weight, bias_attr=bias
            )
            rnn.update_memory(state, after)
            rnn.step_output(after)
        last = layers.reshape(layers.slice(rnn(), [0], [-1], [2**31 - 1]), [-1, 2])
        loss = layers.mean(last)
        fluid.optimizer.SGD(1.0).minimize(loss)
    return main, startup, last, loss


def run(fluid, maxlen, places):
    """Return the states and losses of a step, and what it changed of the weight."""
    main, startup, last, loss = build(fluid, maxlen)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        program = main
        if places > 1:
            program = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, places=fluid.cpu_places(places)
            )
        rows = (np.arange(16).reshape(8, 2) % 5).astype("float32") / 5
        feed = {"x": fluid.create_lod_tensor(rows, [LENGTHS], fluid.CPUPlace())}
        states, losses = exe.run(program, feed=feed, fetch_list=[last, loss])
        weight = np.array(scope.find_var("w").get_tensor())
        return [np.array(array).tolist() for array in (states, losses, 0.5 - weight)]


def main():
    os.environ["CPU_NUM"] = "2"
    import paddle.fluid as fluid

    record = {
        "maxlen %s, %d places" % (maxlen, places): run(fluid, maxlen, places)
        for maxlen in MAXLENS
        for places in (1, 2)
    }
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "padded_steps.json"), "w") as stream:
        json.dump(record, stream)
        stream.write("\n")


if __name__ == "__main__":
    main()
