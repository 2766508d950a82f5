"""U-Net: segmentation, upsampled by transposed convolutions or bilinear resizing."""

import argparse
import numpy as np
import paddle.fluid as fluid
from paddle.fluid.initializer import MSRA
from paddle.fluid.param_attr import ParamAttr
from paddle.fluid.regularizer import L2DecayRegularizer

CLASSES = 3


def conv_bn_relu(data, filters, name):
    conv = fluid.layers.conv2d(
        data,
        filters,
        3,
        stride=1,
        padding=1,
        param_attr=ParamAttr(
            name=name + "_w", initializer=MSRA(uniform=False), regularizer=L2DecayRegularizer(1e-4)
        ),
        bias_attr=False,
    )
    bn = fluid.layers.batch_norm(
        conv,
        epsilon=1e-3,
        momentum=0.99,
        param_attr=ParamAttr(name=name + "_gamma"),
        bias_attr=ParamAttr(name=name + "_beta"),
        moving_mean_name=name + "_mean",
        moving_variance_name=name + "_var",
    )
    return fluid.layers.relu(bn)


def double_conv(data, filters, name):
    return conv_bn_relu(conv_bn_relu(data, filters, name + "0"), filters, name + "1")


def down(data, filters, name):
    pooled = fluid.layers.pool2d(data, 2, "max", 2, ceil_mode=True)
    return double_conv(pooled, filters, name)


def up(data, short_cut, filters, name, method):
    if method == "bilinear":
        short_cut_shape = fluid.layers.shape(short_cut)
        data = fluid.layers.resize_bilinear(data, short_cut_shape[2:])
    else:
        data = fluid.layers.conv2d_transpose(
            data,
            num_filters=filters,
            filter_size=2,
            stride=2,
            padding=0,
            param_attr=ParamAttr(name=name + "_up"),
            bias_attr=ParamAttr(name=name + "_upb"),
        )
    data = fluid.layers.concat([data, short_cut], axis=1)
    return double_conv(data, filters, name)


def unet(input, method):
    x1 = double_conv(input, 4, "in")
    x2 = down(x1, 8, "d1")
    x3 = down(x2, 16, "d2")
    y = up(x3, x2, 8, "u1", method)
    y = up(y, x1, 4, "u2", method)
    return fluid.layers.conv2d(y, CLASSES, 1, param_attr=ParamAttr(name="logit_w"))


def loss_of(logit, label, mask):
    logit = fluid.layers.transpose(logit, [0, 2, 3, 1])
    logit = fluid.layers.reshape(logit, [-1, CLASSES])
    label = fluid.layers.reshape(label, [-1, 1])
    label = fluid.layers.cast(label, "int64")
    cost, prob = fluid.layers.softmax_with_cross_entropy(
        logit, label, ignore_index=255, return_softmax=True
    )
    mask = fluid.layers.reshape(fluid.layers.cast(mask, "float32"), [-1, 1])
    cost = cost * mask
    avg_loss = fluid.layers.mean(cost) / (fluid.layers.mean(mask) + 1e-5)
    label.stop_gradient = True
    mask.stop_gradient = True
    return avg_loss, prob


def dice_of(logit, label):
    prob = fluid.layers.softmax(fluid.layers.transpose(logit, [0, 2, 3, 1]))
    label = fluid.layers.transpose(
        fluid.layers.clip(fluid.layers.cast(label, "float32"), 0, CLASSES - 1), [0, 2, 3, 1]
    )
    return fluid.layers.dice_loss(prob, fluid.layers.cast(label, "int64"))


def batches(steps, rows, size):
    rng = np.random.RandomState(1)
    for _ in range(steps):
        label = (
            rng.randint(0, CLASSES, (rows, 1, size // 8 + 1, size // 8 + 1))
            .repeat(8, 2)
            .repeat(8, 3)[:, :, :size, :size]
        )
        image = rng.randn(rows, 3, size, size) * 0.3 + label
        label[:, :, 0] = 255
        yield image.astype("float32"), label.astype("int32"), (label != 255).astype("int32")


def main(args):
    image = fluid.data("image", [-1, 3, args.size, args.size], "float32")
    label = fluid.data("label", [-1, 1, args.size, args.size], "int32")
    mask = fluid.data("mask", [-1, 1, args.size, args.size], "int32")
    logit = unet(image, args.method)
    loss, prob = loss_of(logit, label, mask)
    dice = dice_of(logit, label)
    total = loss + dice
    pred = fluid.layers.argmax(logit, axis=1)
    test_program = fluid.default_main_program().clone(for_test=True)
    lr = fluid.layers.polynomial_decay(0.05, 100, end_learning_rate=0.0, power=0.9)
    opt = fluid.optimizer.Momentum(lr, momentum=0.9, regularization=L2DecayRegularizer(1e-4))
    opt.minimize(total)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    build = fluid.BuildStrategy()
    build.enable_inplace = True
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=total.name, build_strategy=build, places=fluid.cpu_places(2)
    )
    for step, (x, y, m) in enumerate(batches(args.steps, 8, args.size)):
        a, b, rate = exe.run(
            compiled, feed={"image": x, "label": y, "mask": m}, fetch_list=[loss, dice, lr]
        )
        if step % 5 == 0:
            print(
                "step %d loss %.5f dice %.5f lr %.5f"
                % (step, np.mean(a), np.mean(b), np.mean(rate))
            )
    right, cost = exe.run(
        test_program, feed={"image": x, "label": y, "mask": m}, fetch_list=[pred, loss]
    )
    print("test loss %.5f right %.3f" % (np.mean(cost), (right == y[:, 0]).mean()))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--method", default="deconv")
    p.add_argument("--size", type=int, default=32)
    p.add_argument("--steps", type=int, default=20)
    main(p.parse_args())
