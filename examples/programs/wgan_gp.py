"""A Wasserstein GAN with gradient penalty (arXiv 1704.00028): the critic's slope is held to 1."""

import argparse

import numpy as np
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--n_critic", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=16)
parser.add_argument("--places", type=int, default=1)

NOISE, SIZE = 8, 8


def generator(noise):
    hidden = fluid.layers.fc(noise, 32, act="relu", param_attr="g_w1", bias_attr="g_b1")
    image = fluid.layers.fc(hidden, SIZE * SIZE, act="tanh", param_attr="g_w2", bias_attr="g_b2")
    return fluid.layers.reshape(image, [-1, 1, SIZE, SIZE])


def critic(image):
    x = fluid.layers.conv2d(image, 8, 3, stride=2, padding=1, param_attr="d_w1", bias_attr="d_b1")
    x = fluid.layers.leaky_relu(x, alpha=0.2)
    x = fluid.layers.conv2d(x, 16, 3, stride=2, padding=1, param_attr="d_w2", bias_attr="d_b2")
    x = fluid.layers.leaky_relu(x, alpha=0.2)
    x = fluid.layers.reshape(x, [-1, 16 * (SIZE // 4) ** 2])
    return fluid.layers.fc(x, 1, param_attr="d_w3", bias_attr="d_b3")


def gradient_penalty(real, fake, alpha):
    """How far the critic's slope is from 1, at a point between each pair of images."""
    between = fluid.layers.elementwise_mul(fake, alpha, axis=0)
    between = between + fluid.layers.elementwise_mul(real, 1.0 - alpha, axis=0)
    weights = [p.name for p in fluid.default_main_program().all_parameters() if p.name[:2] == "d_"]
    grad = fluid.gradients(critic(between), between, no_grad_set=weights)[0]
    grad = fluid.layers.reshape(grad, [-1, SIZE * SIZE])
    norm = fluid.layers.sqrt(fluid.layers.reduce_sum(fluid.layers.square(grad), dim=1) + 1e-16)
    return fluid.layers.reduce_mean(fluid.layers.square(norm - 1.0))


def squares(rng, count):
    """Dark images with a bright square somewhere."""
    images = np.full((count, 1, SIZE, SIZE), -1.0, "float32")
    for image in images:
        row, column = rng.randint(0, SIZE - 3, 2)
        image[0, row : row + 4, column : column + 4] = 1.0
    return images


def main(args):
    d_program, g_program, startup = fluid.Program(), fluid.Program(), fluid.Program()
    with fluid.program_guard(d_program, startup):
        real = fluid.data(name="real", shape=[None, 1, SIZE, SIZE], dtype="float32")
        real.stop_gradient = False
        noise = fluid.data(name="noise", shape=[None, NOISE], dtype="float32")
        alpha = fluid.data(name="alpha", shape=[None], dtype="float32")
        fake = generator(noise)
        distance = fluid.layers.reduce_mean(critic(real)) - fluid.layers.reduce_mean(critic(fake))
        penalty = gradient_penalty(real, fake, alpha)
        d_loss = 10.0 * penalty - distance
        d_names = [p.name for p in d_program.all_parameters() if p.name[:2] == "d_"]
        fluid.optimizer.Adam(1e-3, beta1=0.5, beta2=0.9, name="d").minimize(
            d_loss, parameter_list=d_names
        )
    with fluid.program_guard(g_program, startup):
        noise = fluid.data(name="noise", shape=[None, NOISE], dtype="float32")
        fake = generator(noise)
        g_loss = fluid.layers.reduce_mean(-1.0 * critic(fake))
        g_names = [p.name for p in g_program.all_parameters() if p.name[:2] == "g_"]
        fluid.optimizer.Adam(1e-3, beta1=0.5, beta2=0.9, name="g").minimize(
            g_loss, parameter_list=g_names
        )

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    d_train, g_train = d_program, g_program
    if args.places > 1:
        places = fluid.cpu_places(args.places)
        d_train = fluid.CompiledProgram(d_program).with_data_parallel(
            loss_name=d_loss.name, places=places
        )
        g_train = fluid.CompiledProgram(g_program).with_data_parallel(
            loss_name=g_loss.name, places=places, share_vars_from=d_train
        )
    rng = np.random.RandomState(0)
    for step in range(args.steps):
        for _ in range(args.n_critic):
            draw = rng.randn(args.batch_size, NOISE).astype("float32")
            feed = {"real": squares(rng, args.batch_size), "noise": draw}
            feed["alpha"] = rng.uniform(0, 1, args.batch_size).astype("float32")
            costs = exe.run(d_train, feed=feed, fetch_list=[d_loss, distance, penalty])
        (g_cost,) = exe.run(g_train, feed={"noise": draw}, fetch_list=[g_loss])
        if step % 5 == 0 or step == args.steps - 1:
            cost, gap, slope = (np.mean(value) for value in costs)
            print("step %d: loss %.4f, distance %.4f" % (step, cost, gap), end=", ")
            print("penalty loss %.4f, generator loss %.4f" % (slope, np.mean(g_cost)))


if __name__ == "__main__":
    main(parser.parse_args())
