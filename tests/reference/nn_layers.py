"""Layers of paddle.nn that Paddle 3.3.1 and Rowlock build and run alike, in static programs.

FLAGS_enable_pir_api=0 python nn_layers.py  (with paddlepaddle==3.3.1) writes nn_layers.json.

A line of ``CASES`` is an expression and what it is called with; a case is also looked at as repr(), as the names,
shapes and order of its state, and as the ops that initialise its parameters.
"""

import inspect
import json
import os
import warnings

import numpy as np

CASES = """
nn.ELU(0.5) : w | nn.GELU() : w | nn.GELU(True) : w | nn.GELU('tanh') : w | nn.Hardshrink(0.25) : w | nn.Hardsigmoid() : w
nn.Hardswish() : w | nn.Hardtanh(-0.5, max=0.75) : w | nn.LeakyReLU(0.2, name='leak') : w | nn.LogSigmoid() : w
nn.LogSoftmax(axis=0) : w | nn.Maxout(2) : im | nn.Maxout(groups=2, axis=-1) : im | nn.PReLU() : w | nn.PReLU(4, 0.5) : im
nn.ReLU() : w | nn.ReLU(name='r') : w | nn.ReLU6() : w | nn.SELU() : w | nn.Sigmoid() : w | nn.Softmax() : w | nn.Softmax(0) : w
nn.Softplus(2, 1.5) : w | nn.Softshrink() : w | nn.Softsign() : w | nn.Swish() : w | nn.Tanh() : w | nn.Tanhshrink() : w
nn.ThresholdedReLU(0.5, -1.0) : w
nn.BCELoss() : p, p2 | nn.BCEWithLogitsLoss(reduction='sum') : w, p | nn.CrossEntropyLoss() : w, k | nn.CrossEntropyLoss(soft_label=True) : w, p
nn.CrossEntropyLoss(reduction='none', axis=1) : w, k | nn.KLDivLoss('batchmean') : w, p | nn.KLDivLoss(log_target=True) : w, p
nn.L1Loss('none') : w, p | nn.MarginRankingLoss(0.5) : w, p, p2 | nn.MSELoss() : w, p | nn.NLLLoss(ignore_index=1) : w, k1 | nn.NLLLoss() : w, k
nn.SmoothL1Loss(delta=0.5) : w, p | nn.SmoothL1Loss('sum', is_huber=False) : w, p
nn.CosineEmbeddingLoss(0.2) : w, p, sg1 | nn.CosineEmbeddingLoss(reduction='none') : w, p, sg1 | nn.TripletMarginLoss() : w, p, p2
nn.TripletMarginLoss(0.5, 1.0, swap=True, reduction='sum') : w, p, p2 | nn.SoftMarginLoss('none') : w, sg | nn.MultiLabelSoftMarginLoss() : w, p2
nn.MultiMarginLoss() : w, k1 | nn.MultiMarginLoss(2, 0.5, reduction='none') : w, k1 | nn.PoissonNLLLoss() : w, p | nn.PoissonNLLLoss(False, True, reduction='sum') : p, e
nn.HingeEmbeddingLoss(0.5, 'none') : w, sg | nn.HSigmoidLoss(4, 3) : w, k | nn.HSigmoidLoss(4, 5, bias_attr=False, name='h') : w, k
nn.AvgPool1D(2) : seq | nn.AvgPool1D(3, 2, padding=1, exclusive=False) : seq | nn.AvgPool2D(2, stride=1) : im | nn.AvgPool2D(2, divisor_override=3) : im
nn.AvgPool2D(3, 2, 1, ceil_mode=True, exclusive=False) : im | nn.AvgPool1D(3, 2, ceil_mode=True, exclusive=False) : seq
nn.MaxPool1D(3, 1, 1) : seq | nn.MaxPool2D([2, 3], padding='SAME') : im | nn.MaxPool2D(3, 2, ceil_mode=True) : im | nn.MaxPool2D(2, data_format='NHWC') : im
nn.AdaptiveAvgPool1D(2) : seq | nn.AdaptiveAvgPool2D((3, None)) : im | nn.AdaptiveMaxPool1D(4) : seq | nn.AdaptiveMaxPool2D(3) : im
nn.Pad1D(1) : seq | nn.Pad1D([1, 2], value=0.5) : seq | nn.Pad2D([1, 0, 2, 1]) : im | nn.Pad2D(2, mode='reflect') : im
nn.Pad2D([1, 1, 0, 2], 'replicate', data_format='NHWC') : im | nn.Pad3D([1, 0, 2, 1, 0, 1], value=1.5, name='margin') : vol
nn.AlphaDropout(0.3).eval() : w | nn.Dropout().eval() : w | nn.Dropout(0.25, axis=0, mode='downscale_in_infer').eval() : w | nn.Dropout(0.0) : w
nn.Dropout2D(name='d').eval() : im | nn.Dropout3D(0.2, 'NDHWC').eval() : vol | nn.CosineSimilarity() : w, p | nn.CosineSimilarity(axis=0, eps=0.5) : w, p
nn.PairwiseDistance() : w, p | nn.PairwiseDistance(1.0, 0.5, True) : w, p | nn.PixelShuffle(2) : im | nn.PixelShuffle(2, 'NHWC', name='s') : im
nn.ZeroPad2D([1, 0, 2, 1]) : im | nn.ZeroPad2D(1, 'NHWC', name='z') : im | nn.Unflatten(1, [2, -1]) : w | nn.Softmax2D() : im
nn.Flatten() : im | nn.Flatten(0, 2) : im | nn.Identity(3, x=4) : w
nn.Linear(4, 3) : w | nn.Linear(4, 3, bias_attr=False, name='fc') : w | nn.Linear(4, 2, paddle.ParamAttr(name='mine', trainable=False)) : w
nn.Linear(4, 2, nn.initializer.Constant(0.5), nn.initializer.Normal(0.0, 2.0)) : w | nn.Linear(6, 5, nn.initializer.XavierNormal()) : seq
nn.Embedding(5, 3) : i | nn.Embedding(5, 3, padding_idx=-3, weight_attr=nn.initializer.Uniform(-2.0, 2.0), name='e') : i | nn.Embedding(5, 2, 1) : i
nn.Conv1D(4, 2, 3) : seq | nn.Conv1D(4, 4, 2, stride=2, padding=1, dilation=2, groups=2, bias=False) : seq
nn.Conv2D(4, 3, 3) : im | nn.Conv2D(4, 4, (3, 2), 2, [1, 2], groups=4) : im | nn.Conv2D(4, 6, 2, dilation=2, groups=2, padding='SAME', bias_attr=False) : im
nn.Conv2D(4, 2, 3, padding=1, padding_mode='reflect') : im | nn.Conv2D(4, 2, 1, data_format='NHWC', weight_attr=nn.initializer.KaimingUniform()) : im
nn.Conv3D(4, 2, [1, 2, 2]) : vol | nn.Conv3D(4, 4, 2, 1, 1, groups=2, bias_attr=False) : vol | nn.Conv1DTranspose(4, 2, 3, 2, 1, 1) : seq
nn.Conv2DTranspose(4, 3, 3, stride=2, padding=1, output_padding=1) : im | nn.Conv2DTranspose(4, 4, (3, 2), groups=4, data_format='NHWC', bias_attr=False) : im
nn.Conv3DTranspose(4, 2, 2, 2) : vol | nn.AvgPool3D(2, 1) : vol | nn.MaxPool3D([1, 2, 2]) : vol
nn.AdaptiveAvgPool3D(1) : vol | nn.AdaptiveMaxPool3D([1, 2, 2]) : vol
nn.BatchNorm(4) : im | nn.BatchNorm(4, act='relu', momentum=0.5, epsilon=0.0005) : im | nn.BatchNorm(4, is_test=True) : im | nn.BatchNorm(4, use_global_stats=True) : im
nn.BatchNorm1D(4) : w | nn.BatchNorm1D(4, 0.75) : seq | nn.BatchNorm1D(6, data_format='NLC') : seq | nn.BatchNorm2D(4) : im | nn.BatchNorm2D(4).eval() : im
nn.BatchNorm2D(4, 0.5, 0.001, data_format='NHWC', name='bn') : im | nn.BatchNorm2D(4, use_global_stats=True) : im | nn.BatchNorm3D(4) : vol
nn.LayerNorm(4) : w | nn.LayerNorm([4, 4], epsilon=0.001) : im | nn.LayerNorm(6, bias_attr=False) : seq | nn.LayerNorm(6, elementwise_affine=False) : seq
nn.GroupNorm(2, 4) : im | nn.GroupNorm(4, 4, 0.0005) : im | nn.GroupNorm(2, 4, bias_attr=False, data_format='NHWC') : im
nn.InstanceNorm1D(4) : seq | nn.InstanceNorm2D(4, 0.0005, weight_attr=False, bias_attr=False) : im | nn.InstanceNorm3D(4) : vol
nn.LocalResponseNorm(3, 0.5) : im | nn.LocalResponseNorm(2, 0.25, 0.5, 2.0, 'NHWC', name='r') : im | nn.LocalResponseNorm(5, alpha=1.0) : vol
nn.Bilinear(4, 4, 3) : w, p | nn.Bilinear(4, 4, 2, bias_attr=False, name='b') : w, p
nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)) : w | nn.Sequential(('a', nn.Linear(4, 4)), ('b', nn.Sequential(nn.Tanh(), nn.Linear(4, 1)))) : w
nn.MultiHeadAttention(6, 2) : seq | nn.MultiHeadAttention(6, 3, need_weights=True) : seq, seq2, seq2, mask | nn.MultiHeadAttention(6, 2, kdim=4, vdim=5, bias_attr=False) : seq, tall, wide
nn.TransformerEncoderLayer(6, 2, 8, 0.0) : seq | nn.TransformerEncoderLayer(6, 2, 8, activation='gelu', normalize_before=True).eval() : seq, mask
nn.TransformerEncoderLayer(6, 2, 8, 0.0, weight_attr=[paddle.ParamAttr(name='enc'), None], bias_attr=[False, None]) : seq
nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 3, 5, 0.0, layer_norm_eps=0.001), 2) : seq, add
nn.TransformerDecoderLayer(6, 2, 8, 0.0) : seq, seq2 | nn.TransformerDecoderLayer(6, 2, 8, 0.3, 'gelu', 0.1, 0.2, True).eval() : seq, seq2, add, mask
nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, 0.0), 2, nn.LayerNorm(6)) : seq, seq2
nn.Transformer(6, 2, 1, 2, 8, 0.0) : seq, seq2, add, None, mask | nn.Transformer(6, 2, 1, 1, 8, 0.0, bias_attr=[None, False], normalize_before=True) : seq, seq2
nn.SimpleRNNCell(4, 3) : w | nn.SimpleRNNCell(4, 4, 'relu', bias_hh_attr=False) : w, p | nn.GRUCell(4, 3) : w | nn.GRUCell(4, 4, weight_hh_attr=False, bias_ih_attr=False) : w, p
nn.LSTMCell(4, 3) : w | nn.LSTMCell(4, 3, bias_ih_attr=paddle.ParamAttr(name='shifts')) : w
nn.SimpleRNN(6, 3) : seq | nn.SimpleRNN(6, 3, 2, 'bidirectional', activation='relu') : seq, None, many | nn.GRU(6, 3) : seq, None, many
nn.GRU(6, 3, 2, time_major=True, dropout=0.0) : seq | nn.LSTM(6, 3, 2, 'bidirect') : seq, None, many | nn.LSTM(6, 3, time_major=True) : seq
"""

