"""A script that asks its environment which trainer it is, and trains with a ParallelExecutor."""

import argparse
import os
import time

import numpy as np
import paddle
import paddle.fluid as fluid
import paddle.fluid.core as core

parser = argparse.ArgumentParser()
parser.add_argument("--device", type=str, default="CPU", choices=["CPU", "GPU"])
parser.add_argument(
    "--update_method", type=str, default="local", choices=["local", "nccl2", "pserver"]
)
parser.add_argument("--pass_num", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=24)
parser.add_argument("--no_test", action="store_true")
parser.add_argument("--memory_optimize", action="store_true")


def get_trainer():
    trainer_id = int(os.getenv("PADDLE_TRAINER_ID", "0"))
    endpoints = os.getenv("PADDLE_TRAINER_ENDPOINTS", "")
    num = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    return (
        trainer_id,
        num,
        [e for e in endpoints.split(",") if e],
        os.getenv("PADDLE_CURRENT_ENDPOINT", ""),
    )


def append_nccl2_prepare(trainer_id, startup_prog):
    _, _, endpoints, current = get_trainer()
    config = fluid.DistributeTranspilerConfig()
    config.mode = "nccl2"
    t = fluid.DistributeTranspiler(config=config)
    t.transpile(
        trainer_id,
        trainers=",".join(endpoints),
        current_endpoint=current,
        startup_program=startup_prog,
    )


def get_model(args, is_train, main_prog, startup_prog):
    with fluid.program_guard(main_prog, startup_prog):
        reader = fluid.layers.py_reader(
            capacity=args.batch_size,
            shapes=((-1, 1, 12, 12), (-1, 1)),
            lod_levels=(0, 0),
            dtypes=("float32", "int64"),
            name="train_reader" if is_train else "test_reader",
            use_double_buffer=True,
        )
        with fluid.unique_name.guard():
            images, label = fluid.layers.read_file(reader)
            conv = fluid.nets.img_conv_group(
                input=images,
                conv_num_filter=[6, 6],
                pool_size=2,
                conv_padding=1,
                conv_filter_size=3,
                conv_act="relu",
                conv_with_batchnorm=False,
                pool_stride=2,
                pool_type="max",
            )
            predict = fluid.layers.fc(input=conv, size=4, act="softmax")
            cost = fluid.layers.cross_entropy(input=predict, label=label)
            avg_cost = fluid.layers.mean(x=cost)
            batch_size_tensor = fluid.layers.create_tensor(dtype="int64")
            batch_acc = fluid.layers.accuracy(input=predict, label=label, total=batch_size_tensor)
            optimizer = None
            if is_train:
                optimizer = fluid.optimizer.SGD(
                    learning_rate=fluid.layers.natural_exp_decay(0.1, 10, 0.2, True)
                )
                optimizer.minimize(avg_cost)
    return avg_cost, [batch_acc], reader


def samples(seed, n, trainer_id, trainers):
    def reader():
        rng = np.random.RandomState(seed)
        centres = np.random.RandomState(3).randn(4, 1, 12, 12)
        for i in range(n):
            label = rng.randint(4)
            x = centres[label] + 0.8 * rng.randn(1, 12, 12)
            if i % trainers == trainer_id:
                yield x.astype("float32"), [label]

    return reader


def test_parallel(exe, test_args, args, test_prog):
    accs = fluid.metrics.Accuracy()
    test_args[2].start()
    while True:
        try:
            acc_rets = exe.run(fetch_list=[v.name for v in test_args[1]])
            for i, _e in enumerate(test_args[1]):
                accs.update(value=float(np.array(acc_rets[i]).mean()), weight=args.batch_size)
        except fluid.core.EOFException:
            test_args[2].reset()
            break
    return accs.eval()


def main():
    args = parser.parse_args()
    trainer_id, num_trainers, endpoints, current = get_trainer()
    print("trainer %d of %d" % (trainer_id, num_trainers))
    train_prog, test_prog, startup_prog = fluid.Program(), fluid.Program(), fluid.Program()
    startup_prog.random_seed = 4
    train_args = get_model(args, True, train_prog, startup_prog)
    test_args = get_model(args, False, test_prog, startup_prog)
    test_prog = test_prog.clone(for_test=True)
    if args.memory_optimize:
        fluid.memory_optimize(train_prog, skip_opt_set=set([train_args[0].name]))
        fluid.release_memory(test_prog)
    if args.update_method == "nccl2" and num_trainers > 1:
        append_nccl2_prepare(trainer_id, startup_prog)
    place = core.CPUPlace() if args.device == "CPU" else core.CUDAPlace(0)
    startup_exe = fluid.Executor(place)
    startup_exe.run(startup_prog)
    strategy = fluid.ExecutionStrategy()
    strategy.num_threads = 2
    strategy.allow_op_delay = False
    build_strategy = fluid.BuildStrategy()
    build_strategy.num_trainers = num_trainers
    build_strategy.trainer_id = trainer_id
    build_strategy.debug_graphviz_path = "./train_graph.dot"
    exe = fluid.ParallelExecutor(
        args.device == "GPU",
        train_args[0].name,
        main_program=train_prog,
        exec_strategy=strategy,
        build_strategy=build_strategy,
        num_trainers=num_trainers,
        trainer_id=trainer_id,
    )
    test_exe = fluid.ParallelExecutor(
        args.device == "GPU", main_program=test_prog, share_vars_from=exe
    )
    print("devices", exe.device_count)
    train_args[2].decorate_paddle_reader(
        paddle.batch(
            paddle.reader.shuffle(samples(1, 240, trainer_id, num_trainers), 64),
            args.batch_size // exe.device_count,
            drop_last=True,
        )
    )
    test_args[2].decorate_paddle_reader(
        paddle.batch(samples(2, 96, 0, 1), args.batch_size // exe.device_count)
    )
    for pass_id in range(args.pass_num):
        num_samples, iters, _start_time = 0, 0, time.time()
        train_args[2].start()
        while True:
            try:
                fetches = [train_args[0].name] + [v.name for v in train_args[1]]
                if iters % 2 == 0:
                    ret = exe.run(fetches)
                    print("Pass %d, batch %d, loss %s" % (pass_id, iters, np.array(ret[0]).mean()))
                else:
                    exe.run([])
            except (core.EOFException, StopIteration):
                train_args[2].reset()
                break
            iters += 1
            num_samples += args.batch_size
        print("Pass: %d, %d samples" % (pass_id, num_samples))
        if not args.no_test:
            print(
                "Pass: %d, Test Accuracy: %f"
                % (pass_id, test_parallel(test_exe, test_args, args, test_prog))
            )
        exe.drop_local_exe_scopes()
    if trainer_id == 0:
        fluid.io.save_params(startup_exe, "params", train_prog)
        print(sorted(os.listdir("params")))


if __name__ == "__main__":
    main()
