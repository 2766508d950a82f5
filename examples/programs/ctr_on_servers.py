"""Click-through rates on parameter servers: one script for every role, told by the environment.

PADDLE_TRAINING_ROLE is TRAINER or PSERVER; without it (``--show``) the programs of all roles are printed.
"""

import argparse
import os

import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--pservers", type=str, default="127.0.0.1:6174,127.0.0.1:6175")
parser.add_argument("--trainers", type=int, default=2)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--async_mode", action="store_true")
parser.add_argument("--show", action="store_true")

DENSE, FIELDS, VOCABULARY, WIDTH = 13, 3, 20000, 8
MESSAGES = (
    "distributed_lookup_table",
    "split_byref",
    "split_selected_rows",
    "send",
    "send_barrier",
    "recv",
    "fetch_barrier",
    "concat",
)


def network():
    dense = fluid.layers.data(name="dense", shape=[DENSE], dtype="float32")
    fields = [fluid.layers.data(name="C%d" % k, shape=[1], dtype="int64") for k in range(FIELDS)]
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    rows = [
        fluid.layers.embedding(
            input=field, size=[VOCABULARY, WIDTH], is_sparse=True, param_attr="table"
        )
        for field in fields
    ]
    hidden = fluid.layers.fc(fluid.layers.concat(rows + [dense], axis=1), 400, act="relu")
    hidden = fluid.layers.fc(hidden, 400, act="relu")
    predict = fluid.layers.fc(hidden, 2, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=predict, label=label))
    fluid.optimizer.Adagrad(0.01).minimize(loss)
    return loss


def batches(seed, steps):
    import numpy as np

    rng = np.random.RandomState(seed)
    for _ in range(steps):
        label = rng.randint(0, 2, (64, 1))
        dense = (rng.rand(64, DENSE) + label).astype("float32")
        feed = {"dense": dense, "label": label}
        for k in range(FIELDS):
            feed["C%d" % k] = rng.randint(0, VOCABULARY // 2, (64, 1)) * 2 + label
        yield feed


def show(title, program):
    print("\n== " + title)
    for block in program.blocks:
        for op in block.ops:
            if block.idx == 0 and op.type not in MESSAGES + ("listen_and_serv",):
                continue
            results = ", ".join(op.output_arg_names)
            print(
                "  block %d  %s(%s) -> %s"
                % (block.idx, op.type, ", ".join(op.input_arg_names), results)
            )


def main():
    args = parser.parse_args()
    role = os.environ.get("PADDLE_TRAINING_ROLE", "TRAINER")
    trainer_id = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    loss = network()

    config = fluid.DistributeTranspilerConfig()
    config.sync_mode = not args.async_mode
    t = fluid.DistributeTranspiler(config=config)
    t.transpile(
        trainer_id,
        pservers=args.pservers,
        trainers=args.trainers,
        sync_mode=not args.async_mode,
    )
    if args.show:
        print(t)
        show("trainer", t.get_trainer_program(wait_port=False))
        for endpoint in args.pservers.split(","):
            show("server " + endpoint, t.get_pserver_program(endpoint))
        return
    exe = fluid.Executor(fluid.CPUPlace())
    if role == "PSERVER":
        endpoint = os.environ["PADDLE_CURRENT_ENDPOINT"]
        server, startup = t.get_pserver_programs(endpoint)
        exe.run(startup)
        exe.run(server)
        return
    program = t.get_trainer_program()
    exe.run(fluid.default_startup_program())
    for step, feed in enumerate(batches(trainer_id, args.steps)):
        (value,) = exe.run(program, feed=feed, fetch_list=[loss])
        if step % 5 == 0:
            print("step %d loss %.5f" % (step, value[0]))
    exe.close()


if __name__ == "__main__":
    main()
