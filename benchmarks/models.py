"""The programs that benchmarks train, in the fluid API: rowlock.fluid and paddle.fluid build the same ones.

Each function builds into the current program and returns the loss, an optimizer and the feed of a whole batch
for two places (``sequence_models.py`` has those whose shapes are data). Also run by the Python 3.7 that Paddle
1.8.5 needs.
"""

import numpy as np

from .sequence_models import SEQUENCE_MODELS, TEXT

GPT = {"layers": 4, "width": 256, "heads": 4, "length": 128, "words": 128, "rows": 16}
ENCODER = {"layers": 2, "width": 128, "heads": 4, "length": 64, "words": 1000, "rows": 32}
MIXER = {"layers": 4, "width": 128, "tokens": 64, "patch": 4}
# rows of each, of a category each
TABLES = (10000, 5000, 2000, *(10, 20, 50, 100, 200, 500, 1000) * 3)
WIDE_DEEP = {"dense": 13, "width": 16, "layers": (256, 128), "rows": 256}
UNET = {"stages": (16, 32, 64), "classes": 4, "side": 64, "rows": 16}
# channels and blocks; half the height and width at the start of each
CONVNEXT_STAGES = ((64, 2), (128, 2))
SIGNAL = {"length": 4096, "rows": 16, "window": 9}
SIGNAL_STAGES = ((32, (1, 2)), (64, (4, 8)), (128, (1, 2)))  # channels and dilations
VGG_STAGES = ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2))
GROWTH = 12
RESIDUAL_STAGES = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
SEPARABLE_STAGES = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))


def images(rng, rows, *shape):
    """Return a batch of random images and labels of ten classes."""
    return {
        "image": rng.randn(rows, *shape).astype("float32"),
        "label": rng.randint(0, 10, (rows, 1)).astype("int64"),
    }


def classified(fluid, shape):
    """Return the inputs of a classifier: an image (or what else has a shape) and a label."""
    layers = fluid.layers
    return layers.data("image", shape), layers.data("label", [1], dtype="int64")


def cross_entropy(fluid, hidden, label):
    """Return the mean loss of a softmax over ten classes."""
    scores = fluid.layers.fc(hidden, 10)
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, label))


def fit(fluid, rng):
    """Linear regression, 13 inputs, 2 x 16 rows, SGD."""
    layers = fluid.layers
    x, y = layers.data("x", [13]), layers.data("y", [1])
    loss = layers.mean(layers.square_error_cost(layers.fc(x, 1), y))
    feed = {"x": rng.randn(32, 13).astype("float32"), "y": rng.randn(32, 1).astype("float32")}
    return loss, fluid.optimizer.SGD(1e-3), feed


def mlp(fluid, rng):
    """784-512-512-10 with ReLU, 2 x 64 rows, Adam."""
    image, label = classified(fluid, [784])
    hidden = fluid.layers.fc(fluid.layers.fc(image, 512, act="relu"), 512, act="relu")
    loss = cross_entropy(fluid, hidden, label)
    return loss, fluid.optimizer.Adam(1e-3), images(rng, 128, 784)


def lenet(fluid, rng):
    """Two 5x5 convolutions with max pooling on 28x28 pixels, 2 x 64 rows, Adam."""
    image, label = classified(fluid, [1, 28, 28])
    hidden = image
    for channels in (20, 50):
        hidden = fluid.nets.simple_img_conv_pool(
            hidden, num_filters=channels, filter_size=5, pool_size=2, pool_stride=2, act="relu"
        )
    loss = cross_entropy(fluid, hidden, label)
    return loss, fluid.optimizer.Adam(1e-3), images(rng, 128, 1, 28, 28)


def conv_bn(fluid, x, channels, size, stride, act, groups=1):
    """Return convolution, batch normalization and an activation (or None)."""
    out = fluid.layers.conv2d(
        x,
        channels,
        size,
        stride=stride,
        padding=(size - 1) // 2,
        groups=groups,
        bias_attr=False,
        use_cudnn=False,
    )
    return fluid.layers.batch_norm(out, act=act)


