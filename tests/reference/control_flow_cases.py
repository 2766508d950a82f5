"""Programs with branches and recurrent blocks that Paddle 1.8.5 and Rowlock build and run alike; for Python 3.7, too.

Run with a Python 3.7 that has paddlepaddle==1.8.5 to make control_flow.json:  python control_flow_cases.py
{name: {"blocks": [[parent, forward block, [[type, inputs, outputs, attributes] of each op]] of each block],
        "steps": [values of a step]}}
and of nets that are trained, from values that ``initial`` draws:  {"trained": {name: [loss of a step]}}
"""

import os
import sys

import numpy as np

STEPS = 3
ATTRIBUTES = ("is_scalar_condition", "has_states", "states", "ex_states", "reverse")


class Nets:
    """Each method builds a net and returns what is fetched."""

    def __init__(self, fluid):
        self.fluid = fluid
        self.layers = fluid.layers

    def data(self, name, shape):
        x = self.fluid.data(name, shape)
        x.stop_gradient = False
        return x

    def attr(self, name, value):
        start = self.fluid.initializer.ConstantInitializer(value)
        return self.fluid.ParamAttr(name=name, initializer=start)

    def weight(self, name, shape, value=0.5):
        return self.layers.create_parameter(shape, "float32", name=name, attr=self.attr(name, value))

    def train(self, loss):
        self.fluid.optimizer.SGD(0.1).minimize(loss)

    def below(self, x, limit):
        total = self.layers.reduce_sum(x)
        return self.layers.less_than(total, self.layers.fill_constant([1], "float32", limit))

    def square_or_double(self):
        """Cases E and E'."""
        layers = self.layers
        x = self.data("x", [2, 3])
        p = layers.mul(x, self.weight("w", [3, 1]))
        out = layers.cond(self.below(x, 1.0), lambda: p * 2.0, lambda: p * p)
        loss = layers.mean(out)
        self.train(loss)
        return [loss, "w@GRAD", "x@GRAD"]

    def parameters_inside(self):
        layers = self.layers
        x = self.data("x", [2, 3])

        def left():
            h = layers.fc(x, 4, act="tanh", param_attr=self.attr("a", 0.2), bias_attr=self.attr("c", 0.1))
            return h, [layers.reduce_sum(h)]

        def right():
            h = layers.fc(x, 4, param_attr=self.attr("b", 0.3), bias_attr=False)
            return h, [layers.reduce_mean(h)]

        out, (number,) = layers.cond(self.below(x, 1.0), left, right)
        loss = layers.mean(out) + layers.mean(number)
        self.train(loss)
        return [loss, "a@GRAD", "b@GRAD", "c@GRAD", "x@GRAD", "a", "b", "c"]

    def nested(self):
        layers = self.layers
        x = self.data("x", [2, 3])
        w = self.weight("w", [3, 3])
        p = layers.mul(x, w)

        def inner():
            return layers.cond(self.below(x, 0.5), lambda: p * 3.0, lambda: layers.tanh(p) + x)

        out = layers.cond(self.below(x, 1.0), inner, lambda: p * p)
        loss = layers.mean(out)
        self.train(loss)
        return [loss, "w@GRAD", "x@GRAD"]

    def assigned(self):
        """A branch without a result, which writes a variable around it."""
        layers = self.layers
        x = self.data("x", [2, 3])
        p = layers.mul(x, self.weight("w", [3, 1]))
        count = layers.create_global_var([1], 0.0, "float32", persistable=True, name="count")

        def add():
            layers.assign(count + 1.0, count)

        layers.cond(self.below(x, 1.0), add, None)
        loss = layers.mean(p)
        self.train(loss)
        return [loss, "count", "w@GRAD"]

    def cases_in_turn(self):
        layers = self.layers
        x = self.data("x", [2, 3])
        p = layers.mul(x, self.weight("w", [3, 1]))
        out = layers.case(
            [(self.below(x, 0.5), lambda: p * 2.0), (self.below(x, 1.0), lambda: p * 3.0)],
            lambda: p * p,
        )
        loss = layers.mean(out)
        self.train(loss)
        return [loss, "w@GRAD"]

    def switched(self):
        layers = self.layers
        x = self.data("x", [2, 3])
        p = layers.mul(x, self.weight("w", [3, 1]))
        index = layers.cast(layers.reduce_sum(x), "int32")
        out = layers.switch_case(index, {1: lambda: p * 2.0, 2: lambda: p * p}, lambda: p * 5.0)
        loss = layers.mean(out)
        self.train(loss)
        return [loss, "w@GRAD"]

    def rate(self):
        """Switch, as schedules use it."""
        layers = self.layers
        x = self.data("x", [2, 3])
        total = layers.reduce_sum(x)
        rate = layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
        half, one = (layers.fill_constant([1], "float32", v) for v in (0.5, 1.0))
        with layers.Switch() as switch:
            with switch.case(layers.less_than(total, half)):
                layers.assign(half * 0.2, rate)
            with switch.case(layers.less_than(total, one)):
                layers.assign(half * 0.4, rate)
            with switch.default():
                layers.assign(one, rate)
        loss = layers.mean(layers.mul(x, self.weight("w", [3, 1])))
        self.fluid.optimizer.SGD(rate).minimize(loss)
        return [loss, "rate", "w"]

    def steps(self):
        """Case C."""
        layers = self.layers
        x = self.data("sequence", [3, 2, 3])
        w = self.weight("w", [3, 3])
        rnn = layers.StaticRNN()
        with rnn.step():
            now = rnn.step_input(x)
            h = rnn.memory(shape=[-1, 3], batch_ref=x)
            new = layers.elementwise_add(layers.mul(h, w), now)
            rnn.update_memory(h, new)
            rnn.step_output(new)
        out = rnn()
        loss = layers.reduce_sum(out)
        self.train(loss)
        return [loss, out, "w@GRAD", "sequence@GRAD"]

    def two_memories(self):
        layers = self.layers
        x = self.data("sequence", [3, 2, 3])
        boot = layers.fc(layers.slice(x, [0], [0], [1]), 3, num_flatten_dims=2,
                         param_attr=self.attr("boot", 0.1), bias_attr=False)
        boot = layers.reshape(boot, [2, 3])
        rnn = layers.StaticRNN()
        with rnn.step():
            now = rnn.step_input(x)
            h, c = rnn.memory(init=boot), rnn.memory(shape=[-1, 3], batch_ref=x, init_value=0.5)
            gate = layers.fc([now, h], 3, act="sigmoid",
                             param_attr=[self.attr("u", 0.2), self.attr("v", 0.3)],
                             bias_attr=self.attr("b", 0.05))
            new_c = gate * c + (1.0 - gate) * now
            new_h = layers.tanh(new_c)
            rnn.update_memory(h, new_h)
            rnn.update_memory(c, new_c)
            rnn.output(new_h, gate)
        out, gates = rnn()
        loss = layers.mean(out) + layers.mean(gates * gates)
        self.train(loss)
        return [loss, out, gates, "u@GRAD", "v@GRAD", "b@GRAD", "boot@GRAD", "sequence@GRAD"]

    def branch_in_a_step(self):
        layers = self.layers
        x = self.data("sequence", [3, 2, 3])
        w = self.weight("w", [3, 3])
        rnn = layers.StaticRNN()
        with rnn.step():
            now = rnn.step_input(x)
            h = rnn.memory(shape=[-1, 3], batch_ref=x)
            p = layers.mul(h, w)
            new = layers.cond(self.below(now, 4.0), lambda: p + now, lambda: p * now)
            rnn.update_memory(h, new)
            rnn.step_output(new)
        out = rnn()
        loss = layers.reduce_sum(out)
        self.train(loss)
        return [loss, out, "w@GRAD", "sequence@GRAD"]

    def arrays(self):
        """Case A: h = h w three times, each written behind the one before."""
        layers = self.layers
        x = self.data("x", [2, 3])
        w = self.weight("w", [3, 3])
        i = layers.fill_constant([1], "int64", 0)
        limit = layers.fill_constant([1], "int64", 3)
        i.stop_gradient = limit.stop_gradient = True
        states = layers.array_write(x, i)
        going = layers.less_than(i, limit)
        loop = layers.While(going)
        with loop.block():
            h = layers.array_read(states, i)
            new = layers.mul(h, w)
            layers.increment(i, in_place=True)
            layers.array_write(new, i, array=states)
            layers.less_than(i, limit, cond=going)
        last = layers.array_read(states, i)
        loss = layers.reduce_sum(last)
        self.train(loss)
        return [loss, last, "w@GRAD", "x@GRAD"]

    def branch_in_a_loop(self):
        layers = self.layers
        x = self.data("x", [2, 3])
        w = self.weight("w", [3, 3])
        i = layers.fill_constant([1], "int64", 0)
        limit = layers.fill_constant([1], "int64", 2)
        states = layers.create_array("float32")
        layers.array_write(x, i, states)
        going = layers.less_than(i, limit)
        loop = layers.While(going)
        with loop.block():
            h = layers.array_read(states, i)
            new = layers.cond(self.below(h, 1.5), lambda: layers.mul(h, w), lambda: h + layers.reduce_mean(w, dim=0))
            layers.increment(i, in_place=True)
            layers.array_write(new, i, array=states)
            layers.less_than(i, limit, cond=going)
        out, sizes = layers.tensor_array_to_tensor(states, axis=0)
        loss = layers.reduce_sum(layers.array_read(states, i))
        self.train(loss)
        return [loss, out, sizes, layers.array_length(states), "w@GRAD", "x@GRAD"]

    def counted(self):
        """A loop without gradients."""
        layers = self.layers
        x = self.data("x", [2, 3])
        i = layers.fill_constant([1], "int64", 0)
        limit = layers.fill_constant([1], "int64", 4)

        def test(i, s):
            return layers.less_than(i, limit)

        def body(i, s):
            return [layers.increment(i), s + layers.reduce_sum(x)]

        i, s = layers.while_loop(test, body, [i, layers.fill_constant([1], "float32", 1.0)])
        return [i, s]

    def gru(self, lengths=False, reverse=False):
        """Case F."""
        layers = self.layers
        x = self.data("batch", [2, 3, 2])
        cell = layers.GRUCell(3, param_attr=self.unnamed(0.1), bias_attr=self.unnamed(0.05))
        many = self.fluid.data("lengths", [2], "int64") if lengths else None
        out, last = layers.rnn(cell, x, sequence_length=many, is_reverse=reverse)
        loss = layers.mean(out) + layers.reduce_sum(last)
        self.train(loss)
        return [loss, out, last, "batch@GRAD"]

    def unnamed(self, value):
        return self.fluid.ParamAttr(initializer=self.fluid.initializer.ConstantInitializer(value))

    def lstm(self, lengths=False, forget_bias=1.0):
        """Case G."""
        layers = self.layers
        x = self.data("batch", [2, 3, 2])
        cell = layers.LSTMCell(
            3, param_attr=self.unnamed(0.1), bias_attr=self.unnamed(0.05), forget_bias=forget_bias
        )
        many = self.fluid.data("lengths", [2], "int64") if lengths else None
        out, (h, c) = layers.rnn(cell, x, sequence_length=many)
        loss = layers.mean(out) + layers.reduce_sum(c)
        self.train(loss)
        return [loss, out, h, c, "batch@GRAD"]

    def basic(self, kind):
        x = self.data("batch", [2, 3, 2])
        many = self.fluid.data("lengths", [2], "int64")
        layer = getattr(self.fluid.contrib.layers, "basic_" + kind)
        starts = (None,) if kind == "gru" else (None, None)
        out, last = layer(
            x, *starts, hidden_size=3, num_layers=2, sequence_length=many, bidirectional=True,
            param_attr=self.unnamed(0.1), bias_attr=self.unnamed(0.1)
        )[:2]  # fmt: skip
        loss = self.layers.mean(out) + self.layers.reduce_sum(last)
        self.train(loss)
        return [loss, out, last, "batch@GRAD"]

    def cases(self):
        return {
            "square_or_double": self.square_or_double,
            "parameters_inside": self.parameters_inside,
            "nested": self.nested,
            "assigned": self.assigned,
            "cases_in_turn": self.cases_in_turn,
            "switched": self.switched,
            "rate": self.rate,
            "steps": self.steps,
            "two_memories": self.two_memories,
            "branch_in_a_step": self.branch_in_a_step,
            "arrays": self.arrays,
            "branch_in_a_loop": self.branch_in_a_loop,
            "counted": self.counted,
            "gru": self.gru,
            "gru_lengths": lambda: self.gru(lengths=True),
            "gru_reverse": lambda: self.gru(reverse=True),
            "gru_reverse_lengths": lambda: self.gru(True, True),
            "lstm": self.lstm,
            "lstm_no_bias": lambda: self.lstm(forget_bias=0.0),
            "lstm_lengths": lambda: self.lstm(lengths=True),
            "basic_gru": lambda: self.basic("gru"),
            "basic_lstm": lambda: self.basic("lstm"),
        }


