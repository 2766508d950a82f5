"""A static-graph program in the style of Paddle 2.x: save, load, and predict with what was saved."""

import argparse
import os

import numpy as np
import paddle
import paddle.nn.functional as F
import paddle.static as static

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--path", type=str, default="static_2x_model")


def network(x, label):
    hidden = static.nn.fc(x, size=32, activation="relu")
    hidden = F.dropout(hidden, p=0.1)
    logits = static.nn.fc(hidden, size=3)
    loss = F.cross_entropy(logits, label)
    acc = static.accuracy(input=F.softmax(logits), label=label)
    return F.softmax(logits), loss, acc


def batches(seed):
    rng = np.random.RandomState(seed)
    for _ in range(20):
        x = rng.randn(32, 8).astype("float32")
        yield x, x[:, :3].argmax(axis=1).reshape(-1, 1).astype("int64")


def main(args):
    paddle.enable_static()
    paddle.seed(2024)
    main_program, startup_program = static.Program(), static.Program()
    with static.program_guard(main_program, startup_program):
        x = static.data(name="x", shape=[None, 8], dtype="float32")
        label = static.data(name="label", shape=[None, 1], dtype="int64")
        predict, loss, acc = network(x, label)
        test_program = main_program.clone(for_test=True)
        scheduler = paddle.optimizer.lr.StepDecay(learning_rate=0.02, step_size=2, gamma=0.5)
        optimizer = paddle.optimizer.Adam(
            learning_rate=scheduler, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)
        )
        optimizer.minimize(loss)

    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup_program)
    for epoch in range(args.epochs):
        for rows, labels in batches(epoch):
            cost, accuracy = exe.run(
                main_program, feed={"x": rows, "label": labels}, fetch_list=[loss, acc]
            )
        scheduler.step()
        print("epoch %d loss %f acc %f" % (epoch, cost, accuracy))

    folder = os.path.dirname(args.path)
    if folder and not os.path.isdir(folder):
        os.makedirs(folder)
    static.save(main_program, args.path)
    static.load(main_program, args.path, exe)
    rows, labels = next(batches(77))
    (tested,) = exe.run(test_program, feed={"x": rows, "label": labels}, fetch_list=[acc])
    print("test acc %f" % tested)


if __name__ == "__main__":
    main(parser.parse_args())
