"""Small models to predict with, written once and built with Paddle 1.8.5 and with Rowlock (Python 3.7).

Each function takes the ``fluid`` module and returns what is fed and what is fetched.
"""


def dense(fluid):
    x = fluid.data("x", [None, 4])
    hidden = fluid.layers.fc(x, 3, act="relu")
    return [x], [fluid.layers.fc(hidden, 2, act="softmax")]


def image(fluid):
    x = fluid.data("image", [None, 1, 6, 6])
    hidden = fluid.layers.conv2d(x, 2, 3, padding=1, bias_attr=False)
    hidden = fluid.layers.batch_norm(hidden, act="relu")
    hidden = fluid.layers.pool2d(hidden, 2, "max", 2)
    hidden = fluid.layers.dropout(hidden, 0.3)
    side = fluid.layers.reshape(x, [-1, 36])
    logits = fluid.layers.fc(hidden, 3)
    total = fluid.layers.fc(side, 3, act="tanh") + logits
    return [x], [fluid.layers.softmax(logits), fluid.layers.reduce_mean(total, dim=1)]


def words(fluid):
    word = fluid.data("word", [None, 5], dtype="int64")
    embedded = fluid.layers.embedding(fluid.layers.unsqueeze(word, [2]), [12, 4])
    sparse = fluid.embedding(word, [12, 4], is_sparse=True)
    mean = fluid.layers.reduce_mean(embedded + sparse, dim=1)
    return [word], [fluid.layers.scale(fluid.layers.fc(mean, 2), 2.0, 1.0)]


MODELS = [("dense", dense, None), ("image", image, "params"), ("words", words, None)]
