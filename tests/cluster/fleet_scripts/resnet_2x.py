"""Trains a small ResNet with Paddle 2.x's fleet, mixed precision and recomputation: ``resnet_2x.py FOLDER``."""

import sys

import numpy as np
import paddle
import paddle.distributed.fleet as fleet
import paddle.nn.functional as F
from paddle import static

CLASSES, BATCH, STEPS = 4, 32, 6


def conv_bn(x, filters, size, stride=1, act=None):
    """Return a convolution's output, normalized."""
    x = static.nn.conv2d(x, filters, size, stride=stride, padding=(size - 1) // 2, bias_attr=False)
    return static.nn.batch_norm(x, act=act)


def block(x, filters, stride):
    """Return the output of a basic block."""
    short = x if stride == 1 else conv_bn(x, filters, 1, stride)
    y = conv_bn(conv_bn(x, filters, 3, stride, "relu"), filters, 3)
    return F.relu(short + y)


def resnet(image, label):
    """Return loss, accuracy, and the outputs of blocks."""
    x = conv_bn(image, 8, 3, act="relu")
    blocks = []
    for filters, stride in ((8, 1), (16, 2), (16, 1)):
        x = block(x, filters, stride)
        blocks.append(x)
    x = F.adaptive_avg_pool2d(x, 1)
    logits = static.nn.fc(x, CLASSES)
    loss = paddle.mean(F.cross_entropy(logits, label))
    return loss, static.accuracy(F.softmax(logits), label), blocks


def main(folder):
    """Train on this worker's share of each batch; print losses and the first worker's weights."""
    paddle.enable_static()
    paddle.seed(7)
    fleet.init(is_collective=True)
    image = static.data("image", [None, 3, 16, 16], "float32")
    label = static.data("label", [None, 1], "int64")
    loss, accuracy, blocks = resnet(image, label)
    test = static.default_main_program().clone(for_test=True)
    strategy = fleet.DistributedStrategy()
    strategy.sync_batch_norm = True
    strategy.amp = True
    strategy.amp_configs = {"init_loss_scaling": 128.0, "custom_black_list": ["softmax"]}
    strategy.recompute = True
    strategy.recompute_configs = {"checkpoints": [x.name for x in blocks]}
    build = static.BuildStrategy()
    build.fuse_elewise_add_act_ops = True
    strategy.build_strategy = build
    rate = paddle.optimizer.lr.CosineAnnealingDecay(0.1, T_max=STEPS)
    optimizer = paddle.optimizer.Momentum(
        learning_rate=rate, momentum=0.9, weight_decay=paddle.regularizer.L2Decay(1e-4)
    )
    optimizer = fleet.distributed_optimizer(optimizer, strategy=strategy)
    optimizer.minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    count, number = fleet.worker_num(), fleet.worker_index()
    rng = np.random.default_rng(0)
    part = slice(number * BATCH // count, (number + 1) * BATCH // count)
    losses = []
    for _ in range(STEPS):
        labels = rng.integers(0, CLASSES, (BATCH, 1))
        images = rng.standard_normal((BATCH, 3, 16, 16)).astype("float32")
        images += labels[:, :, None, None]
        feed = {"image": images[part], "label": labels[part]}
        value, _ = exe.run(static.default_main_program(), feed=feed, fetch_list=[loss, accuracy])
        losses.append(float(np.mean(value)))
        rate.step()
    (tested,) = exe.run(test, feed={"image": images, "label": labels}, fetch_list=[loss])
    if fleet.is_first_worker():
        fleet.save_persistables(exe, folder)
    fleet.barrier_worker()
    print(losses, float(np.mean(tested)))


main(sys.argv[1])
