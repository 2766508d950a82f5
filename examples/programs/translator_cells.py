"""A translator whose decoder is one cell, taught and searched with by ``fluid.contrib.decoder``."""

import argparse

import numpy as np
import paddle
import paddle.fluid as fluid
from paddle.fluid.contrib.decoder.beam_search_decoder import (
    BeamSearchDecoder,
    InitState,
    StateCell,
    TrainingDecoder,
)

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--places", type=int, default=1)
parser.add_argument("--beam_size", type=int, default=2)
START, END, WORDS, WIDTH, BATCH, LENGTH = 0, 1, 20, 12, 6, 8
layers = fluid.layers


def encoder():
    source = fluid.data(name="source", shape=[None, 1], dtype="int64", lod_level=1)
    embedding = layers.embedding(
        source, [WORDS, WIDTH], is_sparse=True, param_attr=fluid.ParamAttr(name="source_rows")
    )
    gates = layers.fc(embedding, 4 * WIDTH, act="tanh", param_attr="gates_w", bias_attr="gates_b")
    hidden, _ = layers.dynamic_lstm(
        gates, 4 * WIDTH, is_reverse=True, param_attr="lstm_w", bias_attr="lstm_b"
    )
    return layers.sequence_first_step(hidden)


def cell_of(context):
    states = {"h": InitState(init=context, need_reorder=True)}
    cell = StateCell(inputs={"word": None}, states=states, out_state="h")

    @cell.state_updater
    def updater(cell):
        both = [cell.get_state("h"), cell.get_input("word")]
        hidden = layers.fc(both, WIDTH, act="tanh", param_attr=["h_w", "x_w"], bias_attr="h_b")
        cell.set_state("h", hidden)

    return cell


def taught(cell):
    target = fluid.data(name="target", shape=[None, 1], dtype="int64", lod_level=1)
    following = fluid.data(name="following", shape=[None, 1], dtype="int64", lod_level=1)
    rows = fluid.ParamAttr(name="target_rows")
    embedding = layers.embedding(target, [WORDS, WIDTH], is_sparse=True, param_attr=rows)
    decoder = TrainingDecoder(cell)
    with decoder.block():
        word = decoder.step_input(embedding)
        decoder.state_cell.compute_state(inputs={"word": word})
        hidden = decoder.state_cell.get_state("h")
        scores = layers.fc(hidden, WORDS, act="softmax", param_attr="out_w", bias_attr="out_b")
        decoder.state_cell.update_states()
        decoder.output(scores)
    return layers.mean(layers.cross_entropy(decoder(), following))


def searched(cell, beam_size):
    ids = fluid.data(name="ids", shape=[None, 1], dtype="int64", lod_level=2)
    scores = fluid.data(name="scores", shape=[None, 1], dtype="float32", lod_level=2)
    decoder = BeamSearchDecoder(
        state_cell=cell,
        init_ids=ids,
        init_scores=scores,
        target_dict_dim=WORDS,
        word_dim=WIDTH,
        topk_size=WORDS,
        sparse_emb=True,
        max_len=LENGTH,
        beam_size=beam_size,
        end_id=END,
    )
    decoder.decode()
    return decoder()


def pairs(seed, count):
    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            words = rng.randint(2, WORDS, rng.randint(2, LENGTH))
            target = words[::2]
            yield words, np.append(START, target), np.append(target, END)

    return reader


def lod_tensor(parts):
    rows = np.concatenate(parts).astype("int64").reshape(-1, 1)
    return fluid.create_lod_tensor(rows, [[len(part) for part in parts]], fluid.CPUPlace())


def begin(count):
    levels, column = [[1] * count] * 2, (count, 1)
    return {
        "ids": fluid.create_lod_tensor(np.full(column, START), levels, fluid.CPUPlace()),
        "scores": fluid.create_lod_tensor(np.ones(column, "float32"), levels, fluid.CPUPlace()),
    }


def same_values(program):
    """Give parameters values that do not depend on the framework's generator."""
    for number, parameter in enumerate(sorted(program.all_parameters(), key=lambda p: p.name)):
        rng = np.random.RandomState(number)
        values = rng.uniform(-0.4, 0.4, parameter.shape).astype("float32")
        fluid.global_scope().find_var(parameter.name).get_tensor().set(values, fluid.CPUPlace())


def shown(ids, scores):
    """Print every hypothesis of every source, with its score."""
    words, values = np.array(ids).ravel(), np.array(scores).ravel()
    sources, hypotheses = ids.lod()
    for source in range(len(sources) - 1):
        for k in range(sources[source], sources[source + 1]):
            text = " ".join(str(word) for word in words[hypotheses[k] : hypotheses[k + 1]])
            print("source %d score %.5f words %s" % (source, values[hypotheses[k + 1] - 1], text))


def main(args):
    train, search = fluid.default_main_program(), fluid.Program()
    loss = taught(cell_of(encoder()))
    fluid.optimizer.Adagrad(learning_rate=0.1).minimize(loss)
    first = fluid.Program()
    with fluid.program_guard(search, first), fluid.unique_name.guard():
        ids, scores = searched(cell_of(encoder()), args.beam_size)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(first)
    exe.run(fluid.default_startup_program())
    same_values(search)
    same_values(train)
    program = train
    if args.places > 1:
        program = fluid.CompiledProgram(train).with_data_parallel(
            loss_name=loss.name, places=[place] * args.places
        )
    for step, batch in enumerate(paddle.batch(pairs(0, BATCH * args.steps), BATCH)()):
        names = enumerate(("source", "target", "following"))
        feed = {name: lod_tensor([pair[k] for pair in batch]) for k, name in names}
        (value,) = exe.run(program, feed=feed, fetch_list=[loss])
        print("step %d loss %.6f" % (step, np.mean(value)))
    feed = dict(begin(BATCH), source=lod_tensor([words for words, _, _ in pairs(1, BATCH)()]))
    shown(*exe.run(search, feed=feed, fetch_list=[ids, scores], return_numpy=False))


if __name__ == "__main__":
    main(parser.parse_args())
