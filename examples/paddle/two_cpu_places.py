"""CompiledProgram.with_data_parallel on two CPU places, with both strategies set."""

import numpy as np

import rowlock.fluid as fluid

image = fluid.layers.data(name="image", shape=[1, 8, 8], dtype="float32")
label = fluid.layers.data(name="label", shape=[1], dtype="int64")
conv = fluid.layers.conv2d(input=image, num_filters=4, filter_size=3, act="relu")
pool = fluid.layers.pool2d(input=conv, pool_size=2, pool_stride=2)
scores = fluid.layers.fc(input=pool, size=2, act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(input=scores, label=label))
fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)

places = fluid.cpu_places(2)
exe = fluid.Executor(places[0])
exe.run(fluid.default_startup_program())

build_strategy = fluid.BuildStrategy()
build_strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
build_strategy.fuse_all_reduce_ops = True
exec_strategy = fluid.ExecutionStrategy()
exec_strategy.num_threads = 2

compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
    loss_name=loss.name,
    build_strategy=build_strategy,
    exec_strategy=exec_strategy,
    places=places,
)

rng = np.random.RandomState(5)
for step in range(40):
    images = rng.rand(16, 1, 8, 8).astype("float32")
    labels = (images[:, 0, :4].mean((1, 2)) > images[:, 0, 4:].mean((1, 2))).astype("int64")
    (value,) = exe.run(
        compiled, feed={"image": images, "label": labels.reshape(-1, 1)}, fetch_list=[loss.name]
    )
    if step % 13 == 0:
        print("step", step, "loss", float(np.mean(value)))
