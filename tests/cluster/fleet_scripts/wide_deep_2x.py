"""Trains wide & deep with Paddle 2.x's fleet and parameter servers: ``wide_deep_2x.py MODE COMMAND``."""

import os
import sys

import paddle
import paddle.distributed.fleet as fleet
import paddle.nn.functional as F
from paddle import static

ROWS, WIDTH = 1000, 8


def net():
    """Return the variables of a line, loss, AUC and prediction."""
    dense = static.data("dense", [None, 4], "float32")
    slots = [static.data(f"c{i}", [None, 1], "int64") for i in range(3)]
    label = static.data("label", [None, 1], "int64")
    start = paddle.nn.initializer.Uniform(-0.1, 0.1)
    table = paddle.ParamAttr(name="table", initializer=start)
    rows = [static.nn.sparse_embedding(s, [ROWS, WIDTH], param_attr=table) for s in slots]
    deep = paddle.concat([*(paddle.reshape(r, [-1, WIDTH]) for r in rows), dense], axis=1)
    for size in (16, 8):
        deep = static.nn.fc(deep, size, activation="relu")
    wide = static.nn.fc(dense, 1)
    logit = wide + static.nn.fc(deep, 1)
    chance = F.sigmoid(logit)
    cost = F.binary_cross_entropy(chance, paddle.cast(label, "float32"))
    predict = paddle.concat([1 - chance, chance], axis=1)
    auc, _, _ = static.auc(predict, label, num_thresholds=2**8)
    return [dense, *slots, label], paddle.mean(cost), auc, predict


def train(exe, inputs, auc, predict, command):
    """Train three passes over this worker's files."""
    dataset = paddle.distributed.InMemoryDataset()
    dataset.init(use_var=inputs, pipe_command=command, batch_size=50, thread_num=2)
    files = sorted(f"data/{name}" for name in os.listdir("data"))
    dataset.set_filelist(fleet.util.get_file_shard(files))
    dataset.load_into_memory()
    for _ in range(3):
        exe.train_from_dataset(
            static.default_main_program(),
            dataset,
            fetch_list=[auc],
            fetch_info=["auc"],
            print_period=9,
        )
    fleet.barrier_worker()
    if fleet.is_first_worker():
        fleet.save_persistables(exe, "model")
        fleet.save_inference_model(exe, "inference", [v.name for v in inputs[:-1]], [predict])


def main():
    """Play this process's part."""
    mode, command = sys.argv[1:]
    paddle.enable_static()
    fleet.init()
    inputs, loss, auc, predict = net()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = mode != "sync"
    optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(0.01), strategy)
    optimizer.minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        print("served")
        return
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    fleet.init_worker()
    train(exe, inputs, auc, predict, command)
    fleet.stop_worker()


main()
