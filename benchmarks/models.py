"""The programs that benchmarks train, in the fluid API: rowlock.fluid and paddle.fluid build the same ones.

Each function builds into the current program and returns the loss, an optimizer and the feed of a whole batch
for two places. Also run by the Python 3.7 that Paddle 1.8.5 needs.
"""

import numpy as np

GPT = {"layers": 4, "width": 256, "heads": 4, "length": 128, "words": 128, "rows": 16}
ENCODER = {"layers": 2, "width": 128, "heads": 4, "length": 64, "words": 1000, "rows": 32}
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
    made = fluid.layers.conv2d(
        x,
        channels,
        size,
        stride=stride,
        padding=(size - 1) // 2,
        groups=groups,
        bias_attr=False,
        use_cudnn=False,
    )
    return fluid.layers.batch_norm(made, act=act)


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


def constant(fluid, value):
    """Return a variable that holds an array and is not trained."""
    given = fluid.initializer.NumpyArrayInitializer(value)
    attr = fluid.ParamAttr(initializer=given, trainable=False)
    return fluid.layers.create_parameter(list(value.shape), "float32", attr=attr)


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


def gpt(fluid, rng):
    """Four causal transformer layers, width 256, 128 tokens, 2 x 8 rows, Adam."""
    size, layers, length = GPT, fluid.layers, GPT["length"]
    mask = constant(fluid, np.triu(np.full((length, length), -1e9, "float32"), 1))
    hidden = embedded(fluid, size)
    label = layers.data("label", [length, 1], dtype="int64")
    for _ in range(size["layers"]):
        hidden = hidden + attention(fluid, normed(fluid, hidden), size, mask)
        hidden = hidden + feed_forward(fluid, normed(fluid, hidden), size)
    scores = layers.fc(normed(fluid, hidden), size["words"], num_flatten_dims=2)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
    drawn = rng.randint(0, size["words"], (2, size["rows"], length)).astype("int64")
    return loss, fluid.optimizer.Adam(1e-3), {"words": drawn[0], "label": drawn[1][..., None]}


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


MODELS = {made.__name__: made for made in (fit, mlp, lenet, resnet18, gpt, mobilenet, encoder)}


def build(fluid, name, optimizer=None, seed=1):
    """Return (main program, startup program, loss, feed) of a model; ``optimizer`` replaces its own."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, own, feed = MODELS[name](fluid, np.random.RandomState(seed))
        (optimizer or own).minimize(loss)
    return main, startup, loss, feed
