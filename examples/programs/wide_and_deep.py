"""Wide and deep: sparse features through embeddings beside dense ones, scored by the area under the curve."""

import argparse
import time

import numpy as np
import paddle
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--num_epochs", type=int, default=3)
parser.add_argument("--samples", type=int, default=1024)
parser.add_argument("--places", type=int, default=1)

DENSE, FIELDS, VOCABULARY, WIDTH = 13, 5, 1000, 8


def network():
    dense = fluid.data(name="dense_input", shape=[None, DENSE], dtype="float32")
    sparse = [fluid.data(name="C%d" % i, shape=[None, 1], dtype="int64") for i in range(FIELDS)]
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")

    def embed(input):
        return fluid.layers.embedding(
            input=input,
            is_sparse=True,
            size=[VOCABULARY, WIDTH],
            param_attr=fluid.ParamAttr(
                name="SparseFeatFactors", initializer=fluid.initializer.Uniform(-0.1, 0.1)
            ),
        )

    deep = fluid.layers.concat([embed(one) for one in sparse] + [dense], axis=1)
    for size in (64, 32):
        deep = fluid.layers.fc(
            input=deep,
            size=size,
            act="relu",
            param_attr=fluid.ParamAttr(
                initializer=fluid.initializer.Normal(scale=1.0 / np.sqrt(deep.shape[1]))
            ),
        )
    wide = fluid.layers.fc(input=dense, size=1)
    both = fluid.layers.concat([wide, deep], axis=1)
    predict = fluid.layers.fc(input=both, size=2, act="softmax")
    cost = fluid.layers.cross_entropy(input=predict, label=label)
    auc_var, batch_auc_var, _ = fluid.layers.auc(
        input=predict, label=label, num_thresholds=2**12, slide_steps=20
    )
    return dense, sparse, label, predict, fluid.layers.mean(cost), auc_var, batch_auc_var


def samples(count):
    def reader():
        rng = np.random.RandomState(3)
        taste = np.random.RandomState(4).randn(VOCABULARY)
        for _ in range(count):
            dense = rng.rand(DENSE).astype("float32")
            ids = rng.randint(0, VOCABULARY, FIELDS)
            score = taste[ids % 50].sum() + 2 * (dense[0] - 0.5)
            yield [dense] + [[int(i) % 50] for i in ids] + [[int(score > 0)]]

    return reader


def main(args):
    dense, sparse, label, predict, loss, auc_var, batch_auc = network()
    optimizer = fluid.optimizer.Adam(learning_rate=0.01)
    optimizer.minimize(loss)

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.default_main_program()
    if args.places > 1:
        program = fluid.CompiledProgram(program).with_data_parallel(
            loss_name=loss.name, places=fluid.cpu_places(args.places)
        )
    feeder = fluid.DataFeeder(feed_list=[dense] + sparse + [label], place=fluid.CPUPlace())
    reader = paddle.batch(samples(args.samples), args.batch_size, drop_last=True)
    metric = fluid.metrics.Auc(name="auc")
    for epoch in range(args.num_epochs):
        start = time.time()
        metric.reset()
        for batch_id, data in enumerate(reader()):
            cost, auc, scores = exe.run(
                program=program, feed=feeder.feed(data), fetch_list=[loss, auc_var, predict]
            )
            metric.update(preds=scores, labels=np.array([row[-1] for row in data]))
            if batch_id % 8 == 0:
                print(
                    "epoch %d batch %d loss %.4f auc %.4f"
                    % (epoch, batch_id, np.mean(cost), np.mean(auc))
                )
        print("epoch %d auc %.4f in %.1f s" % (epoch, metric.eval(), time.time() - start))


if __name__ == "__main__":
    main(parser.parse_args())