class Trained:
    """Nets as people write them; each method returns its loss."""

    def __init__(self, fluid):
        self.fluid = fluid
        self.layers = fluid.layers

    def language_model(self):
        """A StaticRNN over embedded words that predicts the next word of each step."""
        layers = self.layers
        words = self.fluid.data("words", [None, 7], "int64")
        following = self.fluid.data("following", [None, 7], "int64")
        embedded = layers.transpose(self.fluid.embedding(words, size=[11, 6]), [1, 0, 2])
        rnn = layers.StaticRNN()
        with rnn.step():
            word = rnn.step_input(embedded)
            before = rnn.memory(shape=[-1, 8], batch_ref=embedded)
            hidden = layers.fc([word, before], 8, act="tanh")
            rnn.update_memory(before, hidden)
            rnn.step_output(layers.dropout(hidden, 0.0))
        states = layers.transpose(rnn(), [1, 0, 2])
        scores = layers.fc(states, 11, num_flatten_dims=2)
        label = layers.unsqueeze(following, [2])
        loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
        clip = self.fluid.clip.GradientClipByGlobalNorm(0.5)
        self.fluid.optimizer.Adam(0.02, grad_clip=clip).minimize(loss)
        return loss

    def classifier(self):
        """A GRU over sequences of several lengths, both ways, whose last states are classified."""
        layers = self.layers
        x = self.fluid.data("x", [None, 5, 4])
        many = self.fluid.data("many", [None], "int64")
        label = self.fluid.data("label", [None, 1], "int64")
        lasts = [
            layers.rnn(layers.GRUCell(6, name=name), x, sequence_length=many, is_reverse=reverse)[1]
            for name, reverse in (("forth", False), ("back", True))
        ]
        scores = layers.fc(layers.concat(lasts, axis=1), 3, act="softmax")
        loss = layers.mean(layers.cross_entropy(scores, label))
        decay = self.fluid.regularizer.L2Decay(1e-3)
        self.fluid.optimizer.Momentum(0.3, 0.9, regularization=decay).minimize(loss)
        return loss

    def robust_loss(self):
        """A loss that is squared while it is small, with a rate that Switch chooses."""
        layers = self.layers
        x, label = self.fluid.data("x", [None, 5, 4]), self.fluid.data("label", [None, 1], "int64")
        y = layers.cast(label, "float32")
        guess = layers.fc(layers.fc(x, 5, act="tanh"), 1)
        error = layers.mean(layers.abs(guess - y))
        one = layers.fill_constant([1], "float32", 0.8)
        small = layers.less_than(error, one)
        loss = layers.cond(
            small, lambda: layers.mean(layers.square(guess - y)), lambda: 2.0 * error - 0.3
        )
        rate = layers.create_global_var([1], 0.05, "float32", persistable=True, name="rate")
        with layers.Switch() as switch:
            with switch.case(small):
                layers.assign(one * 0.2, rate)
            with switch.default():
                layers.assign(one * 0.05, rate)
        self.fluid.optimizer.SGD(rate).minimize(loss)
        return loss

    def nets(self):
        return {
            "language_model": self.language_model,
            "classifier": self.classifier,
            "robust_loss": self.robust_loss,
        }


