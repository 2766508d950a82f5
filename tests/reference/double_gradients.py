"""Programs whose loss depends on gradients, and what they compute in Paddle: losses of some steps, and their ops.

``python tests/reference/double_gradients.py`` writes ``double_gradients.json`` where Paddle 1.8.5 is installed;
where it is 3.3.1, the part ``of_2x``: functions that have no double gradients in 1.8.5.
"""

import json
import zlib
from pathlib import Path

import numpy as np

STEPS = 4
ROWS = 4


def feeds(step):
    """Return the rows of a step: true and made up images, and weights between them."""
    draw = np.random.RandomState(step)
    images = draw.uniform(-1, 1, (2, ROWS, 1, 6, 6)).astype("float32")
    return {"real": images[0], "fake": images[1], "alpha": draw.uniform(0, 1, ROWS).astype("float32")}


def initial(name, shape):
    """Return the value that a parameter begins with."""
    draw = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return draw.uniform(-0.4, 0.6, shape).astype("float32")


def _data(fluid, name, shape):
    x = fluid.data(name, shape, "float32")
    x.stop_gradient = False
    return x


def penalty(fluid, critic, real, fake, alpha, no_grad=None):
    """Return the gradient penalty of Gulrajani et al., arXiv 1704.00028, at a point between two samples."""
    layers = fluid.layers
    between = layers.elementwise_mul(fake, alpha, axis=0) + layers.elementwise_mul(real, 1.0 - alpha, axis=0)
    score = critic(between)
    grad = fluid.gradients(score, between, no_grad_set=no_grad)[0]
    grad = layers.reshape(grad, [-1, int(np.prod(grad.shape[1:]))])
    norm = layers.sqrt(layers.reduce_sum(layers.square(grad), dim=1) + 1e-16)
    return layers.reduce_mean(layers.square(norm - 1.0))


def _images(fluid):
    return _data(fluid, "real", [None, 1, 6, 6]), _data(fluid, "fake", [None, 1, 6, 6]), _data(fluid, "alpha", [None])


def wgan_gp(fluid):
    """A critic of convolutions and leaky ReLUs."""
    layers = fluid.layers

    def critic(x):
        h = layers.conv2d(x, 3, 3, stride=2, padding=1, act="leaky_relu", param_attr="c1_w", bias_attr="c1_b")
        h = layers.conv2d(h, 4, 3, padding=1, param_attr="c2_w", bias_attr=False)
        h = layers.leaky_relu(h, 0.2)
        h = layers.reshape(h, [-1, 36])
        return layers.fc(h, 1, param_attr="f_w", bias_attr="f_b")

    real, fake, alpha = _images(fluid)
    cost = layers.reduce_mean(critic(fake)) - layers.reduce_mean(critic(real))
    gap = penalty(fluid, critic, real, fake, alpha)
    loss = cost + 10.0 * gap
    fluid.optimizer.Adam(0.01, beta1=0.5).minimize(loss)
    return loss, [cost, gap]


def wide(fluid):
    """Rows: elementwise ops of each kind with broadcasts, products of each kind, views, ELU and powers."""
    layers = fluid.layers

    def vector(name, size):
        return layers.create_parameter([size], "float32", name=name)

    def critic(x):
        h = layers.reshape(x, [0, 36])
        h = layers.fc(h, 6, act="elu", param_attr="w1", bias_attr="b1")
        h = layers.elementwise_div(h, layers.square(vector("v1", 6)) + 1.0)
        h = layers.elementwise_mul(h, vector("v2", 6)) - vector("v3", 6)
        h = layers.sqrt(layers.square(h) + 0.5)
        h = layers.expand(h, [1, 2])
        h = layers.slice(h, [1], [2], [11])
        h = layers.relu(layers.fc(h, 5, param_attr="w2", bias_attr=False))
        return layers.reduce_sum(layers.elementwise_div(layers.square(h), layers.sqrt(h + 2.0)), dim=[1], keep_dim=True)

    real, fake, alpha = _images(fluid)
    cost = layers.reduce_mean(critic(fake) - critic(real))
    gap = penalty(fluid, critic, real, fake, alpha, no_grad=["b1"])
    loss = cost + gap
    fluid.optimizer.SGD(0.02).minimize(loss)
    return loss, [cost, gap]


def of_one_function(fluid):
    """The gradient of a gradient, taken alone, and with target gradients."""
    layers = fluid.layers
    real, fake, alpha = _images(fluid)
    y = layers.square(real) * fake
    first = fluid.gradients([y], [real, fake], [fake])
    again = fluid.gradients(layers.square(first[0]) + first[1], [real, fake])
    loss = layers.reduce_mean(again[0] + again[1])
    return loss, again


NETS = {"wgan_gp": wgan_gp, "wide": wide, "of_one_function": of_one_function}