# What programs get wrong: the error is of the same built-in kind.
MISTAKES = """
nn.GroupNorm(2, 4, data_format='CN') | nn.InstanceNorm2D(4)(w) | nn.LocalResponseNorm(3)(w)
nn.SimpleRNN(4, 3, activation='wrong') | nn.GRU(4, 3, direction='wrong') | nn.BiRNN(nn.GRUCell(4, 3), nn.GRUCell(5, 3))
nn.Linear(2) | nn.GRUCell(4, 0) | nn.LSTMCell(4, 3, proj_size=3) | nn.SimpleRNNCell(4, 3, 'gelu') | nn.ReLU(1, 2) | nn.LeakyReLU(a=1) | nn.ReLU()(3) | nn.Embedding(0, 3) | nn.Embedding(5, 3, 5) | nn.Conv2D(3, 4, 3, groups=2)
nn.Conv2D(3, 4, 3, weight_attr=False) | nn.Conv2D(3, 4, 3, padding_mode='wrong') | nn.Conv2D(3, 4, 3, padding=[1, 1], padding_mode='reflect')
nn.Conv2D(3, 4, [1, 2, 3]) | nn.Conv3D(3, 4, [1, 2]) | nn.Conv2DTranspose(3, 4, 3, weight_attr=False) | nn.Dropout(2)(w) | nn.BatchNorm2D(4)(w) | nn.BatchNorm1D(4, data_format='CN')(w) | nn.BCELoss(reduction='x')
nn.L1Loss(reduction='x') | nn.MSELoss('x') | nn.NLLLoss(reduction=3) | nn.PixelShuffle(1.5) | nn.PixelShuffle(2, 'CHWN') | nn.MultiHeadAttention(8, 3)
nn.MultiHeadAttention(0, 3) | nn.TransformerEncoderLayer(8, 2, 0) | nn.TransformerEncoderLayer(8, 2, 8, activation='wrong') | nn.Sequential(3)
nn.LayerList([3]) | nn.ParameterList([3]) | nn.Sequential(nn.ReLU())[1] | nn.Layer()(w) | nn.Layer().train(3) | nn.Layer().add_sublayer('a', 3)
nn.Layer().add_parameter('a', 3) | nn.Layer().add_parameter('a.b', None) | nn.Layer().add_parameter('', None) | nn.Layer().add_parameter(3, None)
nn.Layer().register_buffer('b', 3) | nn.Layer().register_buffer('a.b', None) | nn.Layer().wrong | setattr(nn.Linear(2, 2), 'weight', 3)
setattr(nn.Sequential(nn.ReLU()), '0', 3) | nn.Linear(2, 2).add_parameter('bias', 3) | nn.Linear(2, 2).add_parameter('forward', None)
nn.Transformer(6, 2, 1, 1, 8, weight_attr=[None] * 4) | nn.TransformerDecoderLayer(6, 2, 8, weight_attr=[None] * 2) | nn.LayerDict(3) | nn.LayerDict([('a',)])
"""