def initial(name, shape):
    """A parameter's value to begin with."""
    seed = sum(map(ord, name)) % 1000
    return np.random.RandomState(seed).uniform(-0.4, 0.4, shape).astype("float32")


def batch(main, step):
    """A batch of 6 samples."""
    draw = np.random.RandomState(step)
    words = (np.cumsum(draw.randint(1, 4, (6, 8)), 1) % 11).astype("int64")
    values = {
        "words": words[:, :-1],
        "following": words[:, 1:],
        "x": draw.uniform(-1, 1, (6, 5, 4)).astype("float32"),
        "many": draw.randint(1, 6, 6).astype("int64"),
    }
    values["label"] = (values["x"][:, 0].sum(1, keepdims=True) > 0).astype("int64")
    return {name: value for name, value in values.items() if name in main.global_block().vars}


def start(fluid, name):
    """Return a net's program and loss, with its parameters set in the scope in force."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = Trained(fluid).nets()[name]()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    for p in main.all_parameters():
        tensor = fluid.global_scope().find_var(p.name).get_tensor()
        tensor.set(initial(p.name, p.shape), fluid.CPUPlace())
    return exe, main, loss


def train(fluid, name, compiled=lambda main, loss: main):
    """Return the losses of 20 steps."""
    with fluid.scope_guard(fluid.Scope()):
        exe, main, loss = start(fluid, name)
        program = compiled(main, loss)
        losses = [exe.run(program, feed=batch(main, k), fetch_list=[loss])[0] for k in range(20)]
    return [float(np.mean(each)) for each in losses]


def feeds(main):
    """One feed a step; sums of x are 0.21, 2.1 and 0.84."""
    block = main.global_block()
    by_step = []
    for scale in (0.01, 0.1, 0.04):
        values = {
            "x": (np.arange(1, 7) * scale).reshape(2, 3).astype("float32"),
            "sequence": (np.arange(18) * scale).reshape(3, 2, 3).astype("float32"),
            "batch": (np.arange(12) * scale).reshape(2, 3, 2).astype("float32"),
            "lengths": np.array([3, 1], "int64"),
        }
        by_step.append({name: value for name, value in values.items() if name in block.vars})
    return by_step


def build(fluid, name):
    """Return main and startup programs, and what to fetch."""
    nets, main, startup = Nets(fluid), fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetches = nets.cases()[name]()
    return main, startup, fetches


def described(program):
    """Blocks and ops of a program, as lists; names in slots whose order is a set's are sorted."""

    def slots(names, get, unordered):
        return {
            slot: sorted(get(slot)) if slot in unordered else list(get(slot))
            for slot in sorted(names) if get(slot)
        }  # fmt: skip

    def attributes(op):
        values = {name: op.attr(name) for name in ATTRIBUTES if op.has_attr(name)}
        if op.has_attr("sub_block"):
            block = op.attr("sub_block")
            values["sub_block"] = op._block_attr_id("sub_block") if hasattr(op, "_block_attr_id") else block.idx
        return values

    blocks = []
    for block in program.blocks:
        ops = []
        for op in block.ops:
            unordered = ("Input", "Out", "parameters", "X") if op.has_attr("sub_block") else ()
            unordered += tuple(slot + "@GRAD" for slot in unordered)
            ops.append([
                op.type,
                slots(op.input_names, op.input, unordered),
                slots(op.output_names, op.output, unordered),
                attributes(op),
            ])  # fmt: skip
        blocks.append([block.parent_idx, block.forward_block_idx, ops])
    return blocks


def run(fluid, name):
    """Return a case's entry."""
    main, startup, fetches = build(fluid, name)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        steps = [exe.run(main, feed=feed, fetch_list=fetches) for feed in feeds(main)]
    steps = [[np.asarray(v).tolist() for v in step] for step in steps]
    return {"blocks": described(main), "steps": steps}


if __name__ == "__main__":
    import compact_json
    from paddle import fluid

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "control_flow.json")
    record = {name: run(fluid, name) for name in Nets(fluid).cases()}
    record["trained"] = {name: train(fluid, name) for name in Trained(fluid).nets()}
    compact_json.write(path, record, 5)
