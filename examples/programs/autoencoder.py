"""An autoencoder that saves each epoch, is stopped, and resumes from what was saved."""

import argparse
import os

import numpy as np
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--num_epochs", type=int, default=4)
parser.add_argument("--save_dir", type=str, default="autoencoder_model")
parser.add_argument("--init_model", type=str, default=None)


def build():
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup):
        with fluid.unique_name.guard():
            x = fluid.data(name="x", shape=[None, 64], dtype="float32")
            code = fluid.layers.fc(input=x, size=8, act="tanh", name="encoder")
            y = fluid.layers.fc(input=code, size=64, name="decoder")
            loss = fluid.layers.reduce_mean(fluid.layers.square_error_cost(y, x))
            test_program = program.clone(for_test=True)
            fluid.optimizer.Adam(learning_rate=3e-3).minimize(loss)
    return program, startup, test_program, x, code, loss


def batches(epoch):
    basis = np.random.RandomState(0).randn(8, 64)
    rng = np.random.RandomState(epoch)
    for _ in range(40):
        yield rng.randn(32, 8).dot(basis).astype("float32") / 8


def train(first, last, save_dir, init_model=None):
    program, startup, test_program, x, code, loss = build()
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        if init_model is not None:
            fluid.io.load_persistables(exe, init_model, main_program=program)
        for epoch in range(first, last):
            losses = [
                exe.run(program, feed={"x": rows}, fetch_list=[loss])[0] for rows in batches(epoch)
            ]
            path = os.path.join(save_dir, str(epoch))
            if not os.path.isdir(path):
                os.makedirs(path)
            fluid.io.save_persistables(exe, path, main_program=program)
            print("epoch %d loss %.6f" % (epoch, np.mean(losses)))
        tested = exe.run(test_program, feed={"x": next(batches(99))}, fetch_list=[loss])[0]
        fluid.io.save_inference_model(
            os.path.join(save_dir, "infer"), ["x"], [code], exe, main_program=program
        )
    return float(tested)


def infer(save_dir):
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feed_names, targets = fluid.io.load_inference_model(
            dirname=os.path.join(save_dir, "infer"), executor=exe
        )
        (codes,) = exe.run(program, feed={feed_names[0]: next(batches(99))}, fetch_list=targets)
    return codes


def main(args):
    if args.init_model:
        print("test loss %.6f" % train(0, args.num_epochs, args.save_dir, args.init_model))
        return
    through = train(0, args.num_epochs, os.path.join(args.save_dir, "through"))
    half = args.num_epochs // 2
    parts = os.path.join(args.save_dir, "parts")
    train(0, half, parts)
    resumed = train(half, args.num_epochs, parts, init_model=os.path.join(parts, str(half - 1)))
    print("test loss %.6f, resumed %.6f" % (through, resumed))
    print("codes", infer(parts).shape)


if __name__ == "__main__":
    main(parser.parse_args())
