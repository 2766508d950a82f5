"""A generator and a discriminator in two programs that share parameters by name."""

import argparse

import numpy as np
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--parallel", action="store_true")

NOISE = 4


def generator(noise):
    hidden = fluid.layers.fc(noise, size=16, act="relu", param_attr="g_w1", bias_attr="g_b1")
    return fluid.layers.fc(hidden, size=2, param_attr="g_w2", bias_attr="g_b2")


def discriminator(point):
    hidden = fluid.layers.fc(point, size=16, act="leaky_relu", param_attr="d_w1", bias_attr="d_b1")
    return fluid.layers.fc(hidden, size=1, param_attr="d_w2", bias_attr="d_b2")


def loss_of(logit, is_real):
    label = fluid.layers.fill_constant_batch_size_like(logit, [-1, 1], "float32", float(is_real))
    return fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(x=logit, label=label))


def main(args):
    d_program, g_program = fluid.Program(), fluid.Program()
    startup = fluid.Program()
    with fluid.program_guard(d_program, startup):
        real = fluid.data(name="real", shape=[None, 2], dtype="float32")
        noise = fluid.data(name="noise", shape=[None, NOISE], dtype="float32")
        fake = generator(noise)
        fake.stop_gradient = True
        d_loss = loss_of(discriminator(real), True) + loss_of(discriminator(fake), False)
        d_names = [
            p.name for p in d_program.global_block().all_parameters() if p.name.startswith("d_")
        ]
        fluid.optimizer.Adam(learning_rate=2e-3, name="d").minimize(d_loss, parameter_list=d_names)
    with fluid.program_guard(g_program, startup):
        noise = fluid.data(name="noise", shape=[None, NOISE], dtype="float32")
        fake = generator(noise)
        g_loss = loss_of(discriminator(fake), True)
        g_names = [
            p.name for p in g_program.global_block().all_parameters() if p.name.startswith("g_")
        ]
        fluid.optimizer.Adam(learning_rate=2e-3, name="g").minimize(g_loss, parameter_list=g_names)

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    d_train, g_train = d_program, g_program
    if args.parallel:
        d_train = fluid.CompiledProgram(d_program).with_data_parallel(
            loss_name=d_loss.name, places=fluid.cpu_places(2)
        )
        g_train = fluid.CompiledProgram(g_program).with_data_parallel(
            loss_name=g_loss.name, places=fluid.cpu_places(2), share_vars_from=d_train
        )
    rng = np.random.RandomState(0)
    for step in range(args.steps):
        points = (rng.randn(args.batch_size, 2) * 0.1 + [1.0, -1.0]).astype("float32")
        draw = rng.randn(args.batch_size, NOISE).astype("float32")
        d_cost = exe.run(d_train, feed={"real": points, "noise": draw}, fetch_list=[d_loss])[0]
        g_cost, images = exe.run(g_train, feed={"noise": draw}, fetch_list=[g_loss, fake])
        if step % 20 == 0 or step == args.steps - 1:
            print(
                "step %d: d loss %.4f, g loss %.4f, mean %s"
                % (step, np.mean(d_cost), np.mean(g_cost), np.round(images.mean(axis=0), 2))
            )


if __name__ == "__main__":
    main(parser.parse_args())
