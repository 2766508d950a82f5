"""Sentences of any length, a recurrent net whose step is written out (DynamicRNN), a class for each."""

import argparse

import numpy as np
import paddle
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--places", type=int, default=1)
parser.add_argument("--hidden", type=int, default=12)
parser.add_argument("--lazy", action="store_true")
VOCAB, CLASSES, BATCH = 60, 3, 8


def sentences(seed, count):
    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            label = rng.randint(0, CLASSES)
            words = rng.randint(0, VOCAB // 2, rng.randint(1, 12)) + label * rng.randint(0, 2) * 10
            yield words.tolist(), label

    return reader


def rnn_net(words, hidden):
    """Return the probabilities of classes: an LSTM written in the block of a DynamicRNN, its last output."""
    emb = fluid.layers.embedding(input=words, size=[VOCAB, hidden], is_sparse=True)
    sentence = fluid.layers.fc(input=emb, size=hidden, act="tanh")
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(sentence)
        prev_hidden = rnn.memory(value=0.0, shape=[hidden])
        prev_cell = rnn.memory(value=0.0, shape=[hidden])

        def gate(act="sigmoid"):
            return fluid.layers.fc(input=[word, prev_hidden], size=hidden, act=act)

        forget_gate, input_gate, output_gate, cell_gate = gate(), gate(), gate(), gate("tanh")
        cell = fluid.layers.sums(
            input=[
                fluid.layers.elementwise_mul(x=forget_gate, y=prev_cell),
                fluid.layers.elementwise_mul(x=input_gate, y=cell_gate),
            ]
        )
        out = fluid.layers.elementwise_mul(x=output_gate, y=fluid.layers.tanh(x=cell))
        rnn.update_memory(prev_cell, cell)
        rnn.update_memory(prev_hidden, out)
        rnn.output(out)
    last = fluid.layers.sequence_pool(input=rnn(), pool_type="last")
    return fluid.layers.fc(input=last, size=CLASSES, act="softmax")


def same_values(program):
    """Give parameters values that do not depend on the framework's generator."""
    scope = fluid.global_scope()
    for number, parameter in enumerate(sorted(program.all_parameters(), key=lambda p: p.name)):
        rng = np.random.RandomState(number)
        values = rng.uniform(-0.3, 0.3, parameter.shape).astype("float32")
        scope.find_var(parameter.name).get_tensor().set(values, fluid.CPUPlace())


def main(args):
    words = fluid.data(name="words", shape=[None, 1], dtype="int64", lod_level=1)
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    prediction = rnn_net(words, args.hidden)
    avg_cost = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    acc = fluid.layers.accuracy(input=prediction, label=label)
    if args.lazy:  # rows of words that a batch has not stay as they are
        optimizer = fluid.optimizer.Adam(learning_rate=0.02, lazy_mode=True)
    else:
        optimizer = fluid.optimizer.Adagrad(learning_rate=0.05)
    optimizer.minimize(avg_cost)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    same_values(fluid.default_main_program())
    program = fluid.default_main_program()
    if args.places > 1:
        program = fluid.CompiledProgram(program).with_data_parallel(
            loss_name=avg_cost.name, places=[place] * args.places
        )
    feeder = fluid.DataFeeder(feed_list=[words, label], place=place)
    reader = paddle.batch(sentences(0, BATCH * args.steps), batch_size=BATCH)
    for step, data in enumerate(reader()):
        loss, right = exe.run(program, feed=feeder.feed(data), fetch_list=[avg_cost, acc])
        print("step %d loss %.6f accuracy %.3f" % (step, np.mean(loss), np.mean(right)))


if __name__ == "__main__":
    main(parser.parse_args())
