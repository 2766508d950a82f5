"""Programs whose shapes are data, for benchmarks: sequences, and rows of large tables.

As in ``models.py``, each function builds into the current program and returns the loss, an optimizer and what
two places are fed: here several batches, which follow each other. The batches are drawn apart from the programs
(``DRAWS``), so that rivals of other interfaces take the same. Python 3.7 runs this, too.

``OMP_NUM_THREADS=1 python -m benchmarks.sequence_models`` tells what ever-changing lengths cost Rowlock: steps
of one length, of a mix of 200 lengths that were met before, and of a length that is new in each. On one place
these are milliseconds of the thread, on several (``--places 2``) of the clock. Each program has a process.
"""

import argparse
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np

BATCHES = 8
TEXT = {
    "words": 20000,
    "width": 128,
    "length": 64,
    "windows": (3, 4, 5),
    "channels": 64,
    "rows": 64,
}
LSTM = {"words": 20000, "width": 128, "hidden": 256, "lengths": (5, 81), "sentences": 32}
FIELDS = {"count": 26, "table": 1000000, "width": 16, "dense": 13, "hidden": 400, "rows": 512}
SESSIONS = {"items": 5000, "hidden": 100, "rows": 600, "sessions": 32}
# Of a mix; steps of one kind before those of the other; of these lengths, how many are repeated
LENGTHS, TURN, REPEATED = 200, 20, 4
PAIRS = {"words": 5000, "width": 128, "lengths": (5, 31), "sentences": 32}


class Sentences(NamedTuple):
    """int64 words [sum of ``lengths``] of sentences that follow each other."""

    words: np.ndarray
    lengths: list


def sentences(rng, size, lengths):
    """Return random sentences of these lengths."""
    return Sentences(rng.randint(0, size["words"], sum(lengths)).astype("int64"), list(lengths))


def lengths_of(rng, size):
    """Return random lengths of a batch."""
    return rng.randint(*size["lengths"], size["sentences"])


def draw_text(rng):
    """Return one batch of rows of words, and a class for each row."""
    rows = TEXT["rows"]
    return {
        "words": rng.randint(0, TEXT["words"], (rows, TEXT["length"])).astype("int64"),
        "label": rng.randint(0, 10, (rows, 1)).astype("int64"),
    }


def draw_sentences(rng):
    """Return one batch of sentences, and one of two classes for each."""
    return {
        "words": sentences(rng, LSTM, lengths_of(rng, LSTM)),
        "label": rng.randint(0, 2, (LSTM["sentences"], 1)).astype("int64"),
    }


def draw_clicks(rng):
    """Return one batch of dense numbers, ids of rows of the table, and clicks."""
    rows = FIELDS["rows"]
    return {
        "dense": rng.rand(rows, FIELDS["dense"]).astype("float32"),
        "ids": rng.randint(0, FIELDS["table"], (rows, FIELDS["count"])).astype("int64"),
        "label": rng.randint(0, 2, (rows, 1)).astype("int64"),
    }


def draw_pairs(rng):
    """Return one batch of sentences, translations, and the word that follows each word of these."""
    source, target = (lengths_of(rng, PAIRS) for _ in range(2))
    return {
        "source": sentences(rng, PAIRS, source),
        "target": sentences(rng, PAIRS, target),
        "following": sentences(rng, PAIRS, target),
    }


DRAWS = {
    "text_cnn_sparse": draw_text,
    "stacked_lstm": draw_sentences,
    "click_through": draw_clicks,
    "translator": draw_pairs,
}


def batches(name, rng):
    """Return the batches of a program."""
    return [DRAWS[name](rng) for _ in range(BATCHES)]


def fed(fluid, value):
    """Return what a place is fed: sentences as a LoD tensor [words, 1]."""
    if not isinstance(value, Sentences):
        return value
    return fluid.create_lod_tensor(value.words[:, None], [value.lengths], fluid.CPUPlace())


