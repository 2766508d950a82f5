"""A test program that shares the variables of the program that trains."""

import os

import numpy as np

import rowlock.fluid as fluid

os.environ["CPU_NUM"] = "2"

main, startup = fluid.Program(), fluid.Program()
with fluid.program_guard(main, startup):
    image = fluid.layers.data(name="image", shape=[8], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    hidden = fluid.layers.fc(input=image, size=16, act="relu")
    hidden = fluid.layers.dropout(hidden, dropout_prob=0.1)
    scores = fluid.layers.fc(input=hidden, size=3, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=scores, label=label))
    accuracy = fluid.layers.accuracy(input=scores, label=label)
    test_program = main.clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.02).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(startup)

train_exe = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name, main_program=main)
test_exe = fluid.ParallelExecutor(
    use_cuda=False, main_program=test_program, share_vars_from=train_exe
)

rng = np.random.RandomState(2)


def batch(rows):
    images = rng.rand(rows, 8).astype("float32")
    return {"image": images, "label": images[:, :3].argmax(1).reshape(-1, 1).astype("int64")}


for step in range(60):
    (train_loss,) = train_exe.run(fetch_list=[loss.name], feed=batch(32))
    if step % 20 == 19:
        test_loss, right = test_exe.run(fetch_list=[loss.name, accuracy.name], feed=batch(64))
        print("step", step, "test loss", np.mean(test_loss), "accuracy", np.mean(right))
