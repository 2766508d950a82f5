"""Programs as people wrote them for Paddle from 1.5 to 1.8, and what they compute there step after step.

``CPU_NUM=2 python tests/reference/older_programs.py`` writes ``older_programs.json`` where Paddle 1.8.5 is installed.
"""

import zlib
from pathlib import Path

import numpy as np

STEPS, ROWS, WORDS = 8, 6, 12


def initial(name, shape):
    """Return the value that a parameter begins with."""
    draw = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return draw.uniform(-0.4, 0.4, shape).astype("float32")


def lengths(draw, count=ROWS, limit=5):
    return [int(n) for n in draw.randint(1, limit, count)]


class Programs:
    """Each method builds a program, and returns its loss, what is fetched besides, and what draws a feed."""

    def __init__(self, fluid):
        self.fluid, self.layers, self.place = fluid, fluid.layers, fluid.CPUPlace()

    def attr(self, name, **settings):
        return self.fluid.ParamAttr(name=name, **settings)

    def words(self, draw, counts):
        rows = draw.randint(0, WORDS, (sum(counts), 1)).astype("int64")
        return self.fluid.create_lod_tensor(rows, [counts], self.place)

    def sentence(self, name):
        return self.fluid.data(name, [None, 1], "int64", lod_level=1)

    def attention_translator(self):
        """Steps of a decoder attend to all steps of an encoder of bidirectional recurrent units."""
        layers, size = self.layers, 6
        source, target, following = map(self.sentence, ("source", "target", "following"))
        embedded = layers.embedding(source, [WORDS, 5], is_sparse=True, param_attr="source_table")
        gates = [layers.fc(embedded, 3 * size, bias_attr=False) for _ in range(2)]
        forward = layers.dynamic_gru(gates[0], size)
        backward = layers.dynamic_gru(gates[1], size, is_reverse=True)
        encoded = layers.concat([forward, backward], axis=1)
        projected = layers.fc(encoded, size, bias_attr=False)
        first = layers.fc(
            layers.sequence_pool(backward, "first"), size, act="tanh", bias_attr=False
        )
        table = layers.embedding(target, [WORDS, 5], is_sparse=True, param_attr="target_table")
        rnn = layers.DynamicRNN()
        with rnn.block():
            word, vectors, keys = (
                rnn.step_input(table),
                rnn.static_input(encoded),
                rnn.static_input(projected),
            )
            state = rnn.memory(init=first, need_reorder=True)
            total = rnn.memory(shape=[size], value=0.1)
            own = layers.sequence_expand(x=layers.fc(state, size, bias_attr=False), y=keys)
            scores = layers.fc(layers.tanh(keys + own), 1, bias_attr=False)
            share = layers.sequence_softmax(scores)
            weighted = layers.elementwise_mul(vectors, layers.reshape(share, [-1]), axis=0)
            read = layers.fc([layers.sequence_pool(weighted, "sum"), word], 3 * size)
            step, _, _ = layers.gru_unit(read, state, 3 * size)
            rnn.update_memory(state, step)
            rnn.update_memory(total, layers.elementwise_add(total, layers.scale(step, 0.5)))
            rnn.output(layers.fc(step + total, WORDS, act="softmax"), share)
        out, shares = rnn()
        loss = layers.mean(layers.cross_entropy(out, following))
        decay = self.fluid.regularizer.L2DecayRegularizer(1e-4)
        self.fluid.optimizer.Adam(0.01, lazy_mode=True, regularization=decay).minimize(loss)

        def feed(draw):
            counts = lengths(draw)
            names = ("source", lengths(draw)), ("target", counts), ("following", counts)
            return {name: self.words(draw, own) for name, own in names}

        return loss, [out, shares, layers.sequence_last_step(out)], feed

    def greedy_decoder(self):
        """A loop that each step's feed says the rounds of; each round reads the word that the last one chose."""
        layers, size = self.layers, 5
        source, count = self.sentence("source"), self.fluid.data("count", [1], "int64")
        target = self.fluid.data("target", [None, 1], "int64")
        first = layers.sequence_pool(
            layers.embedding(source, [WORDS, size], param_attr="table"), "average"
        )
        i = layers.zeros([1], "int64")
        states = layers.array_write(first, i)
        words = layers.array_write(
            layers.fill_constant_batch_size_like(first, [-1, 1], "int64", 0), i
        )
        costs = layers.array_write(
            layers.fill_constant_batch_size_like(first, [-1, 1], "float32", 0.0), i
        )
        go_on = layers.less_than(i, count)
        loop = layers.While(go_on)
        with loop.block():
            state, word = layers.array_read(states, i), layers.array_read(words, i)
            word = layers.embedding(word, [WORDS, size], param_attr="table")
            state = layers.fc(
                [state, word], size, act="tanh", param_attr=["w1", "w2"], bias_attr="b"
            )
            scores = layers.fc(state, WORDS, param_attr="w3", bias_attr="b3")
            layers.increment(i, 1, in_place=True)
            layers.array_write(state, i, states)
            layers.array_write(layers.topk(scores, 1)[1], i, words)
            layers.array_write(layers.softmax_with_cross_entropy(scores, target), i, costs)
            layers.less_than(i, count, cond=go_on)
        every = layers.tensor_array_to_tensor(costs, axis=1)[0]
        chosen = layers.tensor_array_to_tensor(words, axis=1)[0]
        loss = layers.mean(every)
        self.fluid.optimizer.SGD(0.3).minimize(loss)

        def feed(draw):
            target = draw.randint(0, WORDS, (ROWS, 1)).astype("int64")
            source = self.words(draw, lengths(draw))
            return {"source": source, "target": target, "count": np.array([draw.randint(1, 5)])}

        return loss, [every, chosen], feed

    def critic_and_generator(self):
        """Two optimizers in one program; behind them the critic's weights are cut to a small range."""
        layers, fluid = self.layers, self.fluid
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])

        def net(x, name):
            h = layers.fc(x, 6, act="tanh", param_attr=name + "_w1", bias_attr=name + "_b1")
            return layers.fc(h, 1, param_attr=name + "_w2", bias_attr=name + "_b2")

        fake = net(x, "g")
        scores = [net(layers.concat([pair, y], 1), "d") for pair in (fake, y)]
        of_critic = layers.mean(scores[0]) - layers.mean(scores[1])
        of_critic = of_critic + 0.1 * layers.mean(layers.square(scores[0]))
        of_generator = layers.mean(layers.square_error_cost(fake, y)) - layers.mean(scores[0])
        parameters = fluid.default_main_program().all_parameters()
        by_net = {net: [p.name for p in parameters if p.name.startswith(net)] for net in "dg"}
        fluid.optimizer.RMSProp(0.01).minimize(of_critic, parameter_list=by_net["d"])
        adam = fluid.optimizer.Adam(0.01, beta1=0.5)
        adam.minimize(of_generator, parameter_list=by_net["g"])
        for parameter in parameters:
            if parameter.name in by_net["d"]:
                layers.assign(layers.clip(parameter, -0.2, 0.2), parameter)
        return of_critic, [of_generator], self.pairs

    def pairs(self, draw):
        return {
            "x": draw.rand(ROWS, 4).astype("float32"),
            "y": draw.rand(ROWS, 1).astype("float32"),
        }

    def click_machine(self):
        """A factorization machine beside a deep net; sparse tables with penalties of their own."""
        layers, penalties, fields = self.layers, self.fluid.regularizer, 3
        words, values = (
            self.fluid.data("words", [None, fields], "int64"),
            self.fluid.data("values", [None, fields]),
        )
        label = self.fluid.data("label", [None, 1])
        flat, values_3d = layers.reshape(words, [-1, 1]), layers.reshape(values, [-1, fields, 1])

        def rows(width, **settings):
            attr = self.attr("table%d" % width, **settings)
            out = layers.embedding(flat, [WORDS, width], is_sparse=True, param_attr=attr)
            return layers.reshape(out, [-1, fields, width]) * values_3d

        first = layers.reduce_sum(rows(1, regularizer=penalties.L1DecayRegularizer(1e-3)), 1)
        vectors = rows(4)
        of_sum = layers.square(layers.reduce_sum(vectors, 1))
        second = layers.reduce_sum(
            of_sum - layers.reduce_sum(layers.square(vectors), 1), 1, keep_dim=True
        )
        own = self.attr("w1", regularizer=penalties.L2Decay(1e-2))
        deep = layers.fc(layers.reshape(vectors, [-1, fields * 4]), 5, act="relu", param_attr=own)
        chance = layers.sigmoid(first + 0.5 * second + layers.fc(deep, 1))
        loss = layers.reduce_mean(layers.log_loss(chance, label))
        sgd = self.fluid.optimizer.SGD(0.3, regularization=penalties.L2Decay(1e-3))
        sgd.minimize(loss)

        def feed(draw):
            return {
                "words": draw.randint(0, WORDS, (ROWS, fields)).astype("int64"),
                "values": draw.rand(ROWS, fields).astype("float32"),
                "label": draw.randint(0, 2, (ROWS, 1)).astype("float32"),
            }

        return loss, [chance], feed

    def citations(self):
        """A graph convolution: features are gathered by edges and added up at their ends."""
        layers, fluid = self.layers, self.fluid
        nodes, edges = 7, 15
        h, norm = fluid.data("features", [None, 4]), fluid.data("norm", [None, 1])
        ends = [fluid.data(name, [None], "int32") for name in ("begin", "end", "labelled")]
        label = fluid.data("label", [None, 1], "int64")
        for name, size in (("c1", 6), ("c2", 3)):
            h = layers.fc(h, size, bias_attr=False, param_attr=name) * norm
            sent = layers.gather(h, ends[0])
            none = layers.fill_constant_batch_size_like(h, [-1, size], "float32", 0.0)
            none.stop_gradient = False
            bias = layers.create_parameter([size], "float32", name=name + "_b", is_bias=True)
            h = layers.scatter(none, ends[1], sent, overwrite=False) * norm
            h = layers.relu(layers.elementwise_add(h, bias))
        costs, chances = layers.softmax_with_cross_entropy(
            layers.gather(h, ends[2]), label, return_softmax=True
        )
        loss, right = layers.mean(costs), layers.accuracy(chances, label)
        decay = fluid.regularizer.L2DecayRegularizer(5e-3)
        fluid.optimizer.Adam(0.05, regularization=decay).minimize(loss)

        def feed(draw):
            pairs = draw.randint(0, nodes, (2, edges)).astype("int32")
            return {
                "features": draw.rand(nodes, 4).astype("float32"),
                "norm": draw.rand(nodes, 1).astype("float32"),
                "begin": pairs[0],
                "end": pairs[1],
                "labelled": draw.permutation(nodes)[:4].astype("int32"),
                "label": draw.randint(0, 3, (4, 1)).astype("int64"),
            }

        return loss, [chances, right], feed

    def limited_errors(self):
        """Gradients of a hidden layer are limited on their way back; slopes of given targets beside them."""
        layers, fluid = self.layers, self.fluid
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
        h = layers.fc(x, 5, param_attr="w1", bias_attr="b1")
        bent = layers.tanh(h)
        block = fluid.default_main_program().block(0)
        block.var(h.name)._set_error_clip(fluid.clip.ErrorClipByValue(max=0.01, min=-0.005))
        out = layers.fc(bent, 1, param_attr="w2", bias_attr="b2")
        loss = layers.mean(layers.square_error_cost(out, y))
        half = layers.fill_constant_batch_size_like(out, [-1, 1], "float32", 0.5)
        slopes = fluid.gradients([out], [block.var("w2"), bent], target_gradients=[half])
        fluid.optimizer.SGD(0.5).minimize(loss)
        return loss, slopes, self.pairs

    def classes_of_a_tree(self):
        """Classes in a tree of the user's own, and others among samples that the user drew."""
        layers, fluid, classes = self.layers, self.fluid, 8
        x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1], "int64")
        table, code, samples = (
            fluid.data(name, [None, 3], "int64") for name in ("table", "code", "samples")
        )
        chances = fluid.data("chances", [None, 3])
        h = layers.fc(x, 5, act="tanh", param_attr="w", bias_attr="b")
        costs = layers.hsigmoid(
            h, label, classes, "tree_w", "tree_b", None, table, code, True, is_sparse=True
        )
        sampled = layers.sampled_softmax_with_cross_entropy(
            layers.fc(h, classes, param_attr="w2", bias_attr="b2"), label, num_samples=2,
            use_customized_samples=True, customized_samples=samples, customized_probabilities=chances,
        )  # fmt: skip
        loss = layers.mean(costs) + layers.mean(sampled)
        fluid.optimizer.Adagrad(0.1).minimize(loss)

        def feed(draw):
            label = draw.randint(0, classes, (ROWS, 1))
            table, code = draw.randint(0, classes - 1, (ROWS, 3)), draw.randint(0, 2, (ROWS, 3))
            table[::2, 2] = code[::2, 2] = -1
            samples = np.concatenate([label, draw.randint(0, classes, (ROWS, 2))], 1)
            return {
                "x": draw.rand(ROWS, 4).astype("float32"),
                "chances": draw.uniform(0.1, 0.6, (ROWS, 3)).astype("float32"),
                "label": label,
                "table": table,
                "code": code,
                "samples": samples,
            }

        return loss, [costs, sampled], feed