def feeds_of(fluid, name, rng):
    """Return the batches of a program as they are fed."""
    return [
        {key: fed(fluid, value) for key, value in batch.items()} for batch in batches(name, rng)
    ]


def text_cnn_sparse(fluid, rng, length=TEXT["length"]):
    """Windows of 3, 4 and 5 over words, a sparse embedding of 20,000 x 128, 2 x 32 rows, lazy Adam."""
    size, layers = TEXT, fluid.layers
    words = fluid.data("words", [None, length], "int64")
    label = fluid.data("label", [None, 1], "int64")
    vectors = fluid.embedding(words, (size["words"], size["width"]), is_sparse=True)
    image, features = layers.unsqueeze(vectors, [1]), []
    for length in size["windows"]:
        maps = layers.conv2d(image, size["channels"], (length, size["width"]), act="relu")
        features.append(layers.pool2d(maps, pool_type="max", global_pooling=True))
    scores = layers.fc(layers.concat(features, 1), 10)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
    return loss, fluid.optimizer.Adam(1e-3, lazy_mode=True), feeds_of(fluid, "text_cnn_sparse", rng)


def stacked_lstm(fluid, rng):
    """Two LSTMs of 256 cells, forwards and backwards, 2 x 16 sentences of 5 to 80 words, Adam."""
    size, layers = LSTM, fluid.layers
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    label = fluid.data("label", [None, 1], "int64")
    hidden = layers.embedding(words, (size["words"], size["width"]), is_sparse=True)
    for backwards in (False, True):
        gates = layers.fc(hidden, 4 * size["hidden"])
        hidden, _ = layers.dynamic_lstm(
            gates, 4 * size["hidden"], use_peepholes=False, is_reverse=backwards
        )
    scores = layers.fc(layers.sequence_pool(hidden, "max"), 2)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
    return loss, fluid.optimizer.Adam(1e-3, lazy_mode=True), feeds_of(fluid, "stacked_lstm", rng)


def click_through(fluid, rng):
    """26 sparse fields over a table of 1,000,000 x 16, three layers of 400, 2 x 256 rows, Adagrad."""
    size, layers = FIELDS, fluid.layers
    dense = fluid.data("dense", [None, size["dense"]])
    ids = fluid.data("ids", [None, size["count"]], "int64")
    label = fluid.data("label", [None, 1], "int64")
    rows = fluid.embedding(ids, (size["table"], size["width"]), is_sparse=True)
    rows = layers.reshape(rows, [-1, size["count"] * size["width"]])
    hidden = layers.concat([rows, dense], 1)
    for _ in range(3):
        hidden = layers.fc(hidden, size["hidden"], act="relu")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 2), label))
    return loss, fluid.optimizer.Adagrad(1e-2), feeds_of(fluid, "click_through", rng)


def attended(fluid, state, memory, projected):
    """Return the mean of a memory's rows, weighted by how each suits the state of its sentence."""
    layers = fluid.layers
    query = layers.fc(state, projected.shape[1], bias_attr=False)
    query = layers.sequence_expand(x=query, y=projected)
    fit = layers.fc(layers.concat([projected, query], 1), 1, act="tanh", bias_attr=False)
    weights = layers.reshape(layers.sequence_softmax(fit), [-1])
    return layers.sequence_pool(layers.elementwise_mul(memory, weights, axis=0), "sum")


def translator(fluid, rng):
    """A GRU both ways, and a decoder with attention (DynamicRNN), 2 x 16 pairs of 5 to 30 words, Adam."""
    size, layers = PAIRS, fluid.layers
    words, width = size["words"], size["width"]
    source, target, following = (
        fluid.data(name, [None, 1], "int64", lod_level=1)
        for name in ("source", "target", "following")
    )
    source_vectors = layers.embedding(source, (words, width))
    both = [
        layers.dynamic_gru(layers.fc(source_vectors, 3 * width), width, is_reverse=backwards)
        for backwards in (False, True)
    ]
    memory = layers.concat(both, 1)
    projected = layers.fc(memory, width, bias_attr=False)
    first = layers.fc(layers.sequence_first_step(both[1]), width, act="tanh")
    target_vectors = layers.embedding(target, (words, width))
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(target_vectors)
        memory, projected = rnn.static_input(memory), rnn.static_input(projected)
        state = rnn.memory(init=first, need_reorder=True)
        context = attended(fluid, state, memory, projected)
        gates = layers.fc([context, word], 3 * width)
        state_after, _, _ = layers.gru_unit(gates, state, 3 * width)
        rnn.update_memory(state, state_after)
        rnn.output(state_after)
    scores = layers.fc(rnn(), words)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, following))
    return loss, fluid.optimizer.Adam(1e-3), feeds_of(fluid, "translator", rng)


