"""A DataLoader made from a generator: iterable for one place, started and reset for several."""

import argparse

import numpy as np
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--iterable", type=int, default=1)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=16)

CLASSES = 4


def sample_generator():
    centers = np.random.RandomState(0).randn(CLASSES, 20)
    rng = np.random.RandomState(1)
    for _ in range(256):
        label = rng.randint(CLASSES)
        yield (centers[label] + 0.3 * rng.randn(20)).astype("float32"), np.array([label], "int64")


def network(iterable):
    x = fluid.data(name="x", shape=[None, 20], dtype="float32")
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    loader = fluid.io.DataLoader.from_generator(
        feed_list=[x, label], capacity=8, use_double_buffer=True, iterable=iterable
    )
    hidden = fluid.layers.fc(x, size=32, act="relu")
    hidden = fluid.layers.dropout(hidden, dropout_prob=0.1)
    loss = fluid.layers.mean(
        fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(hidden, size=CLASSES), label)
    )
    fluid.optimizer.Adagrad(learning_rate=0.1).minimize(loss)
    return loader, loss


def main(args):
    loader, loss = network(bool(args.iterable))
    places = fluid.cpu_places(1 if args.iterable else 2)
    loader.set_sample_generator(sample_generator, batch_size=args.batch_size, places=places)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=loss.name, places=places
    )
    for epoch in range(args.epochs):
        losses = []
        if args.iterable:
            for data in loader():
                losses.append(np.mean(exe.run(program, feed=data, fetch_list=[loss])[0]))
        else:
            loader.start()
            try:
                while True:
                    losses.append(np.mean(exe.run(program, fetch_list=[loss])[0]))
            except fluid.core.EOFException:
                loader.reset()
        print(
            "epoch %d: %d batches, first loss %.4f, last loss %.4f"
            % (epoch, len(losses), losses[0], losses[-1])
        )


if __name__ == "__main__":
    main(parser.parse_args())