def resnet18(fluid, rng):
    """ResNet-18 for 32x32 pixels (3x3 stem, no pooling before the stages), 2 x 16 rows, momentum."""
    image, label = classified(fluid, [3, 32, 32])
    hidden, width = conv_bn(fluid, image, 64, 3, 1, "relu"), 64
    for channels, stride in RESIDUAL_STAGES:
        inner = conv_bn(fluid, hidden, channels, 3, stride, "relu")
        inner = conv_bn(fluid, inner, channels, 3, 1, None)
        same = stride == 1 and width == channels
        skip = hidden if same else conv_bn(fluid, hidden, channels, 1, stride, None)
        hidden = fluid.layers.elementwise_add(inner, skip, act="relu")
        width = channels
    hidden = fluid.layers.pool2d(hidden, pool_type="avg", global_pooling=True)
    loss = cross_entropy(fluid, hidden, label)
    return loss, fluid.optimizer.Momentum(1e-3, 0.9), images(rng, 32, 3, 32, 32)


def mobilenet(fluid, rng):
    """Six depthwise-separable blocks (MobileNet's) on 32x32 pixels, 2 x 16 rows, momentum."""
    image, label = classified(fluid, [3, 32, 32])
    hidden, width = conv_bn(fluid, image, 32, 3, 1, "relu"), 32
    for channels, stride in SEPARABLE_STAGES:
        hidden = conv_bn(fluid, hidden, width, 3, stride, "relu", groups=width)
        hidden, width = conv_bn(fluid, hidden, channels, 1, 1, "relu"), channels
    hidden = fluid.layers.pool2d(hidden, pool_type="avg", global_pooling=True)
    loss = cross_entropy(fluid, hidden, label)
    return loss, fluid.optimizer.Momentum(1e-3, 0.9), images(rng, 32, 3, 32, 32)


def attention(fluid, x, size, mask=None):
    """Return self-attention of several heads, its output projection included."""
    layers, width, length, heads = fluid.layers, size["width"], size["length"], size["heads"]
    head = width // heads
    joint = layers.reshape(layers.fc(x, 3 * width, num_flatten_dims=2), [0, length, 3, heads, head])
    joint = layers.split(layers.transpose(joint, [2, 0, 3, 1, 4]), 3, 0)
    query, key, value = [layers.squeeze(part, [0]) for part in joint]
    scores = layers.matmul(query, key, transpose_y=True, alpha=head**-0.5)
    if mask is not None:
        scores = layers.elementwise_add(scores, mask, axis=2)
    mixed = layers.transpose(layers.matmul(layers.softmax(scores), value), [0, 2, 1, 3])
    return layers.fc(layers.reshape(mixed, [0, length, width]), width, num_flatten_dims=2)


def feed_forward(fluid, x, size):
    """Return two linear layers with GELU between them."""
    hidden = fluid.layers.fc(x, 4 * size["width"], num_flatten_dims=2, act="gelu")
    return fluid.layers.fc(hidden, size["width"], num_flatten_dims=2)


def embedded(fluid, size):
    """Return words and positions as vectors."""
    words = fluid.layers.data("words", [size["length"]], dtype="int64")
    vectors = fluid.embedding(words, (size["words"], size["width"]))
    positions = fluid.layers.create_parameter([size["length"], size["width"]], "float32")
    return fluid.layers.elementwise_add(vectors, positions, axis=1)


def normed(fluid, x):
    """Return layer normalization over the last dimension."""
    return fluid.layers.layer_norm(x, begin_norm_axis=2)


