"""Train an image classifier on pictures that are drawn here; checkpoints, profiling, evaluation."""

import argparse
import functools
import math
import os
import sys
import time

import numpy as np
import paddle
import paddle.fluid as fluid
from paddle.fluid.param_attr import ParamAttr
import paddle.fluid.profiler as profiler

CLASSES = 6


def add_argument(argname, type, default, help, argparser):
    if type is bool:
        type = lambda text: text.lower() in ("1", "true", "yes")  # noqa: E731
    argparser.add_argument(
        "--" + argname, default=default, type=type, help=help + " Default: %(default)s."
    )


def print_arguments(args):
    print("-----------  Configuration Arguments -----------")
    for arg, value in sorted(vars(args).items()):
        print("%s: %s" % (arg, value))


parser = argparse.ArgumentParser(description=__doc__)
add_arg = functools.partial(add_argument, argparser=parser)
add_arg("batch_size", int, 32, "Minibatch size.")
add_arg("use_gpu", bool, False, "Whether to use GPU.")
add_arg("total_images", int, 192, "Training image number.")
add_arg("num_epochs", int, 2, "Number of epochs.")
add_arg("image_shape", str, "3,16,16", "Input image size.")
add_arg("model_save_dir", str, "output", "Model save directory.")
add_arg("checkpoint", str, None, "Folder of a checkpoint to go on from.")
add_arg("pretrained_model", str, None, "Folder of a pretrained model.")
add_arg("lr", float, 0.1, "Learning rate.")
add_arg("l2_decay", float, 1e-4, "L2 decay.")
add_arg("momentum_rate", float, 0.9, "Momentum.")
add_arg("use_label_smoothing", bool, True, "Whether to use label smoothing.")
add_arg("label_smoothing_epsilon", float, 0.1, "Epsilon of label smoothing.")
add_arg("is_profiler", int, 0, "Profiler switch.")
add_arg("profiler_path", str, "./profile", "Where the profiler writes.")
add_arg("max_iter", int, 0, "Batches to run; 0: all.")
add_arg("reduce_strategy", str, "allreduce", "allreduce or reduce.")


def conv_bn(input, num_filters, filter_size, stride=1, groups=1, act=None, name=None):
    conv = fluid.layers.conv2d(
        input=input,
        num_filters=num_filters,
        filter_size=filter_size,
        stride=stride,
        padding=(filter_size - 1) // 2,
        groups=groups,
        act=None,
        param_attr=ParamAttr(name=name + "_weights", initializer=fluid.initializer.MSRA()),
        bias_attr=False,
    )
    return fluid.layers.batch_norm(
        input=conv,
        act=act,
        name=name + "_bn",
        param_attr=ParamAttr(name=name + "_bn_scale", regularizer=fluid.regularizer.L2Decay(0.0)),
        bias_attr=ParamAttr(name=name + "_bn_offset", regularizer=fluid.regularizer.L2Decay(0.0)),
        moving_mean_name=name + "_bn_mean",
        moving_variance_name=name + "_bn_variance",
    )


def separable(input, filters, stride, name):
    depth = conv_bn(
        input, input.shape[1], 3, stride, groups=input.shape[1], act="relu6", name=name + "_dw"
    )
    return conv_bn(depth, filters, 1, act="relu", name=name + "_sep")


def squeeze_excitation(input, ratio, name):
    pool = fluid.layers.pool2d(input=input, pool_type="avg", global_pooling=True)
    stdv = 1.0 / math.sqrt(pool.shape[1] * 1.0)
    squeeze = fluid.layers.fc(
        input=pool,
        size=input.shape[1] // ratio,
        act="relu",
        param_attr=ParamAttr(
            initializer=fluid.initializer.Uniform(-stdv, stdv), name=name + "_sqz_weights"
        ),
        bias_attr=ParamAttr(name=name + "_sqz_offset"),
    )
    excitation = fluid.layers.fc(
        input=squeeze,
        size=input.shape[1],
        act="sigmoid",
        param_attr=ParamAttr(name=name + "_exc_weights"),
        bias_attr=ParamAttr(name=name + "_exc_offset"),
    )
    return fluid.layers.elementwise_mul(x=input, y=excitation, axis=0)


