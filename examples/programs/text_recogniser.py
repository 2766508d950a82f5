"""Lines of text as images: convolutions, columns read as a sequence by GRUs both ways, and CTC above them."""

import argparse

import numpy as np
import paddle
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--places", type=int, default=1)
CLASSES, HEIGHT, BATCH, HIDDEN = 5, 8, 4, 10


def lines(seed, count):
    """A letter is a pattern of six columns with noise above it; a line of a batch has room for five."""
    letters = np.random.RandomState(5).uniform(-1, 1, (CLASSES, HEIGHT, 6))

    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            word = rng.randint(0, CLASSES, rng.randint(1, 6))
            image = rng.uniform(-0.3, 0.3, (HEIGHT, 32))
            for k, letter in enumerate(word):
                image[:, 1 + 6 * k : 7 + 6 * k] += letters[letter]
            yield image[None].astype("float32"), word.astype("int32").tolist()

    return reader


def encoder_net(images):
    """Return the logits of classes and the blank, one row for each column of the last feature map."""
    features = images
    for width in (6, 8):
        features = fluid.layers.conv2d(
            features, num_filters=width, filter_size=3, padding=1, bias_attr=False
        )
        features = fluid.layers.batch_norm(features, act="relu")
    features = fluid.layers.pool2d(features, 2, "max", 2, ceil_mode=True)
    columns = fluid.layers.im2sequence(
        input=features, stride=[1, 1], filter_size=[features.shape[2], 1]
    )
    both = []
    for is_reverse in (False, True):
        gates = fluid.layers.fc(
            input=columns,
            size=HIDDEN * 3,
            param_attr=fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.02)),
            bias_attr=fluid.ParamAttr(learning_rate=2.0),
        )
        both.append(
            fluid.layers.dynamic_gru(
                input=gates, size=HIDDEN, is_reverse=is_reverse, candidate_activation="relu"
            )
        )
    return fluid.layers.fc(input=both, size=CLASSES + 1)


def same_values(program):
    """Give parameters values that do not depend on the framework's generator."""
    scope = fluid.global_scope()
    for number, parameter in enumerate(sorted(program.all_parameters(), key=lambda p: p.name)):
        rng = np.random.RandomState(number)
        values = rng.uniform(-0.3, 0.3, parameter.shape).astype("float32")
        scope.find_var(parameter.name).get_tensor().set(values, fluid.CPUPlace())


def main(args):
    images = fluid.data(name="pixel", shape=[None, 1, HEIGHT, 32], dtype="float32")
    label = fluid.data(name="label", shape=[None, 1], dtype="int32", lod_level=1)
    logits = encoder_net(images)
    cost = fluid.layers.warpctc(input=logits, label=label, blank=CLASSES, norm_by_times=True)
    sum_cost = fluid.layers.reduce_sum(cost)
    decoded = fluid.layers.ctc_greedy_decoder(input=logits, blank=CLASSES)
    errors, count = fluid.layers.edit_distance(
        input=decoded, label=fluid.layers.cast(x=label, dtype="int64"), normalized=False
    )
    error = fluid.layers.reduce_sum(errors)
    fluid.optimizer.Momentum(
        learning_rate=0.02,
        momentum=0.9,
        regularization=fluid.regularizer.L2Decay(4e-4),
        grad_clip=fluid.clip.GradientClipByGlobalNorm(5.0),
    ).minimize(sum_cost)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    same_values(fluid.default_main_program())
    program = fluid.default_main_program()
    if args.places > 1:
        program = fluid.CompiledProgram(program).with_data_parallel(
            loss_name=sum_cost.name, places=[place] * args.places
        )
    feeder = fluid.DataFeeder(feed_list=[images, label], place=place)
    reader = paddle.batch(lines(0, BATCH * args.steps), batch_size=BATCH)
    for step, data in enumerate(reader()):
        results = exe.run(
            program, feed=feeder.feed(data), fetch_list=[sum_cost, error, count], return_numpy=False
        )
        loss, wrong, lines_read = (np.sum(np.array(value)) for value in results)
        print("step %d loss %.5f distance %.4f" % (step, loss, wrong / lines_read))


if __name__ == "__main__":
    main(parser.parse_args())
