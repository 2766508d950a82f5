"""Seven small models, written once and run by Paddle 1.8.5 and by Rowlock.

Every function takes the `fluid` module to build with (`paddle.fluid` or `rowlock.fluid`), so the
numbers in losses.json and the structure in programs.json come from the code that the tests run.
The file keeps to Python 3.7, because that is the newest Python which paddlepaddle 1.8.5 knows.

    built = build("mlp", fluid)
    exe.run(built.startup)
    set_initial_values(built.main, fluid.global_scope(), place)
    exe.run(built.main, feed=feed("mlp", step=0), fetch_list=[built.loss])

Rule for initial values (see `initial_values`): only trainable parameters are set. Learning rates,
optimizer state, counters and the running statistics of batch norm keep what startup gave them.
"""

import collections
import math

import numpy as np

STEPS = 5
# Seed of the feeds. With this one no input of a relu lies within rounding of 0 in any run, so
# parameters after five steps are stable: moving every initial value by 2e-6 of itself moves no
# parameter by more than 1e-5. (With seed 1000 one sign flips, and resnet moves by 1e-3.)
FEED_SEED = 3000

# main and startup are programs; fetches is an ordered dict, label -> variable, without the loss.
Built = collections.namedtuple("Built", "main startup loss fetches")

# build(fluid) -> (loss, fetches), already minimized; feed(random) -> {name: array}.
Model = collections.namedtuple("Model", "build feed")


def build(name, fluid):
    """Build one model, optimizer included, in programs and with names of its own."""
    main = fluid.Program()
    startup = fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, fetches = MODELS[name].build(fluid)
    return Built(main, startup, loss, collections.OrderedDict(fetches))


def feed(name, step):
    """The whole batch of one step; the same on every machine."""
    return MODELS[name].feed(np.random.RandomState(FEED_SEED + step))


def initial_values(shapes):
    """Initial values of trainable parameters, from {name: shape}.

    One RandomState(7) is drawn from in sorted order of the names, in float64, then rounded to
    float32. Weights (two dimensions or more) are normal / sqrt(fan in), where fan in is the first
    dimension of a matrix and the product of all but the first of a filter. A vector whose name
    holds ".w_" is a normalization's scale: 1 + 0.1 * normal. Any other vector: 0.1 * normal.
    """
    random = np.random.RandomState(7)
    values = {}
    for name in sorted(shapes):
        shape = tuple(shapes[name])
        draw = random.standard_normal(shape)
        if len(shape) == 2:
            value = draw / math.sqrt(shape[0])
        elif len(shape) > 2:
            value = draw / math.sqrt(np.prod(shape[1:]))
        elif ".w_" in name:
            value = 1.0 + 0.1 * draw
        else:
            value = 0.1 * draw
        values[name] = value.astype("float32")
    return values


def trainable_shapes(program):
    """{name: shape} of the parameters that `initial_values` is asked for."""
    return {p.name: tuple(p.shape) for p in program.all_parameters() if p.trainable}


def set_initial_values(program, scope, place):
    """Overwrite the trainable parameters that startup has made in `scope`."""
    for name, value in initial_values(trainable_shapes(program)).items():
        scope.find_var(name).get_tensor().set(value, place)


# --- fit13: linear regression, SGD ----------------------------------------------------------


def build_fit13(fluid):
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    predicted = fluid.layers.fc(input=x, size=1, act=None)
    cost = fluid.layers.square_error_cost(input=predicted, label=y)
    loss = fluid.layers.mean(cost)
    fluid.optimizer.SGD(learning_rate=0.05).minimize(loss)
    return loss, [("predicted", predicted)]


def feed_fit13(random):
    x = random.standard_normal((8, 13))
    y = x.sum(axis=1, keepdims=True) * 0.3 + 1.0
    return {"x": x.astype("float32"), "y": y.astype("float32")}


# --- logistic: softmax regression, SGD with exponential_decay -------------------------------


def build_logistic(fluid):
    image = fluid.data(name="image", shape=[None, 20], dtype="float32")
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    probability = fluid.layers.fc(input=image, size=5, act="softmax")
    cost = fluid.layers.cross_entropy(input=probability, label=label)
    loss = fluid.layers.mean(cost)
    rate = fluid.layers.exponential_decay(learning_rate=0.2, decay_steps=2, decay_rate=0.5)
    fluid.optimizer.SGD(learning_rate=rate).minimize(loss)
    return loss, [("probability", probability), ("rate", rate)]


def feed_logistic(random):
    image = random.standard_normal((8, 20))
    label = random.randint(0, 5, (8, 1))
    return {"image": image.astype("float32"), "label": label.astype("int64")}


