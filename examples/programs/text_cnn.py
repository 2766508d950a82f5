"""Sentences of padded words, a net of convolutions over them; batches of any size."""

import argparse

import numpy as np
import paddle
import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.framework import Program, program_guard

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--parallel", type=int, default=1)
parser.add_argument("--clip", type=str, default="global")
parser.add_argument("--init_checkpoint", type=str, default=None)
VOCAB, LEN, PAD = 120, 14, 0


def bow_words(seed, n):
    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(n):
            label = rng.randint(0, 2)
            length = rng.randint(5, LEN + 1)
            words = rng.randint(1, VOCAB // 2, length) + label * (VOCAB // 2 - 1) * (
                rng.rand(length) < 0.6
            )
            yield [int(w) for w in words] + [PAD] * (LEN - length), length, label

    return reader


def cnn_net(
    data,
    seq_len,
    label,
    dict_dim,
    emb_dim=16,
    hid_dim=8,
    hid_dim2=12,
    class_dim=2,
    is_prediction=False,
):
    emb = fluid.layers.embedding(
        input=layers.unsqueeze(data, axes=[2]),
        size=[dict_dim, emb_dim],
        padding_idx=PAD,
        param_attr="word_emb",
    )
    mask = layers.cast(
        layers.greater_than(layers.expand(seq_len, [1, LEN]), layers.range(0, LEN, 1, "int64")),
        "float32",
    )
    mask.stop_gradient = True
    emb = layers.elementwise_mul(emb, mask, axis=0)
    emb = layers.unsqueeze(emb, axes=[1])
    convs = []
    for width in (2, 3, 4):
        conv = layers.conv2d(
            emb,
            num_filters=hid_dim,
            filter_size=(width, emb_dim),
            act="tanh",
            name="conv_%d" % width,
        )
        pool = layers.pool2d(conv, pool_size=(LEN - width + 1, 1), pool_type="max", pool_stride=1)
        convs.append(layers.squeeze(pool, axes=[2, 3]))
    both = layers.concat(convs, axis=1)
    mean = layers.reduce_sum(layers.squeeze(emb, [1]), dim=1) / layers.cast(seq_len, "float32")
    fc_1 = layers.fc(input=[both, mean], size=hid_dim2, act="leaky_relu")
    fc_1 = layers.dropout(
        layers.layer_norm(fc_1),
        dropout_prob=0.2,
        is_test=is_prediction,
        dropout_implementation="upscale_in_train",
        seed=5,
    )
    logits = layers.fc(input=[fc_1], size=class_dim)
    if is_prediction:
        return layers.softmax(logits), None, None
    cost, probs = layers.softmax_with_cross_entropy(logits, label, return_softmax=True)
    num = layers.create_tensor(dtype="int64")
    acc = layers.accuracy(input=probs, label=label, total=num)
    return probs, layers.mean(cost), (acc, num)


def inputs():
    src_ids = fluid.data(name="src_ids", shape=[None, LEN], dtype="int64")
    seq_len = fluid.data(name="seq_len", shape=[None, 1], dtype="int64")
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    return src_ids, seq_len, label


def main(args):
    startup_prog, train_program = Program(), Program()
    startup_prog.random_seed = 33
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    with program_guard(train_program, startup_prog):
        with fluid.unique_name.guard():
            src_ids, seq_len, label = inputs()
            reader = fluid.io.DataLoader.from_generator(
                feed_list=[src_ids, seq_len, label], capacity=5, iterable=True
            )
            probs, loss, (acc, num_seqs) = cnn_net(src_ids, seq_len, label, VOCAB)
            test_program = train_program.clone(for_test=True)
            if args.clip == "global":
                fluid.clip.set_gradient_clip(
                    clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=0.5)
                )
                optimizer = fluid.optimizer.Adam(learning_rate=layers.noam_decay(64, 20))
            else:
                optimizer = fluid.optimizer.Adamax(
                    layers.polynomial_decay(0.01, 30, 0.001, power=2.0),
                    grad_clip=fluid.clip.GradientClipByNorm(0.3),
                )
            _, params_grads = optimizer.minimize(loss)
    total = sum(int(np.prod(p.shape)) for p in train_program.all_parameters())
    print("parameters", total, len(params_grads), sorted(p.name for p, g in params_grads)[:3])
    exe.run(startup_prog)
    if args.init_checkpoint:
        fluid.load(train_program, args.init_checkpoint, exe)
    reader.set_sample_list_generator(
        paddle.batch(bow_words(1, 150), 32), places=fluid.cpu_places() if args.parallel else place
    )
    compiled = (
        fluid.CompiledProgram(train_program).with_data_parallel(loss_name=loss.name)
        if args.parallel
        else train_program
    )
    for epoch in range(args.epochs):
        for step, data in enumerate(reader()):
            values = exe.run(compiled, feed=data, fetch_list=[loss.name, acc.name, num_seqs.name])
            np_loss, np_acc, np_num = values
            print(
                "epoch %d step %d loss %f acc %f of %d"
                % (
                    epoch,
                    step,
                    np.mean(np_loss),
                    np.sum(np_acc * np_num) / np.sum(np_num),
                    np.sum(np_num),
                )
            )
        total_cost, total_acc = [], []
        feeder = fluid.DataFeeder(
            feed_list=["src_ids", "seq_len", "label"], place=place, program=test_program
        )
        for data in paddle.batch(bow_words(2, 45), 20)():
            test_loss, test_acc = exe.run(
                test_program, feed=feeder.feed(data), fetch_list=[loss, acc]
            )
            total_cost.append(test_loss[0])
            total_acc.append(test_acc[0])
        print("eval loss %f acc %f" % (np.average(total_cost), np.average(total_acc)))
    fluid.save(train_program, "text/ck")
    infer_prog = Program()
    with program_guard(infer_prog, Program()), fluid.unique_name.guard():
        src_ids, seq_len, _ = inputs()
        prediction, _, _ = cnn_net(src_ids, seq_len, None, VOCAB, is_prediction=True)
    infer_prog = infer_prog.clone(for_test=True)
    out = exe.run(
        infer_prog,
        feed={"src_ids": np.ones((3, LEN), "int64"), "seq_len": np.full((3, 1), 7, "int64")},
        fetch_list=[prediction.name],
        return_numpy=False,
    )
    print(np.array(out[0])[0], out[0].lod(), out[0].shape())


if __name__ == "__main__":
    main(parser.parse_args())
