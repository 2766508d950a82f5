"""ESPCN super-resolution: sub-pixel convolution, smooth L1, PSNR."""

import argparse
import math
import numpy as np
import paddle.fluid as fluid


def espcn(x, scale):
    x = fluid.layers.conv2d(x, 16, 5, padding=2, act="tanh")
    for _i in range(2):
        y = fluid.layers.conv2d(x, 16, 3, padding=1)
        y = fluid.layers.prelu(
            y, "all", param_attr=fluid.ParamAttr(initializer=fluid.initializer.Constant(0.2))
        )
        x = fluid.layers.elementwise_add(x, fluid.layers.scale(y, 0.3))
    x = fluid.layers.conv2d(x, scale**2, 3, padding=1)
    return fluid.layers.pixel_shuffle(x, scale)


def psnr(a, b):
    mse = fluid.layers.reduce_mean(fluid.layers.square_error_cost(a, b))
    return fluid.layers.log(1.0 / mse) * (10.0 / math.log(10))


def images(n, rng):
    f = rng.rand(n, 2, 1, 1) * 1.5
    y, x = np.mgrid[:16, :16]
    high = np.sin(f[:, :1] * x + f[:, 1:] * y)[:, :, :, :] * 0.5 + 0.5
    low = high.reshape(n, 1, 8, 2, 8, 2).mean((3, 5))
    return low.astype("float32"), high.astype("float32")


def main(args):
    low = fluid.data(name="low", shape=[None, 1, 8, 8], dtype="float32")
    high = fluid.data(name="high", shape=[None, 1, 16, 16], dtype="float32")
    base = fluid.layers.image_resize(
        low, out_shape=[16, 16], resample="BILINEAR", align_corners=False, align_mode=0
    )
    sr = fluid.layers.elementwise_add(espcn(low, 2), base)
    l1 = fluid.layers.smooth_l1(fluid.layers.flatten(sr), fluid.layers.flatten(high), sigma=2.0)
    loss = fluid.layers.mean(l1)
    quality = psnr(fluid.layers.clip(sr, 0.0, 1.0), high)
    test = fluid.default_main_program().clone(for_test=True)
    opt = fluid.optimizer.AdamaxOptimizer(
        learning_rate=fluid.layers.linear_lr_warmup(0.01, 5, 0.001, 0.01),
        regularization=fluid.regularizer.L1DecayRegularizer(1e-5),
    )
    opt.minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    exec_strategy = fluid.ExecutionStrategy()
    exec_strategy.num_iteration_per_drop_scope = 10
    train = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=loss.name, exec_strategy=exec_strategy, places=fluid.cpu_places(2)
    )
    rng = np.random.RandomState(1)
    for step in range(args.steps):
        x, y = images(8, rng)
        cost, q = exe.run(train, feed={"low": x, "high": y}, fetch_list=[loss, quality])
        if step % 5 == 0:
            print("step %d loss %.5f psnr %.3f" % (step, np.mean(cost), np.mean(q)))
    x, y = images(8, rng)
    cost, q = exe.run(test, feed={"low": x, "high": y}, fetch_list=[loss, quality])
    print("test loss %.5f psnr %.3f" % (cost[0], q[0]))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=20)
    main(p.parse_args())
