"""Trains a small convolutional net with a collective fleet; prints its losses and the sum of a parameter."""

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
image = fluid.data("image", [None, 1, 28, 28])
label = fluid.data("label", [None, 1], "int64")
fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 1
pooled = fluid.nets.simple_img_conv_pool(image, 8, 5, 2, 2, act="relu")
predict = fluid.layers.fc(pooled, 10, act="softmax", param_attr="w")
loss = fluid.layers.mean(fluid.layers.cross_entropy(predict, label))
optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.05), DistributedStrategy())
optimizer.minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fleet.startup_program)
rng = np.random.default_rng(0)
losses = []
for _ in range(6):
    labels = rng.integers(0, 10, (32, 1))
    images = (rng.standard_normal((32, 1, 28, 28)) * 0.1).astype("float32")
    images[np.arange(32), 0, labels[:, 0], :] += 1
    count, number = fleet.worker_num(), fleet.worker_index()
    part = slice(number * 32 // count, (number + 1) * 32 // count)
    feed = {"image": images[part], "label": labels[part]}
    (value,) = exe.run(fleet.main_program, feed=feed, fetch_list=[loss])
    losses.append(round(float(np.mean(value)), 5))
weights = np.array(fluid.global_scope().find_var("w").get_tensor())
print(losses, float(np.abs(weights).sum()))
fleet.barrier_worker()
