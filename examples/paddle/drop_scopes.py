"""Temporaries live for ten iterations, and are dropped when the program says so."""

import os

import numpy as np

import rowlock.fluid as fluid

os.environ["CPU_NUM"] = "2"

x = fluid.layers.data(name="x", shape=[100], dtype="float32")
hidden = fluid.layers.fc(input=x, size=100, act="tanh")
loss = fluid.layers.mean(hidden)
fluid.optimizer.Momentum(learning_rate=0.1, momentum=0.9).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())

exec_strategy = fluid.ExecutionStrategy()
exec_strategy.num_iteration_per_drop_scope = 10
train_exe = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name, exec_strategy=exec_strategy)

rows = np.random.RandomState(4).rand(64, 100).astype("float32")
for step in range(12):
    train_exe.run(fetch_list=[], feed={"x": rows})
    if step % 5 == 4:
        train_exe.drop_local_exe_scopes()
(value,) = train_exe.run(fetch_list=[loss.name], feed={"x": rows})
print("loss on each place", value)
