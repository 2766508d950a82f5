"""A pointer into a passage and a language model, as programs of Paddle 1.8 write them, and their losses in Paddle.

``python tests/reference/pointed_nets.py`` writes ``pointed_nets.json`` where Paddle 1.8.5 is installed.
"""

import zlib
from pathlib import Path

import numpy as np

STEPS, WORDS, WIDTH = 20, 20, 4


def initial(name, shape):
    """Return the value that a parameter begins with."""
    draw = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return draw.uniform(-0.4, 0.4, shape).astype("float32")


def sequences(fluid, array, lengths):
    return fluid.create_lod_tensor(array, [lengths], fluid.CPUPlace())


def attended(layers, query, keys, values, name):
    """Sum values by what a query finds in the keys of its own sequence."""
    both = layers.tanh(keys + layers.sequence_expand(x=query, y=keys))
    share = layers.sequence_softmax(layers.fc(both, 1, bias_attr=False, param_attr=name))
    return layers.sequence_pool(layers.elementwise_mul(values, layers.reshape(share, [-1]), axis=0), "sum")


def pointer(fluid):
    """Where an answer begins and ends: attention in a DynamicRNN whose steps read a question, then a passage."""
    layers = fluid.layers
    question, passage, turns = (
        layers.data(name, [1], dtype=kind, lod_level=1)
        for name, kind in (("question", "int64"), ("passage", "int64"), ("turns", "float32"))
    )
    first, last = (layers.data(name, [1], lod_level=1) for name in ("first", "last"))

    def encoded(words, name):
        rows = layers.embedding(words, [WORDS, 3], is_sparse=True, param_attr="table")
        ways = []
        for way in (False, True):
            both = {"param_attr": "%s_w%d" % (name, way), "bias_attr": "%s_b%d" % (name, way)}
            gates = layers.fc(rows, 4 * WIDTH, bias_attr=False, param_attr="%s_in%d" % (name, way))
            ways.append(layers.dynamic_lstm(gates, 4 * WIDTH, is_reverse=way, use_peepholes=False, **both)[0])
        return layers.concat(ways, axis=1)

    asked, read = encoded(question, "question"), encoded(passage, "passage")
    keys = layers.fc(read, WIDTH, bias_attr=False, param_attr="keys")
    boot = layers.fc(layers.sequence_pool(asked, "last"), WIDTH, act="tanh", param_attr="boot", bias_attr="boot_b")
    rnn = layers.DynamicRNN()
    with rnn.block():
        rnn.step_input(turns)
        before = rnn.memory(init=boot, need_reorder=True)
        all_rows, all_keys = rnn.static_input(read), rnn.static_input(keys)
        query = layers.fc(before, WIDTH, bias_attr=False, param_attr="query")
        context = attended(layers, query, all_keys, all_rows, "weigh")
        gates = layers.fc([context, before], 3 * WIDTH, param_attr=["of_context", "of_before"], bias_attr=False)
        state, _, _ = layers.gru_unit(gates, before, 3 * WIDTH, param_attr="unit", bias_attr="unit_b")
        rnn.update_memory(before, state)
        rnn.output(state)
    states, losses = rnn(), []
    for pool, label in (("first", first), ("last", last)):
        query = layers.fc(layers.sequence_pool(states, pool), WIDTH, bias_attr=False, param_attr="point")
        both = layers.tanh(keys + layers.sequence_expand(x=query, y=keys))
        share = layers.sequence_softmax(layers.fc(both, 1, bias_attr=False, param_attr="score"))
        losses.append(layers.reduce_sum(layers.elementwise_mul(layers.log(share), label)) * -1.0)
    loss = losses[0] + losses[1]
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))
    fluid.optimizer.Adam(0.02, regularization=fluid.regularizer.L2Decay(1e-3)).minimize(loss)

    def feed(draw, step):
        asks, reads = ([int(n) for n in draw.randint(2, high, 3)] for high in (5, 9))
        marks = []
        for _ in range(2):
            rows = [np.eye(n, dtype="float32")[[draw.randint(n)]].T for n in reads]
            marks.append(sequences(fluid, np.concatenate(rows), reads))
        return {
            "question": sequences(fluid, draw.randint(0, WORDS, (sum(asks), 1)).astype("int64"), asks),
            "passage": sequences(fluid, draw.randint(0, WORDS, (sum(reads), 1)).astype("int64"), reads),
            "turns": sequences(fluid, np.zeros((6, 1), "float32"), [2, 2, 2]),
            "first": marks[0],
            "last": marks[1],
        }

    return loss, feed