def text_cnn(fluid, rng):
    """Convolutions over words, windows of 3, 4 and 5 x 128, max over time (Kim's); 2 x 32 rows, Adam."""
    size, layers = TEXT, fluid.layers
    words = layers.data("words", [size["length"]], dtype="int64")
    label = layers.data("label", [1], dtype="int64")
    vectors = layers.unsqueeze(fluid.embedding(words, (size["words"], size["width"])), [1])
    features = []
    for length in size["windows"]:
        activations = layers.conv2d(vectors, size["channels"], (length, size["width"]), act="relu")
        features.append(layers.pool2d(activations, pool_type="max", global_pooling=True))
    hidden = layers.reshape(layers.concat(features, 1), [-1, 3 * size["channels"]])
    loss = cross_entropy(fluid, hidden, label)
    feed = {
        "words": rng.randint(0, size["words"], (size["rows"], size["length"])).astype("int64"),
        "label": rng.randint(0, 10, (size["rows"], 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Adam(1e-3), feed


def vgg(fluid, rng):
    """VGG-11 without its wide layers, on 32x32 pixels, 2 x 16 rows, momentum."""
    image, label = classified(fluid, [3, 32, 32])
    hidden = image
    for channels, count in VGG_STAGES:
        for _ in range(count):
            hidden = fluid.layers.conv2d(hidden, channels, 3, padding=1, act="relu")
        hidden = fluid.layers.pool2d(hidden, pool_size=2, pool_stride=2)
    loss = cross_entropy(fluid, hidden, label)
    return loss, fluid.optimizer.Momentum(1e-3, 0.9), images(rng, 32, 3, 32, 32)


def densenet(fluid, rng):
    """Three dense blocks of four layers, growth 12, on 32x32 pixels, 2 x 16 rows, momentum."""
    layers = fluid.layers
    image, label = classified(fluid, [3, 32, 32])
    hidden = layers.conv2d(image, 24, 3, padding=1, bias_attr=False)
    for block in range(3):
        for _ in range(4):
            inner = layers.batch_norm(hidden, act="relu")
            inner = layers.conv2d(inner, GROWTH, 3, padding=1, bias_attr=False)
            hidden = layers.concat([hidden, inner], 1)
        hidden = layers.batch_norm(hidden, act="relu")
        if block < 2:
            hidden = layers.conv2d(hidden, hidden.shape[1] // 2, 1, bias_attr=False)
            hidden = layers.pool2d(hidden, pool_size=2, pool_stride=2, pool_type="avg")
    hidden = layers.pool2d(hidden, pool_type="avg", global_pooling=True)
    loss = cross_entropy(fluid, hidden, label)
    return loss, fluid.optimizer.Momentum(1e-3, 0.9), images(rng, 32, 3, 32, 32)


def gpt(fluid, rng):
    """Four causal transformer layers, width 256, 128 tokens, 2 x 8 rows, Adam."""
    size, layers, length = GPT, fluid.layers, GPT["length"]
    mask = layers.triu(layers.fill_constant([length, length], "float32", -1e9), 1)
    hidden = embedded(fluid, size)
    label = layers.data("label", [length, 1], dtype="int64")
    for _ in range(size["layers"]):
        hidden = hidden + attention(fluid, normed(fluid, hidden), size, mask)
        hidden = hidden + feed_forward(fluid, normed(fluid, hidden), size)
    scores = layers.fc(normed(fluid, hidden), size["words"], num_flatten_dims=2)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
    words = rng.randint(0, size["words"], (2, size["rows"], length)).astype("int64")
    return loss, fluid.optimizer.Adam(1e-3), {"words": words[0], "label": words[1][..., None]}


def encoder(fluid, rng):
    """Two bidirectional layers normalized after each part (BERT's), width 128, 64 tokens, 2 x 16 rows, Adam."""
    size, layers = ENCODER, fluid.layers
    hidden = embedded(fluid, size)
    label = layers.data("label", [1], dtype="int64")
    for _ in range(size["layers"]):
        hidden = normed(fluid, hidden + attention(fluid, hidden, size))
        hidden = normed(fluid, hidden + feed_forward(fluid, hidden, size))
    loss = cross_entropy(fluid, layers.reduce_mean(hidden, dim=1), label)
    feed = {
        "words": rng.randint(0, size["words"], (size["rows"], size["length"])).astype("int64"),
        "label": rng.randint(0, 10, (size["rows"], 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Adam(1e-3), feed


def mixer(fluid, rng):
    """An MLP-mixer: 4 layers, 64 patches of 4x4 pixels, width 128, 2 x 16 rows, Adam."""
    size, layers = MIXER, fluid.layers
    image, label = classified(fluid, [3, 32, 32])
    hidden = layers.conv2d(image, size["width"], size["patch"], stride=size["patch"])
    hidden = layers.reshape(hidden, [0, size["width"], size["tokens"]])
    hidden = layers.transpose(hidden, [0, 2, 1])
    for _ in range(size["layers"]):
        across = layers.transpose(normed(fluid, hidden), [0, 2, 1])
        across = feed_forward(fluid, across, {"width": size["tokens"]})
        hidden = hidden + layers.transpose(across, [0, 2, 1])
        hidden = hidden + feed_forward(fluid, normed(fluid, hidden), size)
    loss = cross_entropy(fluid, layers.reduce_mean(normed(fluid, hidden), dim=1), label)
    return loss, fluid.optimizer.Adam(1e-3), images(rng, 32, 3, 32, 32)


def wide_deep(fluid, rng):
    """Wide and deep: 24 categories in tables of width 1 and of width 16, 13 numbers, 2 x 128 rows, Adam."""
    size, layers = WIDE_DEEP, fluid.layers
    dense = layers.data("dense", [size["dense"]])
    label = layers.data("label", [1])
    names = ["category_{}".format(k) for k in range(len(TABLES))]
    inputs = [layers.data(name, [1], dtype="int64") for name in names]
    pairs = list(zip(inputs, TABLES))  # noqa: B905, for Python 3.7
    wide = layers.sums([layers.embedding(ids, (rows, 1)) for ids, rows in pairs])
    deep = [layers.embedding(ids, (rows, size["width"])) for ids, rows in pairs]
    deep = layers.concat([*deep, dense], 1)
    for width in size["layers"]:
        deep = layers.fc(deep, width, act="relu")
    scores = layers.fc(deep, 1) + layers.fc(dense, 1) + wide
    loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(scores, label))
    feed = {
        name: rng.randint(0, rows, (size["rows"], 1)).astype("int64")
        for name, rows in zip(names, TABLES)  # noqa: B905, for Python 3.7
    }
    feed["dense"] = rng.randn(size["rows"], size["dense"]).astype("float32")
    feed["label"] = rng.randint(0, 2, (size["rows"], 1)).astype("float32")
    return loss, fluid.optimizer.Adam(1e-3), feed


def twice(fluid, x, channels):
    """Return two 3x3 convolutions with batch normalization and ReLU."""
    return conv_bn(fluid, conv_bn(fluid, x, channels, 3, 1, "relu"), channels, 3, 1, "relu")


def unet(fluid, rng):
    """A U-Net of three heights on 64x64 pixels, nearest neighbours upwards, 2 x 8 rows, momentum."""
    size, layers = UNET, fluid.layers
    side = size["side"]
    image = layers.data("image", [3, side, side])
    label = layers.data("label", [1, side, side], dtype="int64")
    hidden, skips = image, []
    for channels in size["stages"]:
        if skips:
            hidden = layers.pool2d(hidden, pool_size=2, pool_stride=2)
        hidden = twice(fluid, hidden, channels)
        skips.append(hidden)
    for channels, skip in list(zip(size["stages"], skips))[-2::-1]:  # noqa: B905, for Python 3.7
        hidden = layers.resize_nearest(hidden, scale=2.0, align_corners=False)
        hidden = twice(fluid, layers.concat([skip, hidden], 1), channels)
    scores = layers.conv2d(hidden, size["classes"], 1)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, label, axis=1))
    feed = images(rng, size["rows"], 3, side, side)
    shape = (size["rows"], 1, side, side)
    feed["label"] = rng.randint(0, size["classes"], shape).astype("int64")
    return loss, fluid.optimizer.Momentum(1e-3, 0.9), feed


def convnext_block(fluid, x, width):
    """Return a depthwise 7x7 convolution, a norm and two products over channels, beside their input."""
    layers = fluid.layers
    inner = layers.conv2d(x, width, 7, padding=3, groups=width, use_cudnn=False)
    inner = layers.layer_norm(layers.transpose(inner, [0, 2, 3, 1]), begin_norm_axis=3)
    inner = layers.fc(inner, 4 * width, num_flatten_dims=3, act="gelu")
    inner = layers.fc(inner, width, num_flatten_dims=3)
    scale = layers.create_parameter(
        [width], "float32", default_initializer=fluid.initializer.Constant(0.1)
    )
    inner = layers.elementwise_mul(inner, scale, axis=3)
    return x + layers.transpose(inner, [0, 3, 1, 2])


def convnext(fluid, rng):
    """Two stages of two ConvNeXt blocks, 16x16 and 8x8 pixels, 2 x 16 rows, Adam."""
    layers = fluid.layers
    hidden, label = classified(fluid, [3, 32, 32])
    for channels, blocks in CONVNEXT_STAGES:
        hidden = layers.conv2d(hidden, channels, 2, stride=2)
        for _ in range(blocks):
            hidden = convnext_block(fluid, hidden, channels)
    hidden = layers.pool2d(hidden, pool_type="avg", global_pooling=True)
    hidden = layers.reshape(hidden, [-1, CONVNEXT_STAGES[-1][0]])
    loss = cross_entropy(fluid, layers.layer_norm(hidden), label)
    return loss, fluid.optimizer.Adam(1e-3), images(rng, 32, 3, 32, 32)


def signal_conv(fluid, x, channels, stride, dilation):
    """Return a convolution along a signal, batch normalization and ReLU."""
    window = SIGNAL["window"]
    inner = fluid.layers.conv2d(
        x,
        channels,
        (1, window),
        stride=(1, stride),
        padding=(0, (window - 1) // 2 * dilation),
        dilation=(1, dilation),
        bias_attr=False,
    )
    return fluid.layers.batch_norm(inner, act="relu")


def signals(fluid, rng):
    """Dilated convolutions along signals (two channels, one high, 4,096 long), 2 x 8 rows, momentum."""
    layers = fluid.layers
    hidden, label = classified(fluid, [2, 1, SIGNAL["length"]])
    for channels, dilations in SIGNAL_STAGES:
        hidden = signal_conv(fluid, hidden, channels, 4, 1)
        for dilation in dilations:
            hidden = hidden + signal_conv(fluid, hidden, channels, 1, dilation)
    hidden = layers.pool2d(hidden, pool_type="avg", global_pooling=True)
    loss = cross_entropy(fluid, hidden, label)
    feed = images(rng, SIGNAL["rows"], 2, 1, SIGNAL["length"])
    return loss, fluid.optimizer.Momentum(1e-3, 0.9), feed


MODELS = {
    made.__name__: made
    for made in (
        *(fit, mlp, lenet, resnet18, gpt, mobilenet, encoder),
        *(text_cnn, vgg, densenet, mixer),
        *(wide_deep, unet, convnext, signals),
    )
}
EVERY = {**MODELS, **SEQUENCE_MODELS}


def build(fluid, name, optimizer=None, seed=1):
    """Return (main program, startup program, loss, feed) of a model; ``optimizer`` replaces its own.

    The feed of programs whose shapes are data is a list of batches.
    """
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, own, feed = EVERY[name](fluid, np.random.RandomState(seed))
        (optimizer or own).minimize(loss)
    return main, startup, loss, feed
