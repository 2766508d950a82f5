"""A program fed by a DataLoader that is not iterated over, for two epochs."""

import numpy as np

import rowlock.fluid as fluid

x = fluid.data(name="x", shape=[None, 4], dtype="float32")
y = fluid.data(name="y", shape=[None, 1], dtype="float32")
loader = fluid.io.DataLoader.from_generator(feed_list=[x, y], capacity=4, iterable=False)
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
fluid.optimizer.SGD(learning_rate=0.2).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())


def batches():
    rng = np.random.RandomState(6)
    for _ in range(10):
        rows = rng.rand(8, 4).astype("float32")
        yield rows, rows.sum(1, keepdims=True)


loader.set_batch_generator(batches)
compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
    loss_name=loss.name, places=fluid.cpu_places(2)
)
for epoch in range(2):
    loader.start()
    steps = 0
    try:
        while True:
            (value,) = exe.run(compiled, fetch_list=[loss])
            steps += 1
    except fluid.core.EOFException:
        loader.reset()
    print("epoch", epoch, "steps", steps, "loss", float(np.mean(value)))
