"""Each place's loss gradient is fed: here the place with the harder rows weighs three times as much."""

import os

import numpy as np

import rowlock.fluid as fluid

os.environ["CPU_NUM"] = "2"

x = fluid.layers.data(name="x", shape=[4], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
prediction = fluid.layers.fc(input=x, size=1)
loss = fluid.layers.mean(fluid.layers.square_error_cost(input=prediction, label=y))
fluid.optimizer.SGD(learning_rate=0.1).minimize(loss)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())

build_strategy = fluid.BuildStrategy()
build_strategy.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.Customized
program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
    loss_name=loss.name, build_strategy=build_strategy, places=fluid.cpu_places(2)
)

rng = np.random.RandomState(3)
loss_grad = np.array([0.25, 0.75], dtype="float32")
for _ in range(20):
    rows = rng.rand(16, 4).astype("float32")
    feed = {"x": rows, "y": rows.sum(1, keepdims=True), loss.name + "@GRAD": loss_grad}
    value, seeds = exe.run(program, feed=feed, fetch_list=[loss, loss.name + "@GRAD"])
print("loss gradients", seeds, "loss", float(np.mean(value)))
