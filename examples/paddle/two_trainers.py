"""ParallelExecutor of several trainers (nccl2): started without arguments, it starts two of itself."""

import os
import subprocess
import sys

import numpy as np

import rowlock.fluid as fluid

ENDPOINTS = ["127.0.0.1:6170", "127.0.0.1:6171"]


def train(trainer_id):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[None, 13], dtype="float32")
        y = fluid.data(name="y", shape=[None, 1], dtype="float32")
        prediction = fluid.layers.fc(input=x, size=1)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(input=prediction, label=y))
        fluid.optimizer.SGD(learning_rate=0.05).minimize(loss)

    config = fluid.DistributeTranspilerConfig()
    config.mode = "nccl2"
    transpiler = fluid.DistributeTranspiler(config=config)
    transpiler.transpile(
        trainer_id,
        program=main,
        startup_program=startup,
        trainers=",".join(ENDPOINTS),
        current_endpoint=ENDPOINTS[trainer_id],
    )

    fluid.Executor(fluid.CPUPlace()).run(startup)
    exe = fluid.ParallelExecutor(
        use_cuda=False,
        loss_name=loss.name,
        main_program=main,
        num_trainers=len(ENDPOINTS),
        trainer_id=trainer_id,
    )
    rng = np.random.RandomState(trainer_id)  # each trainer has samples of its own
    for step in range(40):
        samples = rng.rand(8 * exe.device_count, 13).astype("float32")
        feed = {"x": samples, "y": samples.sum(1, keepdims=True)}
        (value,) = exe.run(fetch_list=[loss.name], feed=feed)
        if step % 13 == 0:
            print("trainer", trainer_id, "step", step, "loss", float(np.mean(value)), flush=True)


def start_both():
    """Start a Ray cluster, unless RAY_ADDRESS names one, and both trainers on it."""
    if "RAY_ADDRESS" not in os.environ:
        import ray

        ray.init(address="local", include_dashboard=False, object_store_memory=100_000_000)
        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    environment = {"CPU_NUM": "1", **os.environ}  # it has the token of the cluster
    command = [sys.executable, os.path.abspath(__file__)]
    trainers = [
        subprocess.Popen([*command, str(k)], env=environment) for k in range(len(ENDPOINTS))
    ]
    return max(abs(trainer.wait()) for trainer in trainers)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(int(sys.argv[1]))
    else:
        sys.exit(start_both())
