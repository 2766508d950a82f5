"""A regression on two CPU places with ParallelExecutor."""

import os

import numpy as np

import rowlock.fluid as fluid

os.environ["CPU_NUM"] = "2"

x = fluid.layers.data(name="x", shape=[13], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
prediction = fluid.layers.fc(input=x, size=1)
loss = fluid.layers.mean(fluid.layers.square_error_cost(input=prediction, label=y))
fluid.optimizer.SGD(learning_rate=0.05).minimize(loss)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())

train_exe = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)

rng = np.random.RandomState(1)
slope = rng.rand(13, 1).astype("float32")
for step in range(40):
    rows = rng.rand(32, 13).astype("float32")
    (value,) = train_exe.run(fetch_list=[loss.name], feed={"x": rows, "y": rows.dot(slope)})
    if step % 13 == 0:
        print("step", step, "loss on each place", value)
print("places", train_exe.device_count, "loss", float(np.mean(value)))
