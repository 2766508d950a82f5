"""What a visitor looks at next: a GRU over each session, items drawn as rivals, ranks of the right one."""

import argparse

import numpy as np
import paddle
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--places", type=int, default=1)
parser.add_argument("--loss", choices=["softmax", "bpr"], default="softmax")
ITEMS, HIDDEN, BATCH, RIVALS = 40, 10, 6, 5


def sessions(seed, count):
    """Items in the order of a walk; behind each the next, and rivals among which the next stands first."""

    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            steps = rng.randint(1, 4, rng.randint(2, 10))
            items = (rng.randint(ITEMS) + np.cumsum(steps)) % ITEMS
            rivals = rng.randint(0, ITEMS, (len(items) - 1, RIVALS))
            rivals[:, 0] = items[1:]
            yield items[:-1].tolist(), items[1:].tolist(), rivals.tolist()

    return reader


def states_of(items, attr):
    emb = fluid.embedding(input=items, size=[ITEMS, HIDDEN], is_sparse=True, param_attr=attr)
    emb = fluid.layers.reshape(emb, [-1, HIDDEN])
    emb = fluid.layers.lod_reset(emb, items)
    projected = fluid.layers.fc(
        input=emb,
        size=HIDDEN * 3,
        param_attr=fluid.ParamAttr(
            initializer=fluid.initializer.Uniform(low=-0.04, high=0.04), learning_rate=2.0
        ),
    )
    return fluid.layers.dynamic_gru(input=projected, size=HIDDEN)


def softmax_net(items, following):
    states = states_of(items, fluid.ParamAttr(name="item_rows"))
    scores = fluid.layers.fc(input=states, size=ITEMS, act="softmax")
    cost = fluid.layers.cross_entropy(input=scores, label=following)
    return fluid.layers.mean(cost), fluid.layers.accuracy(input=scores, label=following, k=5)


def bpr_net(items, rivals):
    """Score only rivals, by the same rows as the items have; the first of them is right."""
    attr = fluid.ParamAttr(name="item_rows")
    states = states_of(items, attr)
    rows = fluid.embedding(input=rivals, size=[ITEMS, HIDDEN], is_sparse=True, param_attr=attr)
    scores = fluid.layers.matmul(rows, fluid.layers.unsqueeze(states, [2]))
    scores = fluid.layers.squeeze(scores, [2])
    first = fluid.layers.scale(fluid.layers.slice(rivals, [1], [0], [1]), 0.0)
    cost = fluid.layers.bpr_loss(scores, first)
    return fluid.layers.mean(cost), fluid.layers.accuracy(input=scores, label=first)


def same_values(program):
    """Give parameters values that do not depend on the framework's generator."""
    scope = fluid.global_scope()
    for number, parameter in enumerate(sorted(program.all_parameters(), key=lambda p: p.name)):
        rng = np.random.RandomState(number)
        values = rng.uniform(-0.2, 0.2, parameter.shape).astype("float32")
        scope.find_var(parameter.name).get_tensor().set(values, fluid.CPUPlace())


def main(args):
    items = fluid.data(name="items", shape=[None, 1], dtype="int64", lod_level=1)
    if args.loss == "softmax":
        target = fluid.data(name="following", shape=[None, 1], dtype="int64", lod_level=1)
        avg_cost, acc = softmax_net(items, target)
    else:
        target = fluid.data(name="rivals", shape=[None, RIVALS], dtype="int64", lod_level=1)
        avg_cost, acc = bpr_net(items, target)
    fluid.optimizer.Adagrad(learning_rate=0.1).minimize(avg_cost)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    main_program = fluid.default_main_program()
    same_values(main_program)
    program = main_program
    if args.places > 1:
        program = fluid.CompiledProgram(main_program).with_data_parallel(
            loss_name=avg_cost.name, places=[place] * args.places
        )
    reader = paddle.batch(sessions(0, BATCH * args.steps), batch_size=BATCH)
    feeder = fluid.DataFeeder(feed_list=[items, target], place=place)
    column = 1 if args.loss == "softmax" else 2
    for step, data in enumerate(reader()):
        feed = feeder.feed([(row[0], row[column]) for row in data])
        loss, right = exe.run(program, feed=feed, fetch_list=[avg_cost, acc], return_numpy=False)
        print(
            "step %d loss %.6f recall %.3f"
            % (step, np.mean(np.array(loss)), np.mean(np.array(right)))
        )


if __name__ == "__main__":
    main(parser.parse_args())