def listed(text):
    return [one.strip() for line in text.strip().splitlines() for one in line.split(" | ")]


def arrays():
    """Return what is fed, by name."""
    rng = np.random.RandomState(11)

    def drawn(*shape):
        return np.round(rng.uniform(-2.0, 2.0, shape), 3).astype("float32")

    rows = np.exp(drawn(3, 4))
    return {
        "w": drawn(3, 4),
        "p": rows / rows.sum(1, keepdims=True),
        "p2": np.float32([[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0]]),
        "k": np.array([[2], [0], [1]], "int64"),
        "k1": np.array([2, 0, 1], "int64"),
        "i": np.array([[2, 0, 4], [1, 2, 3]], "int64"),
        "im": drawn(2, 4, 4, 4),
        "seq": drawn(2, 4, 6),
        "seq2": drawn(2, 4, 6),
        "tall": drawn(2, 5, 4),
        "wide": drawn(2, 5, 5),
        "mask": rng.rand(2, 1, 4, 4) < 0.75,
        "add": drawn(4, 4),
        "vol": drawn(2, 4, 2, 3, 2),
        "many": np.array([4, 2], "int64"),
        "sg": np.float32([[1, -1, 1, 1], [-1, -1, 1, -1], [1, 1, -1, 1]]),
        "sg1": np.float32([1, -1, 1]),
        "e": rows,
    }