def language_model(fluid):
    """Two layers of an LSTM in a StaticRNN; the last state is assigned to the first, which is fed once."""
    layers, batch, steps, depth = fluid.layers, 4, 5, 2
    words = fluid.data("words", [batch, steps, 1], "int64")
    following = fluid.data("following", [batch * steps, 1], "int64")
    begins = [fluid.data(name, [depth, batch, WIDTH]) for name in ("hidden", "cell")]
    for begin in begins:
        begin.persistable = True
    rows = layers.reshape(layers.embedding(words, [WORDS, WIDTH], param_attr="table"), [-1, steps, WIDTH])
    rows = layers.transpose(rows, [1, 0, 2])
    states = [
        [layers.reshape(layers.slice(begin, [0], [k], [k + 1]), [-1, WIDTH]) for begin in begins]
        for k in range(depth)
    ]
    rnn = layers.StaticRNN()
    with rnn.step():
        row = rnn.step_input(rows)
        for k, (hidden, cell) in enumerate(states):
            h, c = rnn.memory(init=hidden), rnn.memory(init=cell)
            attrs = {"param_attr": "lstm_w%d" % k, "bias_attr": "lstm_b%d" % k}
            i, j, f, o = layers.split(layers.fc(layers.concat([row, h], 1), 4 * WIDTH, **attrs), 4, dim=1)
            new_cell = c * layers.sigmoid(f) + layers.sigmoid(i) * layers.tanh(j)
            row = layers.tanh(new_cell) * layers.sigmoid(o)
            rnn.update_memory(h, row)
            rnn.update_memory(c, new_cell)
            rnn.step_output(row)
            rnn.step_output(new_cell)
        rnn.step_output(row)
    results = rnn()
    for begin, own in zip(begins, (results[0:-1:2], results[1:-1:2])):
        last = layers.concat([layers.slice(part, [0], [steps - 1], [steps]) for part in own], 0)
        last.stop_gradient = True
        layers.assign(last, begin)
    scores = layers.fc(layers.transpose(results[-1], [1, 0, 2]), WORDS, 2, param_attr="out_w", bias_attr="out_b")
    losses = layers.softmax_with_cross_entropy(layers.reshape(scores, [-1, WORDS]), following)
    loss = layers.reduce_sum(layers.reduce_mean(layers.reshape(losses, [-1, steps]), dim=[0]))
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(5.0))
    rate = layers.create_global_var([1], 1.0, "float32", persistable=True, name="rate")
    fluid.optimizer.SGD(rate).minimize(loss)

    def feed(draw, step):
        text = draw.randint(0, WORDS, (batch, steps + 1)).astype("int64")
        fed = {"words": text[:, :-1, None], "following": text[:, 1:].reshape(-1, 1)}
        fed["rate"] = np.array([0.9**step], "float32")
        if step == 0:
            fed.update(dict.fromkeys(("hidden", "cell"), np.zeros((depth, batch, WIDTH), "float32")))
        return fed

    return loss, feed


NETS = {"pointer": pointer, "language_model": language_model}


def run(fluid, name, compiled=lambda main, loss: main):
    """Return the losses of all steps."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, feed = NETS[name](fluid)
    exe, draw = fluid.Executor(fluid.CPUPlace()), np.random.RandomState(0)
    with fluid.scope_guard(scope):
        exe.run(startup)
        for parameter in main.all_parameters():
            tensor = scope.find_var(parameter.name).get_tensor()
            tensor.set(initial(parameter.name, parameter.shape), fluid.CPUPlace())
        program = compiled(main, loss)
        return [float(exe.run(program, feed(draw, step), [loss])[0][0]) for step in range(STEPS)]


if __name__ == "__main__":
    import compact_json
    from paddle import fluid

    record = {name: run(fluid, name) for name in sorted(NETS)}
    compact_json.write(str(Path(__file__).with_suffix(".json")), record, 1)