def net(input, class_dim):
    x = conv_bn(input, 8, 3, 2, act="relu", name="conv1")
    x = separable(x, 16, 1, "conv2")
    x = squeeze_excitation(x, 4, "fc_se")
    x = separable(x, 24, 2, "conv3")
    x = fluid.layers.pool2d(input=x, pool_type="avg", global_pooling=True)
    return fluid.layers.fc(
        input=x,
        size=class_dim,
        param_attr=ParamAttr(name="fc7_weights"),
        bias_attr=ParamAttr(name="fc7_offset"),
    )


def create_data_loader(is_train, args):
    image_shape = [int(m) for m in args.image_shape.split(",")]
    feed_image = fluid.data(
        name="feed_image", shape=[None] + image_shape, dtype="float32", lod_level=0
    )
    feed_label = fluid.data(name="feed_label", shape=[None, 1], dtype="int64", lod_level=0)
    py_reader = fluid.io.PyReader(
        feed_list=[feed_image, feed_label], capacity=8, use_double_buffer=True, iterable=True
    )
    return py_reader, [feed_image, feed_label]


def calc_loss(epsilon, label, class_dim, softmax_out, use_label_smoothing):
    if use_label_smoothing:
        label_one_hot = fluid.layers.one_hot(input=label, depth=class_dim)
        smooth_label = fluid.layers.label_smooth(
            label=label_one_hot, epsilon=epsilon, dtype="float32"
        )
        return fluid.layers.cross_entropy(input=softmax_out, label=smooth_label, soft_label=True)
    return fluid.layers.cross_entropy(input=softmax_out, label=label)


def build_program(is_train, main_prog, startup_prog, args):
    with fluid.program_guard(main_prog, startup_prog):
        with fluid.unique_name.guard():
            py_reader, (image, label) = create_data_loader(is_train, args)
            net_out = net(image, CLASSES)
            softmax_out = fluid.layers.softmax(net_out, use_cudnn=False)
            cost = calc_loss(
                args.label_smoothing_epsilon,
                label,
                CLASSES,
                softmax_out,
                args.use_label_smoothing and is_train,
            )
            avg_cost = fluid.layers.mean(x=cost)
            acc_top1 = fluid.layers.accuracy(input=softmax_out, label=label, k=1)
            acc_top5 = fluid.layers.accuracy(input=softmax_out, label=label, k=min(5, CLASSES))
            out = [avg_cost, acc_top1, acc_top5]
            if is_train:
                steps = math.ceil(float(args.total_images) / args.batch_size)
                bd = [steps * e for e in (1, 2)]
                lr = [args.lr * (0.1**i) for i in range(len(bd) + 1)]
                optimizer = fluid.optimizer.Momentum(
                    learning_rate=fluid.layers.piecewise_decay(boundaries=bd, values=lr),
                    momentum=args.momentum_rate,
                    regularization=fluid.regularizer.L2Decay(args.l2_decay),
                )
                optimizer.minimize(avg_cost)
                global_lr = optimizer._global_learning_rate()
                global_lr.persistable = True
                out.append(global_lr)
    return py_reader, out


def pictures(seed, count):
    def reader():
        rng = np.random.RandomState(seed)
        kinds = np.random.RandomState(0).randn(CLASSES, 3, 16, 16)
        for _ in range(count):
            k = rng.randint(CLASSES)
            yield (kinds[k] + 0.7 * rng.randn(3, 16, 16)).astype("float32"), k

    return reader


def best_strategy_compiled(args, program, loss):
    build_strategy = fluid.compiler.BuildStrategy()
    build_strategy.enable_inplace = True
    build_strategy.fuse_all_optimizer_ops = True
    build_strategy.fuse_elewise_add_act_ops = True
    if args.reduce_strategy == "reduce":
        build_strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    exec_strategy = fluid.ExecutionStrategy()
    exec_strategy.num_threads = fluid.core.get_cuda_device_count() if args.use_gpu else 2
    exec_strategy.num_iteration_per_drop_scope = 10
    return fluid.CompiledProgram(program).with_data_parallel(
        loss_name=loss.name, build_strategy=build_strategy, exec_strategy=exec_strategy
    )


