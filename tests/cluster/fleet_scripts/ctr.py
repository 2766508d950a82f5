"""Trains a click model with parameter servers: ``ctr.py MODE COMMAND``, in a folder with data/."""

import os
import sys

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    StrategyFactory,
)


def model():
    """Return the slots' variables, the loss, AUC and the prediction."""
    dense = fluid.layers.data("dense", [4], dtype="float32")
    slots = [fluid.layers.data(f"c{i}", [1], dtype="int64", lod_level=1) for i in range(3)]
    label = fluid.layers.data("label", [1], dtype="int64")
    table = fluid.ParamAttr(name="table", initializer=fluid.initializer.Uniform(-0.1, 0.1))
    rows = [fluid.layers.embedding(s, [1000, 8], is_sparse=True, param_attr=table) for s in slots]
    sums = [fluid.layers.sequence_pool(one, "sum") for one in rows]
    hidden = fluid.layers.fc(fluid.layers.concat([*sums, dense], axis=1), 16, act="relu")
    predict = fluid.layers.fc(hidden, 2, act="softmax")
    loss = fluid.layers.reduce_mean(fluid.layers.cross_entropy(predict, label))
    auc, _, _ = fluid.layers.auc(predict, label, num_thresholds=2**8)
    return [dense, *slots, label], loss, auc, predict


def train(feeds, loss, auc, predict, command):
    """Train three passes over this worker's share of the samples."""
    exe = fluid.Executor(fluid.CPUPlace())
    fleet.init_worker()
    exe.run(fleet.startup_program)
    dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    dataset.set_use_var(feeds)
    dataset.set_pipe_command(command)
    dataset.set_batch_size(50)
    dataset.set_thread(2)
    dataset.set_filelist(fleet.split_files(sorted(f"data/{name}" for name in os.listdir("data"))))
    dataset.load_into_memory()
    np.random.seed(fleet.worker_index())
    dataset.global_shuffle(fleet)
    print("samples", dataset.get_memory_data_size(), dataset.get_memory_data_size(fleet))
    for _ in range(3):
        exe.train_from_dataset(
            fleet.main_program, dataset, fetch_list=[auc], fetch_info=["auc"], print_period=19
        )
    fleet.barrier_worker()
    if fleet.is_first_worker():
        fleet.save_persistables(exe, "model")
        fleet.save_inference_model(exe, "inference", [v.name for v in feeds[:-1]], [predict])
    fleet.stop_worker()


def main():
    """Play this process's part."""
    mode, command = sys.argv[1:]
    fleet.init(role_maker.PaddleCloudRoleMaker())
    feeds, loss, auc, predict = model()
    strategy = getattr(StrategyFactory, f"create_{mode}_strategy")()
    fleet.distributed_optimizer(fluid.optimizer.Adam(1e-2), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        print("served")
    else:
        train(feeds, loss, auc, predict, command)


main()