# Feeds that places cannot share; a clip that Paddle cannot compile for several places.
ALONE = ("greedy_decoder", "citations", "limited_errors")
NAMES = [name for name, member in vars(Programs).items() if member.__doc__ and name[0] != "_"]


def run(fluid, name, places=1, place_list=None):
    """Train, and return for each step the mean square of each fetched value, and the lengths of its sequences."""
    main, startup = fluid.Program(), fluid.Program()
    guards = fluid.program_guard(main, startup), fluid.unique_name.guard()
    with guards[0], guards[1], fluid.scope_guard(fluid.Scope()):
        loss, others, feed = getattr(Programs(fluid), name)()
        exe, scope, draw = (
            fluid.Executor(fluid.CPUPlace()),
            fluid.global_scope(),
            np.random.RandomState(0),
        )
        exe.run(startup)
        for p in main.all_parameters():
            scope.find_var(p.name).get_tensor().set(initial(p.name, p.shape), fluid.CPUPlace())
        program = main
        if places > 1:
            program = fluid.CompiledProgram(main)
            program = program.with_data_parallel(loss_name=loss.name, places=place_list)
        fetches, steps = [loss, *others], []
        for _ in range(STEPS):
            values = exe.run(program, feed=feed(draw), fetch_list=fetches, return_numpy=False)
            squares = [np.mean(np.square(np.array(value)), dtype="float64") for value in values]
            sizes = [value.recursive_sequence_lengths() for value in values]
            steps.append([[float("%.7g" % square) for square in squares], sizes])
    return steps


def main():
    from paddle import fluid

    from compact_json import write

    record = {name: run(fluid, name) for name in NAMES}
    two = {name + " on 2": run(fluid, name, 2) for name in NAMES if name not in ALONE}
    write(Path(__file__).with_suffix(".json"), {**record, **two}, 2)


if __name__ == "__main__":
    main()