def of_2x(net, name):
    """A critic of one function, whose name says which: the loss, and the gradients of its weights.

    ``net`` has the functions as attributes, ``data`` and ``parameter`` (name and shape) and ``gradients``.
    """
    x = net.data("x", [-1, 4])
    h = net.matmul(x, net.parameter("w1", [4, 5]))
    scales = [net.parameter(key, [5]) for key in ("g", "b") if name in SCALED]
    h = {
        "pow": lambda: net.pow(h, 3.0),
        "log": lambda: net.log(net.square(h) + 1.0),
        "sqrt": lambda: net.sqrt(net.square(h) + 1.0),
        "rsqrt": lambda: net.rsqrt(net.square(h) + 1.0),
        "matmul": lambda: net.matmul(h, net.parameter("w2", [4, 5]), transpose_y=True),
        "batch_norm": lambda: net.square(net.batch_norm(h, *scales, fixed=False)),
        "batch_norm_fixed": lambda: net.square(net.batch_norm(h, *scales, fixed=True)),
        "layer_norm": lambda: net.layer_norm(h, *scales),
        "softmax": lambda: net.softmax(h) * scales[0],
    }.get(name, lambda: getattr(net, name)(h))()
    (grad,) = net.gradients(net.sum(net.square(h)), [x])
    loss = net.sum(net.square(grad))
    return loss, net.gradients(loss, [net.parameter("w1", [4, 5]), x, *scales[:1]])


OF_2X = (
    "tanh", "sigmoid", "log", "rsqrt", "matmul", "sin", "cos", "pow", "square", "sqrt", "abs", "relu", "leaky_relu",
    "elu", "softplus", "batch_norm", "batch_norm_fixed",
)  # fmt: skip
OURS = ("layer_norm", "softmax")  # of these Paddle has none
SCALED = ("batch_norm", "batch_norm_fixed", *OURS)


def inputs_of_2x():
    """Return x and the weights."""
    draw = np.random.RandomState(5)
    return {
        "x": draw.uniform(-1, 1, (3, 4)).astype("float32"),
        "w1": draw.uniform(0.1, 0.9, (4, 5)).astype("float32"),
        "w2": draw.uniform(-1, 1, (4, 5)).astype("float32"),
        "g": draw.uniform(0.5, 1.5, 5).astype("float32"),
        "b": draw.uniform(-1, 1, 5).astype("float32"),
        "m": draw.uniform(-1, 1, 5).astype("float32"),
        "s": draw.uniform(0.5, 1.5, 5).astype("float32"),
    }


def described(op):
    """Return an op as [type, [names read, slot by slot], [names written]]."""
    ends = [{slot: names(slot) for slot in sorted(slots)} for slots, names in (
        (op.input_names, op.input), (op.output_names, op.output))]  # fmt: skip
    return [op.type, *({slot: list(names) for slot, names in end.items() if names} for end in ends)]


def _record(fluid, net):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, others = net(fluid)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for p in main.all_parameters():
            scope.find_var(p.name).get_tensor().set(initial(p.name, p.shape), fluid.CPUPlace())
        steps = [exe.run(main, feed=feeds(step), fetch_list=[loss] + others) for step in range(STEPS)]
    return {
        "ops": [described(op) for op in main.global_block().ops],
        "steps": [[[float("%.7g" % x) for x in np.ravel(value)] for value in step] for step in steps],
    }


def _record_2x():
    import paddle

    paddle.enable_static()
    record = {}
    for name in OF_2X:
        main = paddle.static.Program()
        with paddle.static.program_guard(main, paddle.static.Program()):
            net = _Functions(paddle)
            loss, grads = of_2x(net, name)
        feed = {key: value for key, value in inputs_of_2x().items() if key in net.known}
        values = paddle.static.Executor(paddle.CPUPlace()).run(main, feed=feed, fetch_list=[loss, *grads])
        record[name] = [[float("%.7g" % x) for x in np.ravel(value)] for value in values]
    return record


class _Functions:
    """Paddle 2.x by the names that ``of_2x`` uses."""

    def __init__(self, paddle):
        self._paddle, self.known = paddle, {}

    def __getattr__(self, name):
        functional = self._paddle.nn.functional
        return getattr(self._paddle, name, None) or getattr(functional, name)

    def data(self, name, shape):
        if name not in self.known:
            self.known[name] = self._paddle.static.data(name, shape, "float32")
            self.known[name].stop_gradient = False
        return self.known[name]

    parameter = data

    def batch_norm(self, x, scale, shift, fixed):
        statistics = [self.parameter(key, [5]) for key in ("m", "s")]
        return self._paddle.nn.functional.batch_norm(x, *statistics, scale, shift, True, use_global_stats=fixed)

    def gradients(self, targets, inputs):
        return self._paddle.static.gradients(targets, inputs)


def main():
    from compact_json import write

    path = Path(__file__).with_suffix(".json")
    record = json.loads(path.read_text()) if path.exists() else {}
    try:
        from paddle import fluid
    except ImportError:  # gone in 2.x
        record["of_2x"] = _record_2x()
    else:
        record.update({name: _record(fluid, net) for name, net in NETS.items()})
    write(path, record, 3)


if __name__ == "__main__":
    main()
