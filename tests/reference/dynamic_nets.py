"""DynamicRNN, IfElse and rank tables in Paddle 1.8.5 and Rowlock; read by Python 3.7, too.

Run with a Python 3.7 that has paddlepaddle==1.8.5 to make dynamic_nets.json:  python dynamic_nets.py
{name: {"blocks": as in control_flow.json, "steps": [[[elements, lod] of each fetch] of a step]}}
"""

import os
import sys

import numpy as np


def lod_tensor(fluid, array, lengths):
    return fluid.create_lod_tensor(array, lengths, fluid.CPUPlace())


def drawn(seed, *shape):
    return np.round(np.random.RandomState(seed).uniform(-1, 1, shape), 3).astype("float32")


class Nets:
    """Each method builds a net and returns what is fetched, and its feeds."""

    def __init__(self, fluid):
        self.fluid = fluid
        self.layers = fluid.layers
        self.control = fluid.layers.control_flow

    def data(self, name, *sizes, **settings):
        x = self.fluid.data(name, [None] + list(sizes), **settings)
        x.stop_gradient = False
        return x

    def attr(self, name, value):
        start = self.fluid.initializer.ConstantInitializer(value)
        return self.fluid.ParamAttr(name=name, initializer=start)

    def train(self, loss):
        self.fluid.optimizer.SGD(0.1).minimize(loss)

    def if_else(self):
        """Rows of both branches, of one of them, and of the other."""
        layers = self.layers
        x = self.data("x", 3)
        limit = layers.fill_constant([1], "float32", 0.5)
        branches = layers.IfElse(layers.less_than(layers.reduce_sum(x, 1, keep_dim=True), limit))
        with branches.true_block():
            rows = branches.input(x)
            h = layers.fc(rows, 2, param_attr=self.attr("a", 0.2), bias_attr=self.attr("c", 0.1))
            branches.output(h, layers.tanh(rows))
        with branches.false_block():
            rows = branches.input(x)
            h = layers.fc(rows, 2, param_attr=self.attr("b", 0.3), bias_attr=False)
            branches.output(h, layers.relu(rows))
        out, other = branches()
        loss = layers.mean(out) + layers.mean(other * other)
        self.train(loss)
        rows = np.linspace(-1, 1, 12).reshape(4, 3).astype("float32")
        feeds = [{"x": part} for part in (rows, rows[:2], rows[2:], rows[[3, 0, 2, 1]])]
        return [loss, out, other, "x@GRAD", "a@GRAD", "b@GRAD", "a", "b", "c"], feeds

    def if_else_computed(self):
        """The condition follows from what is trained; one branch reads two variables."""
        layers = self.layers
        x, y = self.data("x", 2), self.data("y", 2)
        score = layers.fc(x, 1, param_attr=self.attr("w", 0.7), bias_attr=False)
        zero = layers.fill_constant([1], "float32", 0.0)
        branches = layers.IfElse(layers.less_than(score, zero))
        with branches.true_block():
            branches.output(branches.input(x) * branches.input(y))
        with branches.false_block():
            branches.output(branches.input(score) + branches.input(x))
        (out,) = branches()
        loss = layers.mean(out)
        self.train(loss)
        feeds = [{"x": drawn(k, 5, 2), "y": drawn(k + 9, 5, 2)} for k in range(3)]
        return [loss, out, "x@GRAD", "y@GRAD", "w@GRAD", "w"], feeds

    def if_else_sequences(self):
        layers = self.layers
        x, m = self.data("x", 2, lod_level=1), self.data("m", 1)
        zero = layers.fill_constant([1], "float32", 0.0)
        branches = layers.IfElse(layers.less_than(m, zero))
        with branches.true_block():
            branches.output(layers.sequence_softmax(layers.reduce_sum(branches.input(x), 1, True)))
        with branches.false_block():
            branches.output(layers.reduce_sum(layers.square(branches.input(x)), 1, True))
        (out,) = branches()
        loss = layers.mean(layers.square(out))
        self.train_nothing(loss)
        feeds = [
            {
                "x": lod_tensor(self.fluid, drawn(k, 6, 2), [[1, 2, 3]]),
                "m": np.array(m, "float32").reshape(3, 1),
            }
            for k, m in enumerate(([1, -1, 1], [-1, -1, 1], [-1, 1, -1]))
        ]
        return [loss, out, "x@GRAD"], feeds

    def train_nothing(self, loss):
        self.fluid.backward.append_backward(loss)

    def ranks(self, lengths, level=0):
        """Rank tables, what follows their order, and batches that are split and merged."""
        layers, control = self.layers, self.control
        count, rows = len(lengths[level]), sum(lengths[-1])
        x, y = self.data("x", 2, lod_level=len(lengths)), self.data("y", 3)
        m = self.data("m", 1)
        table = control.lod_rank_table(x, level)
        i = layers.fill_constant([1], "int64", 1)
        zero = layers.fill_constant([1], "float32", 0.0)
        mask = layers.less_than(m, zero)
        dense = layers.reorder_lod_tensor_by_rank(y, table)
        parts = list(control.split_lod_tensor(x, mask)) if level == 0 else [x, x]
        results = [dense, control.shrink_memory(dense, i, table)]
        if level == 0:
            ordered = layers.reorder_lod_tensor_by_rank(x, table)
            merged = control.merge_lod_tensor(layers.tanh(parts[0]), parts[1], x, mask)
            results += [ordered, merged, control.shrink_memory(ordered, i, table)]
        loss = 0.0
        for k, each in enumerate(results):
            loss = loss + layers.reduce_sum(layers.square(each)) * (k + 1.0)
        self.train_nothing(loss)
        feed = {
            "x": lod_tensor(self.fluid, drawn(rows, rows, 2), lengths),
            "y": drawn(rows + 1, count, 3),
            "m": (np.arange(count) % 3 - 0.5).astype("float32").reshape(-1, 1),
        }
        fetches = [loss, control.max_sequence_len(table), *results, "y@GRAD"]
        return fetches + (["x@GRAD"] + parts if level == 0 else []), [feed]

    def steps(self, lengths):
        """Sequences taken apart and put together again; the first two of their steps."""
        layers, control = self.layers, self.control
        x = self.data("x", 2, lod_level=len(lengths))
        table = control.lod_rank_table(x)
        array = control.lod_tensor_to_array(x, table)
        numbers = [layers.fill_constant([1], "int64", k) for k in range(2)]
        entries = [layers.array_read(array, k) for k in numbers]
        again = control.array_to_lod_tensor(array, table)
        rows = sum(lengths[-1])
        feed = {"x": lod_tensor(self.fluid, drawn(rows, rows, 2), lengths)}
        return entries + [layers.array_length(array), again], [feed]

    def number(self, k):
        return self.layers.fill_constant([1], "int64", k)

    def two_depths(self):
        """Sequences, sequences of sequences, and a count that only the step tells."""
        x, y = self.data("x", 2, lod_level=1), self.data("y", 2, lod_level=2)
        feed = {
            "x": lod_tensor(self.fluid, drawn(4, 5, 2), [[2, 3]]),
            "y": lod_tensor(self.fluid, drawn(5, 5, 2), [[1, 2], [2, 1, 2]]),
        }
        return x, y, self.fluid.data("n", [1], "int64"), feed

    def rounds(self, n, step):
        """Call ``step`` with a counter that each round has counted up, as often as ``n`` tells."""
        layers = self.layers
        k = self.number(0)
        going = layers.less_than(k, n)
        loop = layers.While(going)
        with loop.block():
            step(k)
            layers.less_than(k, n, cond=going)

    def depths_read(self):
        """Entries of one and of two levels, read where constants say."""
        layers = self.layers
        x, y, _, feed = self.two_depths()
        array = layers.array_write(x, self.number(0))
        layers.array_write(y, self.number(1), array)
        first, second = (layers.array_read(array, self.number(k)) for k in (0, 1))
        pooled = layers.sequence_pool(second, "sum")
        loss = layers.reduce_sum(layers.square(pooled)) + layers.reduce_sum(first * first)
        self.train_nothing(loss)
        return [first, second, pooled, loss, "x@GRAD", "y@GRAD"], [feed]

    def depths_told(self):
        """Entries of one and of two levels: the step tells which is read."""
        layers = self.layers
        x, y, n, feed = self.two_depths()
        array = layers.array_write(x, self.number(0))
        layers.array_write(y, self.number(1), array)
        entry = layers.array_read(array, n)
        pooled = layers.sequence_pool(entry, "sum")
        feeds = [dict(feed, n=np.array([k])) for k in (0, 1, 0)]
        return [entry, pooled, layers.array_read(array, self.number(0))], feeds

    def depths_walked(self):
        """Each round pools the next entry of an array whose entries have one level and two."""
        layers = self.layers
        x, y, n, feed = self.two_depths()
        array = layers.array_write(x, self.number(0))
        layers.array_write(y, self.number(1), array)
        pooled = layers.create_array("float32")

        def step(k):
            entry = layers.array_read(array, k)
            layers.array_write(layers.sequence_pool(entry, "sum"), k, pooled)
            layers.increment(k)

        self.rounds(n, step)
        first, second = (layers.array_read(pooled, self.number(k)) for k in (0, 1))
        loss = layers.reduce_sum(layers.square(second)) + layers.reduce_sum(first)
        self.train_nothing(loss)
        return [first, second, loss, "x@GRAD", "y@GRAD"], [dict(feed, n=np.array([2]))]

    def depths_peeled(self):
        """Each round pools the entry before: two levels, one, none."""
        layers = self.layers
        _, y, n, feed = self.two_depths()
        array = layers.array_write(y, self.number(0))

        def step(k):
            pooled = layers.sequence_pool(layers.array_read(array, k), "sum")
            layers.increment(k)
            layers.array_write(pooled, k, array)

        self.rounds(n, step)
        entries = [layers.array_read(array, self.number(k)) for k in (0, 1, 2)]
        loss = layers.reduce_sum(layers.square(entries[2]))
        self.train_nothing(loss)
        return entries + [loss, "y@GRAD"], [{"y": feed["y"], "n": np.array([2])}]

    def depths_written(self, joined):
        """Rounds write two levels behind an entry of one; the entries are read, or ``joined``."""
        layers = self.layers
        x, y, n, feed = self.two_depths()
        array = layers.array_write(x, self.number(0))

        def step(k):
            layers.increment(k)
            layers.array_write(layers.scale(y, 3.0), k, array)

        self.rounds(n, step)
        feeds = [dict(feed, n=np.array([2]))]
        if joined:
            rows, sizes = layers.tensor_array_to_tensor(array, axis=0)
            loss = layers.reduce_sum(layers.square(rows))
            slopes = [layers.reshape(g, [1, -1]) for g in self.fluid.gradients([loss], [x, y])]
            return [rows, sizes, loss] + slopes, feeds
        first, second = (layers.array_read(array, self.number(k)) for k in (0, 1))
        pooled = layers.sequence_pool(second, "sum")
        loss = layers.reduce_sum(layers.square(pooled))
        return [first, second, pooled, loss] + self.fluid.gradients([loss], [y]), feeds

    def depths_apart(self, inner):
        """Steps of sequences, of which another replaces one; or of sequences within sequences."""
        layers, control = self.layers, self.control
        x, y, _, feed = self.two_depths()
        table = control.lod_rank_table(y, 1) if inner else control.lod_rank_table(x)
        array = control.lod_tensor_to_array(y if inner else x, table)
        if not inner:
            layers.array_write(y, self.number(1), array)
        entries = [layers.array_read(array, self.number(k)) for k in range(2 if inner else 3)]
        if inner:
            last = control.array_to_lod_tensor(array, table)
        else:
            last = layers.sequence_pool(entries[1], "sum")
        return entries + [last], [feed]

    def split_inside(self):
        """Sequences within sequences: the mask names inner ones."""
        layers, control = self.layers, self.control
        x, m = self.data("x", 2, lod_level=2), self.data("m", 1)
        mask = layers.less_than(m, layers.fill_constant([1], "float32", 0.0))
        yes, no = control.split_lod_tensor(x, mask, 1)
        out = control.merge_lod_tensor(layers.tanh(yes), layers.square(no), x, mask, 1)
        feed = {
            "x": lod_tensor(self.fluid, drawn(3, 6, 2), [[2, 1], [3, 1, 2]]),
            "m": np.array([[1.0], [-1.0], [1.0]], "float32"),
        }
        return [yes, no, out], [feed]

    def recurrent(self, train):
        layers = self.layers
        x, context = self.data("words", 3, lod_level=1), self.data("context", 2)
        net = layers.DynamicRNN()
        with net.block():
            word, around = net.step_input(x), net.static_input(context)
            h = net.memory(shape=[2], value=0.1)
            total = net.memory(init=context, need_reorder=True)
            weights = [self.attr(n, v) for n, v in (("p", 0.2), ("q", 0.3), ("r", -0.1))]
            new = layers.fc([word, h, around], 2, act="tanh", param_attr=weights, bias_attr=self.attr("s", 0.05))
            more = layers.elementwise_add(new, total)
            net.update_memory(h, new)
            net.update_memory(total, more)
            net.output(new, more)
        out, sums = net()
        loss = layers.mean(layers.square(out)) + layers.mean(sums)
        if train:
            self.train(loss)
        feeds = [
            {
                "words": lod_tensor(self.fluid, drawn(k, sum(lengths), 3), [lengths]),
                "context": drawn(k + 5, len(lengths), 2),
            }
            for k, lengths in enumerate(([2, 4, 1], [3, 3], [1, 1, 2, 5]))
        ]
        return [loss, out, sums] + (
            ["p@GRAD", "q@GRAD", "r@GRAD", "s@GRAD", "words@GRAD", "context@GRAD", "p"]
            if train
            else []
        ), feeds

    def attention(self):
        """Sequences as a static input, beside two step inputs."""
        layers = self.layers
        x, y = self.data("words", 2, lod_level=1), self.data("others", 2, lod_level=1)
        source = self.data("source", 2, lod_level=1)
        net = layers.DynamicRNN()
        with net.block():
            word, other = net.step_input(x), net.step_input(y)
            memory = net.static_input(source)
            h = net.memory(shape=[2])
            spread = layers.sequence_expand(layers.elementwise_add(word, h), memory)
            seen = layers.reduce_mean(layers.elementwise_mul(spread, memory))
            new = layers.tanh(layers.elementwise_add(other, seen))
            net.update_memory(h, new)
            net.output(new)
        feeds = [
            {
                "words": lod_tensor(self.fluid, drawn(k, sum(lengths), 2), [lengths]),
                "others": lod_tensor(self.fluid, drawn(k + 1, sum(lengths), 2), [lengths]),
                "source": lod_tensor(self.fluid, drawn(k + 2, 6, 2), [[1, 3, 2]]),
            }
            for k, lengths in enumerate(([2, 4, 1], [3, 1, 3]))
        ]
        return [net()], feeds

    def sentences(self):
        """Steps are sequences: of the rows of each, the sum and the states go on."""
        layers = self.layers
        x = self.data("texts", 2, lod_level=2)
        net = layers.DynamicRNN()
        with net.block():
            sentence = net.step_input(x)
            h = net.memory(shape=[2], value=0.2)
            seen = layers.sequence_pool(sentence, "sum")
            new = layers.fc([seen, h], 2, act="tanh", param_attr=[self.attr("u", 0.3), self.attr("v", 0.4)])
            net.update_memory(h, new)
            net.output(new)
        out = net()
        loss = layers.mean(layers.square(out))
        self.train(loss)
        feeds = [
            {"texts": lod_tensor(self.fluid, drawn(k, 6, 2), [[2, 1], [3, 1, 2]])} for k in range(2)
        ]
        return [loss, out, "texts@GRAD", "u@GRAD", "v@GRAD", "u"], feeds

    def dense(self, x, width, *seeds, **settings):
        xs = x if isinstance(x, list) else [x]
        attrs = [self.weights("dense", seed, x.shape[-1], width) for seed, x in zip(seeds, xs)]
        return self.layers.fc(xs, width, param_attr=attrs, bias_attr=False, **settings)

    def video(self, size):
        """What is seen in frames, the keys of attention to it, and the state in which a caption begins."""
        layers, dense = self.layers, self.dense
        seen = dense(self.data("frames", 2, lod_level=1), 4, 1, act="tanh")
        encoded = layers.concat(
            [
                layers.dynamic_gru(
                    dense(seen, 3 * size, 2 + back),
                    size,
                    is_reverse=bool(back),
                    param_attr=self.weights("gru", 4 + back, size, 3 * size),
                )
                for back in (0, 1)
            ],
            axis=1,
        )
        share = dense(encoded, 1, 6, act="sequence_softmax")
        video = layers.sequence_pool(layers.elementwise_mul(encoded, share, axis=0), "sum")
        return encoded, dense(encoded, size, 7), dense(video, size, 8, act="tanh")

    def caption_step(self, word, h, encoded, keys, words):
        layers, dense, size = self.layers, self.dense, h.shape[-1]
        query = layers.sequence_expand(dense(h, size, 10), keys)
        attention = layers.sequence_softmax(dense(keys + query, 1, 11))
        scaled = layers.elementwise_mul(encoded, layers.reshape(attention, [-1]), axis=0)
        gates = dense([word, layers.sequence_pool(scaled, "sum")], 3 * size, 12, 13)
        unit = self.weights("unit", 14, size, 3 * size)
        new = layers.gru_unit(gates, h, 3 * size, param_attr=unit)[0]
        return new, dense(new, words, 15, act="softmax")

    def captions(self):
        """Sentences about videos: padded to the longest of a batch, and read by a StaticRNN with attention.

        So does "Describing Videos by Exploiting Temporal Structure" (Yao et al., ICCV 2015) in Paddle's models.
        """
        layers, words = self.layers, 6
        word = self.fluid.data("word", [None, 1], "int64", lod_level=1)
        following = self.fluid.data("following", [None, 1], "int64", lod_level=1)
        encoded, keys, start = self.video(3)
        table = self.weights("words", 9, words, 4)
        embedded = layers.embedding(word, [words, 4], param_attr=table)
        zero = layers.assign(np.array([0.0], "float32"))
        padded, length = layers.sequence_pad(embedded, zero)
        padded = layers.transpose(padded, [1, 0, 2])
        rnn = layers.StaticRNN()
        with rnn.step():
            now, h = rnn.step_input(padded), rnn.memory(init=start)
            new, scores = self.caption_step(now, h, encoded, keys, words)
            rnn.update_memory(h, new)
            rnn.step_output(scores)
        scores = layers.transpose(rnn(), [1, 0, 2])
        scores = layers.sequence_unpad(scores, layers.reshape(length, [-1]))
        loss = layers.mean(layers.cross_entropy(scores, following))
        decay = self.fluid.regularizer.L2Decay(1e-3)
        self.fluid.optimizer.Adam(0.05, regularization=decay).minimize(loss)
        feeds = []
        for k in range(20):
            lengths, many = ([2, 4, 1, 5], [3, 1, 4, 2]) if k % 2 else ([1, 2, 2, 1], [1, 3, 2, 2])
            ids = np.random.RandomState(k).randint(0, words, (2, sum(lengths), 1)).astype("int64")
            feeds.append(
                {
                    "frames": lod_tensor(self.fluid, drawn(k, sum(many), 2), [many]),
                    "word": lod_tensor(self.fluid, ids[0], [lengths]),
                    "following": lod_tensor(self.fluid, ids[1], [lengths]),
                }
            )
        return [loss, "frames@GRAD", "dense_10@GRAD"], feeds

    def captions_found(self):
        """The best sentences, as long as all have not ended; what is looked at is that of each of them."""
        layers, words, ends = self.layers, 6, 1
        ids = self.fluid.data("ids", [None, 1], "int64", lod_level=2)
        scores = self.fluid.data("scores", [None, 1], lod_level=2)
        encoded, keys, start = self.video(3)
        i, most = layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 5)
        arrays = [layers.array_write(each, i) for each in (ids, scores, start)]
        going = layers.less_than(i, most)
        loop = layers.While(going)
        with loop.block():
            ids, scores, h = [layers.array_read(array, i) for array in arrays]
            table = self.weights("words", 9, words, 4)
            word = layers.embedding(ids, [words, 4], param_attr=table)
            new, chances = self.caption_step(word, h, encoded, keys, words)
            best, at = layers.topk(chances, 2)
            total = layers.elementwise_add(layers.log(best), layers.reshape(scores, [-1]), axis=0)
            total = layers.lod_reset(total, y=ids)
            ids, scores = layers.beam_search(ids, scores, at, total, 2, end_id=ends)
            layers.increment(i)
            for array, each in zip(arrays, (ids, scores, layers.sequence_expand(new, scores))):
                layers.array_write(each, i, array)
            for each in (encoded, keys):
                layers.assign(layers.sequence_expand(each, scores), each)
            some = layers.logical_not(layers.is_empty(ids))
            layers.logical_and(layers.less_than(i, most), some, out=going)
        sentences = layers.beam_search_decode(arrays[0], arrays[1], beam_size=2, end_id=ends)
        feeds = []
        for k, many in enumerate(([3, 1], [2, 4, 1])):
            one_each = [[1] * len(many)] * 2
            start = np.zeros((len(many), 1))
            feeds.append(
                {
                    "frames": lod_tensor(self.fluid, drawn(k, sum(many), 2), [many]),
                    "ids": lod_tensor(self.fluid, start.astype("int64"), one_each),
                    "scores": lod_tensor(self.fluid, start.astype("float32"), one_each),
                }
            )
        return list(sentences), feeds

    def weights(self, name, seed, *shape):
        start = self.fluid.initializer.NumpyArrayInitializer(drawn(seed, *shape))
        return self.fluid.ParamAttr(name="%s_%d" % (name, seed), initializer=start)

    def cases(self):
        return {
            "if_else": self.if_else,
            "if_else_computed": self.if_else_computed,
            "if_else_sequences": self.if_else_sequences,
            "ranks": lambda: self.ranks([[3, 1, 2]]),
            "ranks_equal": lambda: self.ranks([[1, 2, 1, 2]]),
            "ranks_nested": lambda: self.ranks([[2, 1], [3, 1, 2]]),
            "ranks_inner": lambda: self.ranks([[2, 1], [3, 1, 2]], 1),
            "steps": lambda: self.steps([[3, 1, 2]]),
            "steps_empty": lambda: self.steps([[2, 0, 4]]),
            "steps_nested": lambda: self.steps([[2, 1], [3, 1, 2]]),
            "split_inside": self.split_inside,
            "depths_read": self.depths_read,
            "depths_told": self.depths_told,
            "depths_walked": self.depths_walked,
            "depths_peeled": self.depths_peeled,
            "depths_written": lambda: self.depths_written(False),
            "depths_joined": lambda: self.depths_written(True),
            "depths_apart": lambda: self.depths_apart(False),
            "depths_inner": lambda: self.depths_apart(True),
            "recurrent": lambda: self.recurrent(False),
            "recurrent_trained": lambda: self.recurrent(True),
            "attention": self.attention,
            "sentences": self.sentences,
            "captions": self.captions,
            "captions_found": self.captions_found,
        }


def build(fluid, name):
    """Return main and startup programs, what to fetch, and what to feed."""
    nets, main, startup = Nets(fluid), fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetches, feeds = nets.cases()[name]()
    return main, startup, fetches, feeds


def run(fluid, name, compiled=lambda main: main):
    """Return elements and sequences of each fetch, by step."""
    main, startup, fetches, feeds = build(fluid, name)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        program = compiled(main)
        variables = main.global_block().vars
        feeds = [{name: value for name, value in feed.items() if name in variables} for feed in feeds]
        steps = [exe.run(program, feed=f, fetch_list=fetches, return_numpy=False) for f in feeds]
    return [[[np.array(v).tolist(), v.lod()] for v in step] for step in steps]


if __name__ == "__main__":
    import compact_json
    import control_flow_cases
    from paddle import fluid

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "dynamic_nets.json")
    record = {}
    for name in Nets(fluid).cases():
        print(name, flush=True)
        record[name] = {"steps": run(fluid, name)}
        # Temporaries of gru ops are numbered in another order, and ``gradients`` begins in another way.
        if "captions" not in name and name not in ("depths_written", "depths_joined"):
            record[name]["blocks"] = control_flow_cases.described(build(fluid, name)[0])
    compact_json.write(path, record, 5)