SEQUENCE_MODELS = {
    made.__name__: made for made in (text_cnn_sparse, stacked_lstm, click_through, translator)
}


def text_cnn_uneven(fluid, rng):
    """The text CNN for sentences of any length."""
    return text_cnn_sparse(fluid, rng, None)


def click_through_uneven(fluid, rng):
    """The clicks with 26 fields of any number of ids, whose rows of one table are summed; it has no feeds."""
    size, layers = FIELDS, fluid.layers
    dense = fluid.data("dense", [None, size["dense"]])
    label = fluid.data("label", [None, 1], "int64")
    columns = [dense]
    for k in range(size["count"]):
        ids = fluid.data(f"ids{k}", [None, 1], "int64", lod_level=1)
        shape, table = (size["table"], size["width"]), fluid.ParamAttr(name="table")
        rows = layers.embedding(ids, shape, is_sparse=True, param_attr=table)
        columns.append(layers.sequence_pool(rows, "sum"))
    hidden = layers.concat(columns, 1)
    for _ in range(3):
        hidden = layers.fc(hidden, size["hidden"], act="relu")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 2), label))
    return loss, fluid.optimizer.Adagrad(1e-2), []


def session_gru(fluid, rng):
    """What comes next in sessions, by a GRU of 100 cells over 5,000 items, sparse Adagrad; it has no feeds."""
    size, layers = SESSIONS, fluid.layers
    items, following = (
        fluid.data(name, [None, 1], "int64", lod_level=1) for name in ("items", "following")
    )
    rows = layers.embedding(items, (size["items"], size["hidden"]), is_sparse=True)
    states = layers.dynamic_gru(layers.fc(rows, 3 * size["hidden"]), size["hidden"])
    scores = layers.fc(states, size["items"] // 10, act="softmax")
    loss = layers.mean(layers.cross_entropy(scores, following))
    return loss, fluid.optimizer.Adagrad(0.1), []


def spread(rng, rows, count):
    """Return lengths of ``count`` sequences, of two at least, that have so many rows in all."""
    return rng.multinomial(rows - 2 * count, [1 / count] * count) + 2


def sessions_of(fluid, rng, rows):
    lengths = spread(rng, rows, SESSIONS["sessions"])
    return {
        name: fed(fluid, sentences(rng, {"words": SESSIONS["items"] // 10}, lengths))
        for name in ("items", "following")
    }


def sentences_of(fluid, rng, rows):
    label = rng.randint(0, 2, (LSTM["sentences"], 1)).astype("int64")
    lengths = spread(rng, rows, LSTM["sentences"])
    return {"words": fed(fluid, sentences(rng, LSTM, lengths)), "label": label}


def texts_of(fluid, rng, words):
    """Return about so many words, in 16 to 48 texts of the same length."""
    texts = int(rng.randint(16, 49))
    label = rng.randint(0, 10, (texts, 1)).astype("int64")
    shape = (texts, max(words // texts, 5))
    return {"words": rng.randint(0, TEXT["words"], shape).astype("int64"), "label": label}


def clicks_of(fluid, rng, ids):
    """Return rows of clicks, whose fields have about so many ids, each another number."""
    rows = FIELDS["rows"]
    feed = {
        "dense": rng.rand(rows, FIELDS["dense"]).astype("float32"),
        "label": rng.randint(0, 2, (rows, 1)).astype("int64"),
    }
    for k in range(FIELDS["count"]):
        more = ids + int(rng.randint(-rows // 4, rows // 4)) - rows
        lengths = rng.multinomial(more, [1 / rows] * rows) + 1
        feed[f"ids{k}"] = fed(fluid, sentences(rng, {"words": FIELDS["table"]}, lengths))
    return feed


def pairs_of(fluid, rng, rows):
    source, target = (spread(rng, rows, PAIRS["sentences"]) for _ in range(2))
    lengths = {"source": source, "target": target, "following": target}
    return {name: fed(fluid, sentences(rng, PAIRS, each)) for name, each in lengths.items()}


# Model -> what it is fed, by rows, and the mean of rows
UNEVEN = (
    (session_gru, sessions_of, SESSIONS["rows"]),
    (stacked_lstm, sentences_of, 42 * LSTM["sentences"]),
    (text_cnn_uneven, texts_of, 32 * TEXT["length"]),
    (click_through_uneven, clicks_of, 3 * FIELDS["rows"]),
    (translator, pairs_of, 17 * PAIRS["sentences"]),
)


def measure_lengths(fluid, places, model, feed_of, mean):
    """Print the milliseconds of steps: one length, a mix of lengths, a new one in each step."""
    rng, main, startup = np.random.RandomState(0), fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, optimizer, _ = model(fluid, rng)
        optimizer.minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    program, clock = main, time.thread_time
    if places > 1:
        clock = time.perf_counter
        program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name, places=fluid.cpu_places(places)
        )

    def milliseconds(feed):
        began = clock()
        exe.run(program, feed=feed, fetch_list=[loss], scope=scope)
        return (clock() - began) * 1e3

    step = mean // LENGTHS
    rows = mean + (np.arange(LENGTHS) - LENGTHS // 2) * step + step // 2
    mix = [feed_of(fluid, rng, int(n)) for n in rng.permutation(rows)]
    for feed in [feed_of(fluid, rng, mean)] * TURN:
        milliseconds(feed)
    # New and known follow each other closely: a busy neighbour disturbs both alike.
    turns = [mix[k : k + TURN] for k in range(0, LENGTHS, TURN)]
    new, known = np.concatenate(
        [[[milliseconds(feed) for feed in turn] for _ in range(2)] for turn in turns], 1
    )
    # A step costs by its rows: in the end each length was repeated as often as it was one of the mix.
    one, mixed = [], []
    for k in range(0, TURN, TURN // REPEATED):
        for turn in turns:
            mixed += [milliseconds(feed) for feed in turn]
            for feed in turn[k : k + TURN // REPEATED]:
                one += [milliseconds(feed) for _ in range(1 + REPEATED)][1:]
    one, mixed = np.mean(one), np.mean(mixed)
    print(
        f"{model.__name__:20} one length {one:7.2f}, {LENGTHS} lengths {mixed:7.2f} "
        f"({one / mixed:.2f} of its speed), a new one each step {np.mean(new):7.2f} "
        f"(median to bind {np.median(new - known):.2f})",
        flush=True,
    )


if __name__ == "__main__":
    import rowlock.fluid

    every = [entry[0].__name__ for entry in UNEVEN]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "programs", nargs="*", default=every, metavar="PROGRAM", help=", ".join(every)
    )
    parser.add_argument("--places", type=int, default=1, help="replicas (default: %(default)s)")
    options = parser.parse_args()
    programs = options.programs
    if not set(programs) <= set(every):
        parser.error(f"programs are {', '.join(every)}")
    if len(programs) > 1:  # what one leaves in replicas would slow the next
        own = [sys.executable, "-m", "benchmarks.sequence_models", "--places", str(options.places)]
        sys.exit(max(subprocess.run([*own, program]).returncode for program in programs))
    (entry,) = (entry for entry in UNEVEN if entry[0].__name__ == programs[0])
    measure_lengths(rowlock.fluid, options.places, *entry)
