"""Programs with Python functions that Paddle 1.8.5 and Rowlock run alike; read by Python 3.7, too.

Run with a Python 3.7 that has paddlepaddle==1.8.5 to make py_func.json:  python py_func_cases.py
{name: {"ops": [[inputs, outputs, skipped] of each py_func], "steps": [fetches of a step], "calls": n}}
"""

import os
import sys

import numpy as np

STEPS = 3


class Nets:
    """Each method builds a net and returns what is fetched; ``calls`` counts a function without results."""

    def __init__(self, fluid):
        self.fluid = fluid
        self.layers = fluid.layers
        self.calls = 0

    def new(self, name, shape, dtype="float32"):
        block = self.fluid.default_main_program().current_block()
        return block.create_var(name=name, dtype=dtype, shape=shape)

    def fc(self, x, size, name):
        constant = self.fluid.initializer.NumpyArrayInitializer
        weight = (
            np.linspace(-0.5, 0.6, x.shape[1] * size).reshape(x.shape[1], size).astype("float32")
        )
        attr = self.fluid.ParamAttr(name=name, initializer=constant(weight))
        return self.layers.fc(x, size, param_attr=attr, bias_attr=False)

    def train(self, loss):
        self.fluid.optimizer.SGD(0.1).minimize(loss)

    def tanh(self, skip):
        def forward(x):
            return np.tanh(x)

        def backward_all(x, y, dy):
            return np.array(dy) * (1 - np.square(np.array(y)))

        def backward(y, dy):
            return np.array(dy) * (1 - np.square(np.array(y)))

        x = self.fluid.data("x", [None, 4])
        hidden = self.fc(x, 3, "w")
        out = self.new("out", hidden.shape)
        if skip:
            self.layers.py_func(forward, hidden, out, backward, hidden)
        else:
            self.layers.py_func(forward, hidden, out, backward_all)
        loss = self.layers.mean(out)
        self.train(loss)
        return [loss, out, "w", "w@GRAD", hidden.name + "@GRAD"]

    def several(self):
        def forward(a, b, c):
            a, b, c = np.array(a), np.array(b), np.array(c)
            return a * b, (a + c).sum(1, keepdims=True), np.argmax(b, 1).reshape(-1, 1)

        def backward(a, b, c, d_product, d_total, d_index):
            a, b, d_product, d_total = (np.array(v) for v in (a, b, d_product, d_total))
            assert not np.array(d_index).any()
            return d_product * b + d_total, d_product * a, None

        x = self.fluid.data("x", [None, 4])
        a, b = self.fc(x, 3, "a"), self.fc(x, 3, "b")
        c = self.layers.scale(x, 2.0)
        c = self.layers.slice(c, axes=[1], starts=[0], ends=[3])
        c.stop_gradient = True
        outs = [
            self.new("product", [-1, 3]),
            self.new("total", [-1, 1]),
            self.new("index", [-1, 1], "int64"),
        ]
        self.layers.py_func(forward, [a, b, c], outs, backward, [outs[0], outs[1], outs[2]])
        loss = self.layers.mean(self.layers.elementwise_mul(outs[0], outs[1], axis=0))
        self.train(loss)
        return [loss, *outs, "a", "b", "a@GRAD", "b@GRAD"]

    def unused(self):
        """The second result leads nowhere: its gradient is zero."""

        def forward(x):
            return np.exp(x), np.array(x) * 2

        def backward(d_first, d_second):
            assert not np.array(d_second).any()
            return np.array(d_first) * 3

        x = self.fluid.data("x", [None, 4])
        hidden = self.fc(x, 2, "w")
        outs = [self.new("first", [-1, 2]), self.new("second", [-1, 2])]
        self.layers.py_func(forward, hidden, outs, backward, [hidden, *outs])
        loss = self.layers.mean(outs[0])
        self.train(loss)
        return [loss, outs[1], "w@GRAD"]

    def no_gradient(self):
        """Without a backward function nothing flows through."""
        x = self.fluid.data("x", [None, 4])
        hidden = self.fc(x, 2, "w")
        out = self.new("out", [-1, 2])
        self.layers.py_func(lambda v: np.array(v) + 1, hidden, out)
        loss = self.layers.mean(self.layers.elementwise_add(hidden, out))
        self.train(loss)
        return [loss, "w", "w@GRAD"]

    def no_result(self):
        """A function for what else it does."""

        def look(v):
            self.calls += int(np.array(v).shape == (6, 2)) + int(list(v.shape()) == [6, 2])

        x = self.fluid.data("x", [None, 4])
        hidden = self.fc(x, 2, "w")
        self.layers.py_func(look, hidden, None)
        return [self.layers.mean(hidden)]

    def no_operand(self):
        out = self.new("out", [2, 2])
        self.layers.py_func(lambda: np.full((2, 2), 7, "float32"), None, out)
        return [self.layers.mean(out)]

    def cases(self):
        return {
            "tanh": lambda: self.tanh(False),
            "tanh_skip": lambda: self.tanh(True),
            "several": self.several,
            "unused": self.unused,
            "no_gradient": self.no_gradient,
            "no_result": self.no_result,
            "no_operand": self.no_operand,
        }


def batches():
    rng = np.random.RandomState(5)
    return [rng.uniform(-1, 1, (6, 4)).astype("float32") for _ in range(STEPS)]


def build(fluid, name):
    """Return main and startup programs, what to fetch, and the nets."""
    nets, main, startup = Nets(fluid), fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetches = nets.cases()[name]()
    return main, startup, fetches, nets


def described(main):
    """What the ops that call functions read and write, and skip."""
    ops = [op for op in main.global_block().ops if op.type == "py_func"]
    return [
        [op.input("X") if op.input_names else [], op.output("Out") if op.output_names else [],
         sorted(op.attr("backward_skip_vars") if op.has_attr("backward_skip_vars") else [])]
        for op in ops
    ]  # fmt: skip


def feeds(main):
    return [{"x": b} if "x" in main.global_block().vars else {} for b in batches()]


def run(fluid, name):
    """Return a case's entry."""
    main, startup, fetches, nets = build(fluid, name)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        steps = [exe.run(main, feed=feed, fetch_list=fetches) for feed in feeds(main)]
    steps = [[np.asarray(v).tolist() for v in step] for step in steps]
    return {"ops": described(main), "steps": steps, "calls": nets.calls}


if __name__ == "__main__":
    import compact_json
    from paddle import fluid

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "py_func.json")
    compact_json.write(path, {name: run(fluid, name) for name in Nets(fluid).cases()}, 3)