def pattern(name, shape):
    """Return a parameter's value; variances are positive."""
    count = int(np.prod(shape))
    seed = sum(map(ord, name)) % 17
    values = 0.4 * np.cos(np.arange(count, dtype="float32") * 1.7 + seed).reshape(shape)
    positive = name.endswith("_variance") or name.endswith(".w_2")
    return (abs(values) + 0.5 if positive else values).astype("float32")


def guard(paddle):
    """Count names from zero."""
    home = paddle.utils if hasattr(paddle, "utils") else paddle.fluid
    return home.unique_name.guard()


def initialised(startup):
    """Return, of each parameter, the op that fills it and the numbers that say how."""
    fills = {}
    for op in startup.global_block().ops:
        numbers = [a for a in ("value", "min", "max", "mean", "std") if op.has_attr(a)]
        fills[op.output_arg_names[0]] = [op.type] + [float("%.6g" % op.attr(a)) for a in numbers]
    return fills


def flat(outs):
    """Return the variables of nested tuples."""
    if not isinstance(outs, (list, tuple)):
        return [outs]
    return [one for part in outs for one in flat(part)]


def run(paddle, case):
    """Build a case in a program of its own, run it once, and return what is compared."""
    expression, _, inputs = (part.strip() for part in case.rpartition(" : "))
    nn, static = paddle.nn, paddle.static
    names = [one.strip() for one in inputs.split(",")]
    fed = {name: value for name, value in arrays().items() if name in names}
    main, startup = static.Program(), static.Program()
    scope = static.Scope() if hasattr(static, "Scope") else paddle.base.core.Scope()
    with static.program_guard(main, startup), guard(paddle):
        variables = {name: static.data(name, v.shape, v.dtype.name) for name, v in fed.items()}
        for variable in variables.values():
            constants = ("k", "k1", "i", "mask", "many", "sg", "sg1")
            variable.stop_gradient = variable.name in constants
        layer = eval(expression, {"nn": nn, "paddle": paddle})
        initial, text = initialised(startup), repr(layer)
        outs = layer(*[variables.get(name) for name in names])
        outs = flat(outs)
        loss = paddle.add_n([paddle.mean(out * out + out) for out in outs])
        wanted = [p for p in layer.parameters() if not p.stop_gradient and p.trainable]
        wanted += [v for v in list(variables.values())[:1] if not v.stop_gradient]
        slopes = static.gradients([loss], wanted) if wanted else []
    exe = static.Executor(paddle.CPUPlace())
    state = layer.state_dict()
    own = {variable.name for variable in state.values()}  # without the copy that a fused kernel reads
    initial = {name: how for name, how in initial.items() if name in own}
    with static.scope_guard(scope):
        exe.run(startup)
        values = {path: pattern(v.name, v.shape) for path, v in state.items()}
        layer.set_state_dict(values)
        fetched = exe.run(main, feed=fed, fetch_list=outs + slopes)
        fetched += [np.array(state[path].get_value()) for path in state if "._" in "." + path]
    return {
        "repr": text,
        "state": [[path, v.name, list(v.shape), bool(v.trainable)] for path, v in state.items()],
        "initial": initial,
        "values": [[list(v.shape), rounded(v)] for v in map(np.asarray, fetched)],
    }


