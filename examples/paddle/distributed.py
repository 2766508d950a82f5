"""One net trained by several processes, in every way that Paddle 1.8 has: only the import is another.

With parameter servers: ``python -m rowlock.distributed.launch_ps distributed.py MODE``, where MODE is sync,
async, half_async, dc_asgd or geo, or fleet_sync, fleet_async, fleet_half_async, fleet_geo. Without:
``python -m rowlock.distributed.launch --nproc_per_node 2 distributed.py MODE``, where MODE is nccl2,
grad_allreduce or local_sgd, or fleet_nccl2, fleet_grad_allreduce, fleet_local_sgd. The launchers tell each
process its part in its environment; ``by_hand.sh`` does without them.
"""

import os
import sys

import numpy as np

import rowlock.fluid as fluid
from rowlock.fluid.incubate.fleet.base import role_maker

mode = sys.argv[1]
trainer_id = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
exe = fluid.Executor(fluid.CPUPlace())


def net():
    x = fluid.data(name="x", shape=[None, 13], dtype="float32")
    y = fluid.data(name="y", shape=[None, 1], dtype="float32")
    prediction = fluid.layers.fc(input=x, size=1)
    return fluid.layers.mean(fluid.layers.square_error_cost(input=prediction, label=y))


def train(program, loss, rows=32):
    slope = np.random.RandomState(7).rand(13, 1).astype("float32")
    samples = np.random.RandomState(trainer_id)  # each trainer has samples of its own
    losses = []
    for _ in range(60):
        x = samples.rand(rows, 13).astype("float32")
        (value,) = exe.run(program, feed={"x": x, "y": x.dot(slope)}, fetch_list=[loss])
        losses.append(float(np.mean(value)))
    print("trainer", trainer_id, "loss", losses[0], losses[-1])


def with_servers(loss):
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode = mode == "sync"
    config.runtime_split_send_recv = mode == "async"
    config.half_async = mode == "half_async"
    config.enable_dc_asgd = mode == "dc_asgd"
    if mode == "geo":
        config.geo_sgd_mode = True
        config.geo_sgd_need_push_nums = 5
        transpiler = fluid.transpiler.geo_sgd_transpiler.GeoSgdTranspiler(config)
    else:
        transpiler = fluid.DistributeTranspiler(config)
    transpiler.transpile(
        trainer_id,
        pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"],
        trainers=int(os.environ["PADDLE_TRAINERS_NUM"]),
        sync_mode=mode == "sync",
    )
    if os.environ["TRAINING_ROLE"] == "PSERVER":
        endpoint = os.environ["POD_IP"] + ":" + os.environ["PADDLE_PORT"]
        program, startup = transpiler.get_pserver_programs(endpoint)
        exe.run(startup)
        exe.run(program)  # returns when all trainers have finished
        print("server", endpoint, "has ended")
    else:
        program = transpiler.get_trainer_program()
        exe.run(fluid.default_startup_program())
        train(program, loss)
        exe.close()


def without_servers(loss):
    config = fluid.DistributeTranspilerConfig()
    config.mode = "nccl2" if mode == "nccl2" else "collective"
    if config.mode == "collective":
        config.collective_mode = mode
    transpiler = fluid.DistributeTranspiler(config)
    transpiler.transpile(
        trainer_id,
        trainers=os.environ["PADDLE_TRAINER_ENDPOINTS"],
        current_endpoint=os.environ["PADDLE_CURRENT_ENDPOINT"],
    )
    exe.run(fluid.default_startup_program())
    if config.mode == "collective":
        train(fluid.default_main_program(), loss)
        return
    strategy = fluid.BuildStrategy()
    strategy.num_trainers = int(os.environ["PADDLE_TRAINERS_NUM"])
    strategy.trainer_id = trainer_id
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=loss.name, build_strategy=strategy
    )
    train(program, loss, 32 * len(fluid.cpu_places()))


def fleet_with_servers(loss, optimizer):
    from rowlock.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
        distributed_strategy,
        fleet,
    )

    fleet.init(role_maker.PaddleCloudRoleMaker())
    kind = mode[len("fleet_") :]
    create = getattr(distributed_strategy.StrategyFactory, "create_" + kind + "_strategy")
    fleet.distributed_optimizer(optimizer, create()).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        print("server", fleet.server_index(), "has ended")
    else:
        fleet.init_worker()
        exe.run(fleet.startup_program)
        train(fleet.main_program, loss)
        fleet.stop_worker()


def fleet_without_servers(loss, optimizer):
    from rowlock.fluid.incubate.fleet.collective import DistributedStrategy, fleet

    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    strategy = DistributedStrategy()
    if mode != "fleet_nccl2":
        strategy.mode, strategy.collective_mode = "collective", mode[len("fleet_") :]
    fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
    exe.run(fleet.startup_program)
    train(fleet.main_program, loss)


loss = net()
sgd = fluid.optimizer.SGD(learning_rate=0.02)
servers = "PADDLE_PSERVERS_IP_PORT_LIST" in os.environ
if mode.startswith("fleet_"):
    (fleet_with_servers if servers else fleet_without_servers)(loss, sgd)
else:
    sgd.minimize(loss)
    (with_servers if servers else without_servers)(loss)
