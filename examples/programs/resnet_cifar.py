"""A small residual net on 3 x 32 x 32 images: piecewise decay, named parameters, L2 decay, data-parallel."""

import argparse

import numpy as np
import paddle
import paddle.fluid as fluid
from paddle.fluid.param_attr import ParamAttr

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--num_epochs", type=int, default=2)
parser.add_argument("--samples", type=int, default=256)
parser.add_argument("--places", type=int, default=2)


def conv_bn(input, filters, size, stride=1, act="relu", name=None):
    conv = fluid.layers.conv2d(
        input=input,
        num_filters=filters,
        filter_size=size,
        stride=stride,
        padding=(size - 1) // 2,
        act=None,
        param_attr=ParamAttr(name=name + "_weights", initializer=fluid.initializer.MSRA()),
        bias_attr=False,
    )
    return fluid.layers.batch_norm(
        input=conv,
        act=act,
        param_attr=ParamAttr(name=name + "_bn_scale"),
        bias_attr=ParamAttr(name=name + "_bn_offset"),
        moving_mean_name=name + "_bn_mean",
        moving_variance_name=name + "_bn_variance",
    )


def block(input, filters, stride, name):
    body = conv_bn(input, filters, 3, stride, name=name + "_a")
    body = conv_bn(body, filters, 3, act=None, name=name + "_b")
    if stride != 1 or input.shape[1] != filters:
        input = conv_bn(input, filters, 1, stride, act=None, name=name + "_short")
    return fluid.layers.elementwise_add(x=input, y=body, act="relu")


def net(image, label):
    hidden = conv_bn(image, 16, 3, name="stem")
    for stage, filters in enumerate([16, 32, 64]):
        hidden = block(hidden, filters, 1 if stage == 0 else 2, "stage%d" % stage)
    pool = fluid.layers.pool2d(input=hidden, pool_type="avg", global_pooling=True)
    predict = fluid.layers.fc(input=pool, size=10, act="softmax")
    cost = fluid.layers.cross_entropy(input=predict, label=label)
    return fluid.layers.mean(cost), fluid.layers.accuracy(input=predict, label=label)


def samples(count):
    rng = np.random.RandomState(0)
    patterns = rng.randn(10, 3 * 32 * 32).astype("float32")

    def reader():
        draw = np.random.RandomState(1)
        for _ in range(count):
            label = draw.randint(10)
            yield patterns[label] + 0.5 * draw.randn(3 * 32 * 32).astype("float32"), label

    return reader


def main(args):
    image = fluid.layers.data(name="image", shape=[3, 32, 32], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    loss, acc = net(image, label)
    test_program = fluid.default_main_program().clone(for_test=True)

    steps = max(args.samples // args.batch_size, 1)
    rate = fluid.layers.piecewise_decay(boundaries=[steps, 4 * steps], values=[0.05, 0.02, 0.005])
    fluid.optimizer.Momentum(
        learning_rate=rate,
        momentum=0.9,
        regularization=fluid.regularizer.L2Decay(1e-4),
    ).minimize(loss)

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    train_program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=loss.name, places=fluid.cpu_places(args.places)
    )
    feeder = fluid.DataFeeder(feed_list=[image, label], place=fluid.CPUPlace())
    train_reader = paddle.batch(
        paddle.reader.shuffle(samples(args.samples), buf_size=512), batch_size=args.batch_size
    )
    test_reader = paddle.batch(samples(64), batch_size=args.batch_size)
    for epoch in range(args.num_epochs):
        for data in train_reader():
            cost, accuracy = exe.run(
                train_program, feed=feeder.feed(data), fetch_list=[loss.name, acc.name]
            )
        tested = [
            exe.run(test_program, feed=feeder.feed(data), fetch_list=[loss, acc])
            for data in test_reader()
        ]
        test_cost, test_acc = np.array(tested).mean(axis=0).flatten()
        print(
            "epoch %d, train loss %f, train acc %f, test loss %f, test acc %f"
            % (epoch, np.mean(cost), np.mean(accuracy), test_cost, test_acc)
        )


if __name__ == "__main__":
    main(parser.parse_args())