def mistake(paddle, expression):
    """Return the first built-in kinds of the error that an expression raises, or None."""
    static = paddle.static
    with static.program_guard(static.Program(), static.Program()), guard(paddle):
        try:
            eval(expression, {"nn": paddle.nn, "w": static.data("w", [3, 4])})
        except Exception as error:
            kinds = (TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError)
            kinds += (NotImplementedError, RuntimeError)
            return next(kind.__name__ for kind in kinds if isinstance(error, kind))
    return None


def models(paddle):
    """Return the classes of networks that are trained, as programs write them."""
    nn = paddle.nn

    class Residual(nn.Layer):
        def __init__(self, channels):
            super().__init__()
            self.conv = nn.Conv2D(channels, channels, 3, padding=1, bias_attr=False)
            self.norm = nn.BatchNorm2D(channels)
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x + self.norm(self.conv(x)))

    class Classifier(nn.Layer):
        def __init__(self, classes=3):
            super(Classifier, self).__init__()
            self.stem = nn.Sequential(nn.Conv2D(1, 4, 3), nn.BatchNorm2D(4), nn.LeakyReLU(0.1))
            self.blocks = nn.LayerList([Residual(4) for _ in range(2)])
            self.pool = nn.AdaptiveAvgPool2D(1)
            self.head = nn.Linear(4, classes)
            self.loss = nn.CrossEntropyLoss()

        def forward(self, x, label):
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
            return self.loss(self.head(self.pool(x).flatten(1)), label)

    class Encoder(nn.Layer):
        def __init__(self, words=12, width=8, length=5):
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.places = self.create_parameter([length, width])
            layer = nn.TransformerEncoderLayer(width, 2, 16, 0.0, "gelu", normalize_before=True)
            self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width))
            self.head = nn.Linear(width, 3)
            self.loss = nn.CrossEntropyLoss()

        def forward(self, x, label):
            x = self.encoder(self.words(x) + self.places)
            return self.loss(self.head(x.mean(1)), label)

    return {"Classifier": Classifier, "Encoder": Encoder}


def batch(name, step):
    """Return what a network is fed in a step: four rows and their labels."""
    rng = np.random.RandomState(step)
    x = (
        rng.rand(4, 1, 8, 8).astype("float32")
        if name == "Classifier"
        else rng.randint(0, 12, (4, 5))
    )
    return {"x": x, "label": rng.randint(0, 3, (4, 1)).astype("int64")}


def built(paddle, name):
    """Return (main program, startup program, layer, loss) of a network with its optimizer."""
    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), guard(paddle):
        first = batch(name, 0)["x"]
        x = static.data("x", [None] + list(first.shape[1:]), first.dtype.name)
        label = static.data("label", [None, 1], "int64")
        layer = models(paddle)[name]()
        loss = layer(x, label)
        paddle.optimizer.Momentum(0.1, parameters=layer.parameters()).minimize(loss)
    return main, startup, layer, loss