# --- mlp: 64-32-10, Adam, L2 decay, clipping by the global norm -----------------------------


def build_mlp(fluid):
    image = fluid.data(name="image", shape=[None, 64], dtype="float32")
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    hidden = fluid.layers.fc(input=image, size=32, act="relu")
    logits = fluid.layers.fc(input=hidden, size=10)
    cost = fluid.layers.softmax_with_cross_entropy(logits=logits, label=label)
    loss = fluid.layers.mean(cost)
    optimizer = fluid.optimizer.Adam(
        learning_rate=0.01,
        regularization=fluid.regularizer.L2Decay(1e-3),
        grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0),
    )
    optimizer.minimize(loss)
    return loss, [("logits", logits)]


def feed_mlp(random):
    image = random.standard_normal((8, 64))
    label = random.randint(0, 10, (8, 1))
    return {"image": image.astype("float32"), "label": label.astype("int64")}


# --- lenet: two conv_pool, Momentum with piecewise_decay ------------------------------------


def build_lenet(fluid):
    image = fluid.data(name="image", shape=[None, 1, 16, 16], dtype="float32")
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    first = fluid.nets.simple_img_conv_pool(
        input=image,
        num_filters=4,
        filter_size=3,
        pool_size=2,
        pool_stride=2,
        act="relu",
    )
    second = fluid.nets.simple_img_conv_pool(
        input=first,
        num_filters=8,
        filter_size=3,
        pool_size=2,
        pool_stride=2,
        act="relu",
    )
    probability = fluid.layers.fc(input=second, size=10, act="softmax")
    cost = fluid.layers.cross_entropy(input=probability, label=label)
    loss = fluid.layers.mean(cost)
    accuracy = fluid.layers.accuracy(input=probability, label=label)
    rate = fluid.layers.piecewise_decay(boundaries=[2, 4], values=[0.1, 0.05, 0.01])
    fluid.optimizer.Momentum(learning_rate=rate, momentum=0.9).minimize(loss)
    return loss, [("accuracy", accuracy), ("rate", rate), ("probability", probability)]


def feed_lenet(random):
    image = random.standard_normal((8, 1, 16, 16))
    label = random.randint(0, 10, (8, 1))
    return {"image": image.astype("float32"), "label": label.astype("int64")}


# --- resnet: two residual blocks with batch norm, Nesterov momentum, L2 decay ---------------


def conv_bn(fluid, x, filters, filter_size, stride, act):
    """A convolution without bias (batch norm would cancel it), then batch norm."""
    padding = (filter_size - 1) // 2
    y = fluid.layers.conv2d(
        input=x,
        num_filters=filters,
        filter_size=filter_size,
        stride=stride,
        padding=padding,
        bias_attr=False,
    )
    return fluid.layers.batch_norm(input=y, act=act)


def residual_block(fluid, x, filters, stride):
    """Two 3x3 convolutions; the shortcut is a 1x1 convolution where the shape changes."""
    y = conv_bn(fluid, x, filters, 3, stride, "relu")
    y = conv_bn(fluid, y, filters, 3, 1, None)
    shortcut = x
    if stride != 1 or x.shape[1] != filters:
        shortcut = conv_bn(fluid, x, filters, 1, stride, None)
    return fluid.layers.elementwise_add(x=shortcut, y=y, act="relu")


def build_resnet(fluid):
    image = fluid.data(name="image", shape=[None, 3, 8, 8], dtype="float32")
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    x = conv_bn(fluid, image, 8, 3, 1, "relu")
    x = residual_block(fluid, x, 8, 1)
    x = residual_block(fluid, x, 16, 2)
    pooled = fluid.layers.pool2d(input=x, pool_type="avg", global_pooling=True)
    logits = fluid.layers.fc(input=pooled, size=10)
    cost = fluid.layers.softmax_with_cross_entropy(logits=logits, label=label)
    loss = fluid.layers.mean(cost)
    optimizer = fluid.optimizer.Momentum(
        learning_rate=0.05,
        momentum=0.9,
        use_nesterov=True,
        regularization=fluid.regularizer.L2Decay(1e-4),
    )
    optimizer.minimize(loss)
    return loss, [("logits", logits)]


def feed_resnet(random):
    image = random.standard_normal((8, 3, 8, 8))
    label = random.randint(0, 10, (8, 1))
    return {"image": image.astype("float32"), "label": label.astype("int64")}


# --- attention: one Transformer layer, Adam with noam_decay ---------------------------------

