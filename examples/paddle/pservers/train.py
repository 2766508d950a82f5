"""Parameter servers and trainers as Paddle's documents start them: this script in every process.

The environment says who a process is (``run.sh`` sets it): PADDLE_TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST,
PADDLE_TRAINERS_NUM, and PADDLE_TRAINER_ID, or POD_IP and PADDLE_PORT. MODE is sync, async, dc_asgd or geo.
"""

import os

import numpy as np

import rowlock.fluid as fluid

mode = os.environ.get("MODE", "sync")
role = os.environ["PADDLE_TRAINING_ROLE"]
endpoints = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"]
trainers = int(os.environ["PADDLE_TRAINERS_NUM"])
trainer_id = int(os.environ.get("PADDLE_TRAINER_ID", "0"))

x = fluid.layers.data(name="x", shape=[13], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(input=x, size=1), y))
fluid.optimizer.SGD(learning_rate=0.02).minimize(loss)

config = fluid.DistributeTranspilerConfig()
config.sync_mode = mode == "sync"
config.enable_dc_asgd = mode == "dc_asgd"
if mode == "geo":
    config.geo_sgd_mode = True
    config.geo_sgd_need_push_nums = 5
    transpiler = fluid.transpiler.geo_sgd_transpiler.GeoSgdTranspiler(config)
else:
    transpiler = fluid.DistributeTranspiler(config)
transpiler.transpile(trainer_id, pservers=endpoints, trainers=trainers, sync_mode=mode == "sync")

exe = fluid.Executor(fluid.CPUPlace())
if role == "PSERVER":
    endpoint = os.environ["POD_IP"] + ":" + os.environ["PADDLE_PORT"]
    program, startup = transpiler.get_pserver_programs(endpoint)
    exe.run(startup)
    exe.run(program)  # returns when all trainers have finished
    print("server", endpoint, "has ended")
else:
    program = transpiler.get_trainer_program()
    exe.run(fluid.default_startup_program())
    slope = np.random.RandomState(7).rand(13, 1).astype("float32")
    rng = np.random.RandomState(trainer_id)
    for _ in range(100):
        rows = rng.rand(32, 13).astype("float32")
        (value,) = exe.run(program, feed={"x": rows, "y": rows.dot(slope)}, fetch_list=[loss])
    print("trainer", trainer_id, "loss", float(np.mean(value)))
    exe.close()