def trained(paddle, name):
    """Return the losses of three steps from patterned weights, and the sum of each parameter afterwards."""
    static = paddle.static
    main, startup, layer, loss = built(paddle, name)
    exe = static.Executor(paddle.CPUPlace())
    scope = static.Scope() if hasattr(static, "Scope") else paddle.base.core.Scope()
    with static.scope_guard(scope):
        exe.run(startup)
        layer.set_state_dict({k: pattern(v.name, v.shape) for k, v in layer.state_dict().items()})
        losses = [
            float(
                np.asarray(exe.run(main, feed=batch(name, step), fetch_list=[loss])[0]).ravel()[0]
            )
            for step in range(3)
        ]
        state = layer.state_dict()
        sums = {k: float(np.array(v.get_value()).astype("float64").sum()) for k, v in state.items()}
    return {"losses": losses, "sums": sums}


def rounded(array):
    return [float("%.6g" % number) for number in np.asarray(array, "float64").ravel()]


def signature(layer):
    """Return a constructor's parameters: name, kind, default."""
    parameters = inspect.signature(layer.__init__).parameters.values()
    empty = inspect.Parameter.empty
    return [
        [p.name, int(p.kind), "" if p.default is empty else repr(p.default)]
        for p in parameters
        if p.name != "self"
    ]


def main():
    import paddle

    warnings.simplefilter("ignore")
    paddle.enable_static()

    def append(op_type, inputs, attrs):
        """Append an op that 3.3.1's own function appends only to its newer kind of program."""
        helper = paddle.base.layer_helper.LayerHelper(op_type)
        out = helper.create_variable_for_type_inference(inputs["X"].dtype)
        helper.append_op(type=op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
        return out

    def matmul(x, y, transpose_x=False, transpose_y=False, name=None):
        return append(
            "matmul_v2", {"X": x, "Y": y}, {"trans_x": transpose_x, "trans_y": transpose_y}
        )

    paddle.matmul = paddle.nn.layer.transformer.tensor.matmul = matmul

    def summed(x, axis=None, dtype=None, keepdim=False, name=None):
        dims = [axis] if isinstance(axis, int) else axis or [0]
        attrs = {"dim": dims, "reduce_all": axis is None, "keep_dim": keepdim}
        return append("reduce_sum", {"X": x}, attrs)

    def of_x(op_type):
        return lambda x, name=None: append(op_type, {"X": x}, {})

    def gelu(x, approximate=False, name=None):
        return append("gelu", {"X": x}, {"approximate": approximate in (True, "tanh")})

    def softplus(x, beta=1.0, threshold=20.0, name=None):
        return append("softplus", {"X": x}, {"beta": float(beta), "threshold": float(threshold)})

    functional = paddle.nn.functional
    functional.gelu, functional.softplus, functional.sigmoid = gelu, softplus, of_x("sigmoid")
    functional.tanh, paddle.exp, paddle.abs = of_x("tanh"), of_x("exp"), of_x("abs")
    paddle.tanh = functional.tanh
    paddle.sum = functional.common.sum = paddle.static.Variable.sum = summed
    paddle.log, paddle.sqrt = of_x("log"), of_x("sqrt")

    def minimum(x, y, name=None):
        return append("elementwise_min", {"X": x, "Y": y}, {"axis": -1})

    paddle.minimum = minimum
    paddle.multiply, functional.common.sqrt = lambda x, y, name=None: x * y, of_x("sqrt")
    layers = sorted(
        k
        for k, v in vars(paddle.nn).items()
        if isinstance(v, type) and issubclass(v, paddle.nn.Layer)
    )
    tables = {
        "signatures": {name: signature(getattr(paddle.nn, name)) for name in layers},
        "mistakes": {one: mistake(paddle, one) for one in listed(MISTAKES)},
        "trained": {name: trained(paddle, name) for name in ("Classifier", "Encoder")},
        "cases": {},
    }
    for case in listed(CASES):
        try:
            tables["cases"][case] = run(paddle, case)
        except Exception as error:
            print(case, "IS REFUSED:", str(error).strip().splitlines()[-2:])
    texts = []
    for name, table in tables.items():
        rows = ",\n".join(
            "%s: %s" % (json.dumps(key), json.dumps(row)) for key, row in table.items()
        )
        texts.append("%s: {\n%s\n}" % (json.dumps(name), rows))
    with open(
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "nn_layers.json"), "w"
    ) as file:
        file.write("{\n" + ",\n".join(texts) + "\n}\n")


if __name__ == "__main__":
    main()
