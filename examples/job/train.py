"""Train over the nodes of a Ray cluster, as a job.

ray job submit --working-dir . -- python examples/job/train.py --places 4 --replicas-per-node 2

Run by hand it joins the cluster that RAY_ADDRESS names, or starts a local Ray.
"""

from __future__ import annotations

import argparse

import numpy as np

import rowlock
import rowlock.fluid as fluid


def main() -> None:
    options = arguments()
    main_program, startup, loss = network()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    train = fluid.CompiledProgram(main_program).with_data_parallel(
        loss_name=loss.name, places=fluid.cpu_places(options.places)
    )
    slope = np.linspace(-1, 1, 13, dtype="float32").reshape(13, 1)
    draw = np.random.default_rng(1)
    with rowlock.cluster(
        replicas_per_node=options.replicas_per_node,
        packing=options.packing,
        num_cpus_per_replica=options.cpus,
    ):
        for step in range(options.steps):
            x = draw.random((16 * options.places, 13), dtype="float32")
            (losses,) = exe.run(train, feed={"x": x, "y": x @ slope}, fetch_list=[loss])
            if step % 20 == 0 or step + 1 == options.steps:
                print(f"step {step}: loss {losses.mean():.4f} on {losses.size} places", flush=True)


def network() -> tuple[fluid.Program, fluid.Program, fluid.Variable]:
    """A linear regression."""
    main_program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main_program, startup):
        x = fluid.data("x", [None, 13])
        y = fluid.data("y", [None, 1])
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
        fluid.optimizer.Adam(learning_rate=0.05).minimize(loss)
    return main_program, startup, loss


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=2, help="replicas in all")
    parser.add_argument("--replicas-per-node", type=int, help="so many on each node")
    parser.add_argument("--packing", choices=["fill", "spread"], default="fill")
    parser.add_argument("--cpus", type=float, default=0, help="CPUs reserved for each replica")
    parser.add_argument("--steps", type=int, default=101)
    return parser.parse_args()


if __name__ == "__main__":
    main()