def init_model(exe, args, program):
    if args.checkpoint:
        fluid.io.load_persistables(exe, args.checkpoint, main_program=program)
        print("Finish initing model from %s" % args.checkpoint)
    if args.pretrained_model:

        def is_parameter(var):
            return (
                isinstance(var, fluid.framework.Parameter)
                and not var.name.startswith("fc7")
                and os.path.exists(os.path.join(args.pretrained_model, var.name))
            )

        print("Load pretrain weights from %s, exclude fc layer" % args.pretrained_model)
        fluid.io.load_vars(exe, args.pretrained_model, program, predicate=is_parameter)


def save_model(args, exe, train_prog, info):
    model_path = os.path.join(args.model_save_dir, "MobileSE", str(info))
    if not os.path.isdir(model_path):
        os.makedirs(model_path)
    fluid.io.save_persistables(exe, model_path, main_program=train_prog)
    print("Already save model in %s" % model_path)


def validate(exe, test_py_reader, test_prog, fetch_list, epoch):
    results = []
    for batch in test_py_reader():
        results.append([np.mean(v) for v in exe.run(test_prog, feed=batch, fetch_list=fetch_list)])
    print(
        "[Epoch %d, test] avg_loss %.5f acc1 %.5f acc5 %.5f"
        % ((epoch,) + tuple(np.mean(np.array(results), 0)))
    )


def train(args):
    startup_prog, train_prog, test_prog = fluid.Program(), fluid.Program(), fluid.Program()
    startup_prog.random_seed = train_prog.random_seed = 1000
    train_py_reader, train_out = build_program(True, train_prog, startup_prog, args)
    train_fetch_list = [var.name for var in train_out]
    test_py_reader, test_out = build_program(False, test_prog, startup_prog, args)
    test_prog = test_prog.clone(for_test=True)
    test_fetch_list = [var.name for var in test_out]

    place = fluid.CUDAPlace(0) if args.use_gpu else fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(startup_prog)
    init_model(exe, args, train_prog)
    places = place if int(os.environ.get("CPU_NUM", 1)) <= 1 else fluid.framework.cpu_places()
    train_py_reader.decorate_sample_list_generator(
        paddle.batch(pictures(1, args.total_images), batch_size=args.batch_size, drop_last=True),
        places,
    )
    test_py_reader.decorate_sample_list_generator(
        paddle.batch(pictures(2, 64), batch_size=args.batch_size), place
    )

    compiled_train_prog = best_strategy_compiled(args, train_prog, train_out[0])
    total_batch_num = 0
    for pass_id in range(args.num_epochs):
        for batch_id, batch in enumerate(train_py_reader()):
            if args.max_iter and total_batch_num == args.max_iter:
                return
            time.time()
            train_batch_metrics = exe.run(
                compiled_train_prog, feed=batch, fetch_list=train_fetch_list
            )
            time.time()
            metrics = [np.mean(m) for m in train_batch_metrics]
            if batch_id % 3 == 0:
                print(
                    "[Pass %d, train batch %d] loss %.5f, acc1 %.5f, acc5 %.5f, lr %.5f"
                    % ((pass_id, batch_id) + tuple(metrics))
                )
                sys.stdout.flush()
            total_batch_num += 1
            if args.is_profiler and pass_id == 0 and batch_id == 2:
                profiler.start_profiler("All")
            elif args.is_profiler and pass_id == 0 and batch_id == 4:
                profiler.stop_profiler("total", args.profiler_path)
                return
        validate(exe, test_py_reader, test_prog, test_fetch_list, pass_id)
        save_model(args, exe, train_prog, pass_id)


if __name__ == "__main__":
    args = parser.parse_args()
    print_arguments(args)
    fluid.require_version("1.6.0")
    train(args)
