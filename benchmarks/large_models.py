"""What benchmarks of a GPU train: ResNet-50 and GPT-2 (124M), in the fluid API, with mixed precision if asked.

All that other contenders share with them is in ``benchmarks/sizes.py``.
"""

from dataclasses import dataclass

import rowlock
import rowlock.fluid as fluid
from benchmarks.sizes import weights
from rowlock.static import amp

SWITCHES = {  # of the build strategy: those that trade no time for memory
    "resnet50": {
        "fuse_bn_act_ops": True,
        "fuse_bn_add_act_ops": True,
        "enable_auto_fusion": True,
        "fuse_all_optimizer_ops": True,
    },
    "gpt2": {
        "fused_attention": True,
        "fuse_gemm_epilogue": True,
        "enable_auto_fusion": True,
        "fuse_all_optimizer_ops": True,
    },
}


def attr(drawn, name):
    """Return the attribute of a parameter that begins with what was drawn for it."""
    initializer = fluid.initializer.NumpyArrayInitializer(drawn[name])
    return fluid.ParamAttr(name=name, initializer=initializer)


class ResNet50:
    """Bottlenecks [3, 4, 6, 3]; the stride is that of the 3x3 convolution (v1.5)."""

    def __init__(self, size):
        self.size, self.drawn = size, weights("resnet50", size)

    def conv(self, x, name, channels, side, stride=1, act="relu"):
        """Return convolution, batch norm and activation."""
        param_attr, padding = attr(self.drawn, name), (side - 1) // 2
        out = fluid.layers.conv2d(
            x, channels, side, stride, padding, param_attr=param_attr, bias_attr=False
        )
        return fluid.layers.batch_norm(out, act=act)

    def block(self, x, name, width, stride):
        """Return a bottleneck beside its shortcut."""
        inner = self.conv(x, name + ".1", width, 1)
        inner = self.conv(inner, name + ".2", width, 3, stride)
        inner = self.conv(inner, name + ".3", 4 * width, 1, act=None)
        if stride != 1 or int(x.shape[1]) != 4 * width:
            x = self.conv(x, name + ".0", 4 * width, 1, stride, act=None)
        return fluid.layers.elementwise_add(inner, x, act="relu")

    def loss(self):
        """Build the forward pass."""
        layers, size = fluid.layers, self.size
        x = layers.data("image", [3, size.pixels, size.pixels])
        label = layers.data("label", [1], dtype="int64")
        x = self.conv(x, "stem", size.stem, 7, 2)
        x = layers.pool2d(x, 3, "max", 2, 1)
        for stage, (width, count) in enumerate(size.blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                x = self.block(x, "{}.{}".format(stage, block), width, stride)
        x = layers.flatten(layers.pool2d(x, pool_type="avg", global_pooling=True), 1)
        scores = layers.fc(x, size.classes, param_attr=attr(self.drawn, "head"))
        return layers.mean(layers.softmax_with_cross_entropy(scores, label))

    def optimizer(self):
        """Return momentum with decay."""
        decay = fluid.regularizer.L2Decay(5e-5)
        return fluid.optimizer.Momentum(0.1, 0.9, regularization=decay)


class GPT2:
    """Layer norm before each part, GELU by tanh, the first embedding is the last matrix too."""

    def __init__(self, size):
        self.size, self.drawn = size, weights("gpt2", size)

    def linear(self, x, name, outputs):
        """Return a linear layer with a bias."""
        return fluid.layers.fc(x, outputs, num_flatten_dims=2, param_attr=attr(self.drawn, name))

    def norm(self, x):
        """Return layer normalization over the last dimension."""
        return fluid.layers.layer_norm(x, begin_norm_axis=2)

    def attend(self, x, name, mask):
        """Return causal self-attention."""
        layers, size = fluid.layers, self.size
        head = size.width // size.heads
        joint = self.linear(x, name + ".joint", 3 * size.width)
        joint = layers.reshape(joint, [0, size.length, 3, size.heads, head])
        parts = layers.split(layers.transpose(joint, [2, 0, 3, 1, 4]), 3, 0)
        query, key, value = [layers.squeeze(part, [0]) for part in parts]
        scores = layers.matmul(query, key, transpose_y=True, alpha=head**-0.5)
        scores = layers.softmax(layers.elementwise_add(scores, mask, axis=2))
        mixed = layers.transpose(layers.matmul(scores, value), [0, 2, 1, 3])
        mixed = layers.reshape(mixed, [0, size.length, size.width])
        return self.linear(mixed, name + ".out", size.width)

    def widen(self, x, name):
        """Return the feed-forward part."""
        hidden = self.linear(x, name + ".wide", 4 * self.size.width)
        hidden = fluid.layers.gelu(hidden, approximate=True)
        return self.linear(hidden, name + ".narrow", self.size.width)

    def loss(self):
        """Build the forward pass."""
        layers, size = fluid.layers, self.size
        words = layers.data("words", [size.length], dtype="int64")
        label = layers.data("label", [size.length, 1], dtype="int64")
        table = attr(self.drawn, "words_w")
        x = fluid.embedding(words, (size.words, size.width), param_attr=table)
        shape = [size.length, size.width]
        places = layers.create_parameter(shape, "float32", attr=attr(self.drawn, "positions"))
        x = layers.elementwise_add(x, places, axis=1)
        hidden = layers.fill_constant([size.length, size.length], "float32", -1e9)
        mask = layers.triu(hidden, 1)
        for layer in range(size.layers):
            name = "layer{}".format(layer)
            x = x + self.attend(self.norm(x), name, mask)
            x = x + self.widen(self.norm(x), name)
        table = fluid.default_main_program().global_block().var("words_w")
        scores = layers.matmul(self.norm(x), table, transpose_y=True)
        return layers.mean(layers.softmax_with_cross_entropy(scores, label))

    def optimizer(self):
        """Return AdamW."""
        return rowlock.optimizer.AdamW(6e-4, beta2=0.95, weight_decay=0.1)


NETS = {"resnet50": ResNet50, "gpt2": GPT2}


@dataclass
class Built:
    """A training program; ``optimizer`` casts what mixed precision needs (``amp_init``)."""

    main: object
    startup: object
    loss: object
    optimizer: object


def build(name, size, precision="float32"):
    """Return a model's training program; "bfloat16" is mixed precision at level O2."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        net = NETS[name](size)
        loss, optimizer = net.loss(), net.optimizer()
        if precision == "bfloat16":
            optimizer = amp.decorate(optimizer, level="O2", dtype="bfloat16")
        optimizer.minimize(loss)
    return Built(main, startup, loss, optimizer)
