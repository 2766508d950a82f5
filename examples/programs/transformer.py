"""A transformer that learns to write sequences backwards, and beams that search for what it would write.

The search is a ``While`` over arrays, as translators of Paddle 1.8 have it: hypotheses are sequences of two
levels, and keys and values of words before are carried along, picked by the hypothesis from which each goes on.
"""

import argparse

import numpy as np
import paddle
import paddle.fluid as fluid
import paddle.fluid.layers as layers

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--places", type=int, default=1)
parser.add_argument("--beam_size", type=int, default=3)
BOS, EOS, VOCAB, LENGTH, BATCH = 0, 1, 12, 6, 8
HEADS, WIDTH, LAYERS = 2, 16, 2


def attention(queries, keys, values, bias, cache=None):
    """Let queries look at keys; ``cache`` has the keys and values of words before, and is given these."""
    q, k, v = (
        layers.fc(x, WIDTH, num_flatten_dims=2, bias_attr=False) for x in (queries, keys, values)
    )

    def by_head(x):
        return layers.transpose(layers.reshape(x, [0, 0, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    q, k, v = by_head(q), by_head(k), by_head(v)
    if cache is not None:
        k = cache["k"] = layers.concat([cache["k"], k], axis=2)
        v = cache["v"] = layers.concat([cache["v"], v], axis=2)
    product = layers.matmul(q, k, transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5)
    if bias is not None:
        product = layers.elementwise_add(product, bias)
    context = layers.transpose(layers.matmul(layers.softmax(product), v), [0, 2, 1, 3])
    return layers.fc(
        layers.reshape(context, [0, 0, WIDTH]), WIDTH, num_flatten_dims=2, bias_attr=False
    )


def normalized(x):
    return layers.layer_norm(x, begin_norm_axis=len(x.shape) - 1)


def feed_forward(x):
    hidden = layers.fc(x, 2 * WIDTH, num_flatten_dims=2, act="relu")
    return layers.fc(hidden, WIDTH, num_flatten_dims=2)


def embedded(words, positions, name):
    words = fluid.embedding(words, [VOCAB, WIDTH], param_attr=fluid.ParamAttr(name=name))
    places = fluid.embedding(
        positions, [LENGTH + 2, WIDTH], param_attr=fluid.ParamAttr(name="position_rows")
    )
    places.stop_gradient = True
    return layers.elementwise_add(layers.scale(words, WIDTH**0.5), places)


def encoder(words, positions, bias):
    x = embedded(words, positions, "source_rows")
    for _ in range(LAYERS):
        y = normalized(x)
        x = layers.elementwise_add(x, attention(y, y, y, bias))
        x = layers.elementwise_add(x, feed_forward(normalized(x)))
    return normalized(x)


def decoder(words, positions, bias, memory, memory_bias, caches=None):
    x = embedded(words, positions, "target_rows")
    for k in range(LAYERS):
        y = normalized(x)
        x = layers.elementwise_add(x, attention(y, y, y, bias, caches[k] if caches else None))
        x = layers.elementwise_add(x, attention(normalized(x), memory, memory, memory_bias))
        x = layers.elementwise_add(x, feed_forward(normalized(x)))
    return layers.fc(normalized(x), VOCAB, num_flatten_dims=2, bias_attr=False)


def sources():
    words = fluid.data("source", [None, LENGTH], "int64")
    positions = fluid.data("source_positions", [None, LENGTH], "int64")
    bias = fluid.data("source_bias", [None, HEADS, LENGTH, LENGTH], "float32")
    return words, positions, bias


def training_net():
    words, positions, bias = sources()
    memory = encoder(words, positions, bias)
    target = fluid.data("target", [None, LENGTH + 1], "int64")
    places = fluid.data("target_positions", [None, LENGTH + 1], "int64")
    target_bias = fluid.data("target_bias", [None, HEADS, LENGTH + 1, LENGTH + 1], "float32")
    memory_bias = fluid.data("memory_bias", [None, HEADS, LENGTH + 1, LENGTH], "float32")
    following = fluid.data("following", [None, LENGTH + 1, 1], "int64")
    weights = fluid.data("weights", [None, LENGTH + 1, 1], "float32")
    logits = decoder(target, places, target_bias, memory, memory_bias)
    label = layers.label_smooth(layers.one_hot(following, VOCAB), epsilon=0.1)
    cost = layers.softmax_with_cross_entropy(logits, label, soft_label=True)
    return layers.reduce_sum(layers.elementwise_mul(cost, weights)) / layers.reduce_sum(weights)


def searching_net(beam_size):
    """Return ids and scores of the hypotheses of each source, as sequences of two levels."""
    words, positions, bias = sources()
    memory = encoder(words, positions, bias)
    start = fluid.data("start", [None, 1], "int64", lod_level=2)
    first_scores = fluid.data("first_scores", [None, 1], "float32", lod_level=2)
    parents = fluid.data("parents", [None], "int32")
    memory_bias = fluid.data("search_bias", [None, HEADS, 1, LENGTH], "float32")

    max_len = layers.fill_constant([1], "int64", LENGTH + 1)
    step = layers.fill_constant([1], "int64", 0)
    going = layers.less_than(x=step, y=max_len)
    loop = layers.While(going)
    ids = layers.array_write(layers.reshape(start, (-1, 1)), step)
    scores = layers.array_write(first_scores, step)
    shape = [-1, HEADS, 0, WIDTH // HEADS]
    caches = [
        {
            name: layers.fill_constant_batch_size_like(start, shape, "float32", 0)
            for name in ("k", "v")
        }
        for _ in range(LAYERS)
    ]
    with loop.block():
        pre_ids = layers.array_read(array=ids, i=step)
        pre_ids = layers.reshape(pre_ids, (-1, 1))
        pre_scores = layers.array_read(array=scores, i=step)
        step_bias = layers.gather(memory_bias, index=parents)
        step_memory = layers.gather(memory, index=parents)
        before = [
            {name: layers.gather(x, index=parents) for name, x in cache.items()} for cache in caches
        ]
        ones = layers.fill_constant_batch_size_like(step_memory, [-1, 1], "int64", 1)
        places = layers.elementwise_mul(x=ones, y=step, axis=0)
        logits = decoder(pre_ids, places, None, step_memory, step_bias, before)
        logits = layers.reshape(logits, [-1, VOCAB])
        best, candidates = layers.topk(input=layers.softmax(logits), k=beam_size)
        total = layers.elementwise_add(x=layers.log(best), y=pre_scores, axis=0)
        total = layers.lod_reset(total, pre_ids)
        beams, chosen_scores, chosen_parents = layers.beam_search(
            pre_ids=pre_ids,
            pre_scores=pre_scores,
            ids=candidates,
            scores=total,
            beam_size=beam_size,
            end_id=EOS,
            return_parent_idx=True,
        )
        layers.increment(x=step, value=1.0, in_place=True)
        layers.array_write(beams, i=step, array=ids)
        layers.array_write(chosen_scores, i=step, array=scores)
        layers.assign(chosen_parents, parents)
        layers.assign(step_memory, memory)
        layers.assign(step_bias, memory_bias)
        for k in range(LAYERS):
            for name in ("k", "v"):
                layers.assign(before[k][name], caches[k][name])
        longer = layers.less_than(x=step, y=max_len)
        layers.logical_and(x=longer, y=layers.logical_not(layers.is_empty(x=beams)), out=going)
    return layers.beam_search_decode(ids, scores, beam_size=beam_size, end_id=EOS)


def sentences(seed, count):
    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            yield rng.randint(2, VOCAB, rng.randint(3, LENGTH + 1))

    return reader


def source_feed(batch):
    lengths = np.array([len(words) for words in batch])
    words = np.full((len(batch), LENGTH), EOS)
    for k, sentence in enumerate(batch):
        words[k, : len(sentence)] = sentence
    hidden = np.where(np.arange(LENGTH) < lengths[:, None], 0, -1e9).astype("float32")
    positions = np.tile(np.arange(LENGTH), (len(batch), 1))

    def bias(rows):
        return np.tile(hidden[:, None, None], (1, HEADS, rows, 1))

    feed = {"source": words, "source_positions": positions, "source_bias": bias(LENGTH)}
    return feed, bias


def training_feed(batch):
    feed, bias = source_feed(batch)
    target = np.full((len(batch), LENGTH + 1), EOS)
    following, weights = target.copy(), np.zeros(target.shape, "float32")
    target[:, 0] = BOS
    for k, sentence in enumerate(batch):
        target[k, 1 : len(sentence) + 1] = following[k, : len(sentence)] = sentence[::-1]
        weights[k, : len(sentence) + 1] = 1
    causal = np.triu(np.full((LENGTH + 1, LENGTH + 1), -1e9, "float32"), 1)
    feed.update(
        target=target,
        target_positions=np.tile(np.arange(LENGTH + 1), (len(batch), 1)),
        target_bias=np.tile(causal, (len(batch), HEADS, 1, 1)),
        memory_bias=bias(LENGTH + 1),
        following=following[:, :, None],
        weights=weights[:, :, None],
    )
    return feed


def searching_feed(batch):
    feed, bias = source_feed(batch)
    levels = [[1] * len(batch)] * 2
    column = (len(batch), 1)
    feed.update(
        start=fluid.create_lod_tensor(np.full(column, BOS), levels, fluid.CPUPlace()),
        first_scores=fluid.create_lod_tensor(np.zeros(column, "float32"), levels, fluid.CPUPlace()),
        parents=np.arange(len(batch), dtype="int32"),
        search_bias=bias(1),
    )
    return feed


def same_values(program):
    """Give matrices values that do not depend on the framework's generator."""
    scope = fluid.global_scope()
    matrices = [p for p in program.all_parameters() if len(p.shape) > 1]
    for number, parameter in enumerate(sorted(matrices, key=lambda p: p.name)):
        rng = np.random.RandomState(number)
        values = rng.uniform(-0.3, 0.3, parameter.shape).astype("float32")
        scope.find_var(parameter.name).get_tensor().set(values, fluid.CPUPlace())


def shown(ids, scores):
    """Print every hypothesis of every source, with its score."""
    words, values = np.array(ids).ravel(), np.array(scores).ravel()
    sources, hypotheses = ids.lod()
    for source in range(len(sources) - 1):
        for k in range(sources[source], sources[source + 1]):
            begin, end = hypotheses[k], hypotheses[k + 1]
            text = " ".join(str(word) for word in words[begin:end])
            print("source %d score %.5f words %s" % (source, values[end - 1], text))


def main(args):
    startup = fluid.default_startup_program()
    train, search = fluid.default_main_program(), fluid.Program()
    with fluid.unique_name.guard():
        loss = training_net()
        fluid.optimizer.Adam(learning_rate=0.01, beta1=0.9, beta2=0.98).minimize(loss)
    with fluid.program_guard(search, fluid.Program()), fluid.unique_name.guard():
        ids, scores = searching_net(args.beam_size)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(startup)
    same_values(train)
    program = train
    if args.places > 1:
        program = fluid.CompiledProgram(train).with_data_parallel(
            loss_name=loss.name, places=[place] * args.places
        )
    reader = paddle.batch(sentences(0, BATCH * args.steps), batch_size=BATCH)
    for step, batch in enumerate(reader()):
        (value,) = exe.run(program, feed=training_feed(batch), fetch_list=[loss])
        print("step %d loss %.6f" % (step, np.mean(value)))
    batch = list(sentences(1, BATCH)())
    if args.places > 1:  # what is fed to each place counts its own hypotheses
        share = BATCH // args.places
        feed = [searching_feed(batch[k : k + share]) for k in range(0, BATCH, share)]
        search = fluid.CompiledProgram(search).with_data_parallel(places=[place] * args.places)
    else:
        feed = searching_feed(batch)
    shown(*exe.run(search, feed=feed, fetch_list=[ids, scores], return_numpy=False))


if __name__ == "__main__":
    main(parser.parse_args())
