"""A transformer encoder that tells which of two kinds of tokens a sentence has more of.

Its layers are computed again in the backward pass, and what is evaluated are moving averages of the weights.
"""

import argparse

import numpy as np
import paddle.fluid as fluid

VOCABULARY, LENGTH, WIDTH, HEADS = 40, 12, 32, 4


def attention(x, dropout):
    """Every position looks at every other."""
    heads = []
    for _ in ("query", "key", "value"):
        projected = fluid.layers.fc(x, WIDTH, num_flatten_dims=2, bias_attr=False)
        by_head = fluid.layers.reshape(projected, [0, 0, HEADS, WIDTH // HEADS])
        heads.append(fluid.layers.transpose(by_head, [0, 2, 1, 3]))
    query, key, value = heads
    scores = fluid.layers.matmul(query, key, transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5)
    weights = fluid.layers.dropout(
        fluid.layers.softmax(scores), dropout, dropout_implementation="upscale_in_train"
    )
    context = fluid.layers.transpose(fluid.layers.matmul(weights, value), [0, 2, 1, 3])
    merged = fluid.layers.reshape(context, [0, 0, WIDTH])
    return fluid.layers.fc(merged, WIDTH, num_flatten_dims=2)


def normed_sum(x, y, dropout):
    y = fluid.layers.dropout(y, dropout, dropout_implementation="upscale_in_train")
    return fluid.layers.layer_norm(x + y, begin_norm_axis=2)


def encoder(words, layers, dropout):
    """Return the outputs of all layers."""
    positions = fluid.layers.create_parameter([LENGTH, WIDTH], "float32", name="positions")
    x = fluid.embedding(words, [VOCABULARY, WIDTH])
    x = fluid.layers.elementwise_add(x, positions, axis=1)
    outputs = []
    for _ in range(layers):
        x = normed_sum(x, attention(x, dropout), dropout)
        hidden = fluid.layers.fc(x, 4 * WIDTH, num_flatten_dims=2, act="gelu")
        x = normed_sum(x, fluid.layers.fc(hidden, WIDTH, num_flatten_dims=2), dropout)
        outputs.append(x)
    return outputs


def sentences(count, seed):
    """Random tokens; the label says whether most of them are from the upper half of the vocabulary."""
    draw = np.random.RandomState(seed)
    tokens = draw.randint(0, VOCABULARY, (count, LENGTH)).astype("int64")
    labels = (tokens >= VOCABULARY // 2).sum(1, keepdims=True) > LENGTH // 2
    return {"words": tokens, "label": labels.astype("int64")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--keep", action="store_true", help="keep the results of all layers")
    args = parser.parse_args()

    words = fluid.data("words", [None, LENGTH], "int64")
    label = fluid.data("label", [None, 1], "int64")
    outputs = encoder(words, args.layers, 0.1)
    pooled = fluid.layers.reduce_mean(outputs[-1], dim=1)
    predicted = fluid.layers.fc(pooled, 2, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(predicted, label))
    accuracy = fluid.layers.accuracy(predicted, label)
    test = fluid.default_main_program().clone(for_test=True)

    optimizer = fluid.optimizer.Adam(0.002)
    if not args.keep:
        optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
        optimizer._set_checkpoints(outputs)
    optimizer.minimize(loss)
    ema = fluid.optimizer.ExponentialMovingAverage(0.9)
    ema.update()

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    compiled = compiled.with_data_parallel(loss_name=loss.name, places=fluid.cpu_places())
    for step in range(args.steps):
        (losses,) = exe.run(compiled, feed=sentences(64, step), fetch_list=[loss])
        if step % 10 == 0:
            print("step %d loss %.6f" % (step, np.mean(losses)))
    held_out = sentences(256, 10000)
    last = exe.run(test, feed=held_out, fetch_list=[loss, accuracy])
    with ema.apply(exe):
        averaged = exe.run(test, feed=held_out, fetch_list=[loss, accuracy])
    for name, result in (("last", last), ("averaged", averaged)):
        print("%s weights: loss %.6f accuracy %.3f" % (name, result[0][0], result[1][0]))


if __name__ == "__main__":
    main()
