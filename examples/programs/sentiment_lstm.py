"""Sentences of any length, stacked LSTMs that walk forwards and backwards in turn, the largest over time."""

import argparse

import numpy as np
import paddle
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--places", type=int, default=1)
parser.add_argument("--stacked", type=int, default=3)
VOCAB, CLASSES, BATCH = 60, 2, 8


def sentences(seed, count):
    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            label = rng.randint(0, CLASSES)
            words = rng.randint(0, VOCAB // 2, rng.randint(1, 12)) + label * rng.randint(0, 2) * 20
            yield words.tolist(), label

    return reader


def stacked_lstm_net(data, input_dim, class_dim, emb_dim, hid_dim, stacked_num):
    assert stacked_num % 2 == 1
    emb = fluid.layers.embedding(input=data, size=[input_dim, emb_dim], is_sparse=True)
    fc1 = fluid.layers.fc(input=emb, size=hid_dim)
    lstm1, cell1 = fluid.layers.dynamic_lstm(input=fc1, size=hid_dim)
    inputs = [fc1, lstm1]
    for i in range(2, stacked_num + 1):
        fc = fluid.layers.fc(input=inputs, size=hid_dim)
        lstm, cell = fluid.layers.dynamic_lstm(input=fc, size=hid_dim, is_reverse=(i % 2) == 0)
        inputs = [fc, lstm]
    fc_last = fluid.layers.sequence_pool(input=inputs[0], pool_type="max")
    lstm_last = fluid.layers.sequence_pool(input=inputs[1], pool_type="max")
    return fluid.layers.fc(input=[fc_last, lstm_last], size=class_dim, act="softmax")


def same_values(program):
    """Give parameters values that do not depend on the framework's generator."""
    scope = fluid.global_scope()
    for number, parameter in enumerate(sorted(program.all_parameters(), key=lambda p: p.name)):
        rng = np.random.RandomState(number)
        values = rng.uniform(-0.2, 0.2, parameter.shape).astype("float32")
        scope.find_var(parameter.name).get_tensor().set(values, fluid.CPUPlace())


def main(args):
    words = fluid.data(name="words", shape=[None, 1], dtype="int64", lod_level=1)
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    prediction = stacked_lstm_net(words, VOCAB, CLASSES, 8, 28, args.stacked)
    cost = fluid.layers.cross_entropy(input=prediction, label=label)
    avg_cost = fluid.layers.mean(cost)
    acc = fluid.layers.accuracy(input=prediction, label=label)
    fluid.optimizer.Adagrad(learning_rate=0.05).minimize(avg_cost)
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