VOCABULARY = 30
WIDTH = 16
HEADS = 2
LENGTH = 6


def split_heads(fluid, x):
    """[batch, time, WIDTH] -> [batch, HEADS, time, WIDTH / HEADS]"""
    x = fluid.layers.reshape(x, shape=[0, 0, HEADS, WIDTH // HEADS])
    return fluid.layers.transpose(x, perm=[0, 2, 1, 3])


def self_attention(fluid, x):
    """Keys have no bias: softmax cancels it, and Adam would blow up its rounding noise."""
    layers = fluid.layers
    query = split_heads(fluid, layers.fc(input=x, size=WIDTH, num_flatten_dims=2))
    key = split_heads(fluid, layers.fc(input=x, size=WIDTH, num_flatten_dims=2, bias_attr=False))
    value = split_heads(fluid, layers.fc(input=x, size=WIDTH, num_flatten_dims=2))
    scale = 1.0 / math.sqrt(WIDTH // HEADS)
    weights = layers.softmax(layers.matmul(query, key, transpose_y=True, alpha=scale))
    context = layers.transpose(layers.matmul(weights, value), perm=[0, 2, 1, 3])
    context = layers.reshape(context, shape=[0, 0, WIDTH])
    return layers.fc(input=context, size=WIDTH, num_flatten_dims=2), weights


def build_attention(fluid):
    layers = fluid.layers
    word = fluid.data(name="word", shape=[None, LENGTH], dtype="int64")
    position = fluid.data(name="position", shape=[None, LENGTH], dtype="int64")
    label = fluid.data(name="label", shape=[None, LENGTH, 1], dtype="int64")
    x = fluid.embedding(input=word, size=[VOCABULARY, WIDTH])
    x = x + fluid.embedding(input=position, size=[LENGTH, WIDTH])
    attended, weights = self_attention(fluid, layers.layer_norm(x, begin_norm_axis=2))
    x = x + attended
    inner = layers.fc(
        input=layers.layer_norm(x, begin_norm_axis=2),
        size=4 * WIDTH,
        num_flatten_dims=2,
    )
    x = x + layers.fc(input=layers.gelu(inner), size=WIDTH, num_flatten_dims=2)
    x = layers.layer_norm(x, begin_norm_axis=2)
    logits = layers.fc(input=x, size=VOCABULARY, num_flatten_dims=2)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits=logits, label=label))
    rate = layers.noam_decay(d_model=WIDTH, warmup_steps=3, learning_rate=0.1)
    fluid.optimizer.Adam(learning_rate=rate, beta1=0.9, beta2=0.98).minimize(loss)
    return loss, [("weights", weights), ("rate", rate)]


def feed_attention(random):
    word = random.randint(0, VOCABULARY, (4, LENGTH))
    position = np.tile(np.arange(LENGTH), (4, 1))
    label = random.randint(0, VOCABULARY, (4, LENGTH, 1))
    return {
        "word": word.astype("int64"),
        "position": position.astype("int64"),
        "label": label.astype("int64"),
    }


# --- text: bag of words with padding, Adagrad -----------------------------------------------


def build_text(fluid):
    # The older embedding: ids end in a dimension of 1 (op lookup_table, not lookup_table_v2).
    word = fluid.layers.data(name="word", shape=[7, 1], dtype="int64")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    embedded = fluid.layers.embedding(input=word, size=[40, 8], padding_idx=0)
    sentence = fluid.layers.reduce_mean(embedded, dim=1)
    probability = fluid.layers.fc(input=sentence, size=3, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=probability, label=label))
    accuracy = fluid.layers.accuracy(input=probability, label=label)
    fluid.optimizer.Adagrad(learning_rate=0.05).minimize(loss)
    return loss, [("accuracy", accuracy), ("probability", probability)]


def feed_text(random):
    word = random.randint(1, 40, (8, 7, 1))
    length = random.randint(3, 8, (8, 1, 1))
    word = np.where(np.arange(7).reshape(1, 7, 1) < length, word, 0)
    label = random.randint(0, 3, (8, 1))
    return {"word": word.astype("int64"), "label": label.astype("int64")}


MODELS = collections.OrderedDict(
    [
        ("fit13", Model(build_fit13, feed_fit13)),
        ("logistic", Model(build_logistic, feed_logistic)),
        ("mlp", Model(build_mlp, feed_mlp)),
        ("lenet", Model(build_lenet, feed_lenet)),
        ("resnet", Model(build_resnet, feed_resnet)),
        ("attention", Model(build_attention, feed_attention)),
        ("text", Model(build_text, feed_text)),
    ]
)
