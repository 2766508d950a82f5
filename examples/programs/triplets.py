"""Metric learning with triplets, as in models/PaddleCV/metric_learning."""

import argparse
import numpy as np
import paddle.fluid as fluid


class TripletLoss:
    def __init__(self, margin=0.1):
        self.margin = margin

    def loss(self, input):
        margin = self.margin
        fea_dim = input.shape[1]
        output = fluid.layers.reshape(input, shape=[-1, 3, fea_dim])
        anchor, positive, negative = fluid.layers.split(output, num_or_sections=3, dim=1)
        anchor = fluid.layers.reshape(anchor, shape=[-1, fea_dim])
        positive = fluid.layers.reshape(positive, shape=[-1, fea_dim])
        negative = fluid.layers.reshape(negative, shape=[-1, fea_dim])
        a_p = fluid.layers.square(anchor - positive)
        a_n = fluid.layers.square(anchor - negative)
        a_p = fluid.layers.reduce_sum(a_p, dim=1)
        a_n = fluid.layers.reduce_sum(a_n, dim=1)
        return fluid.layers.reduce_mean(fluid.layers.relu(a_p + margin - a_n))


def embed(image):
    conv = fluid.layers.conv2d(image, 8, 3, stride=2, padding=1, act=None)
    conv = fluid.layers.prelu(conv, mode="channel")
    pool = fluid.layers.pool2d(conv, pool_type="avg", global_pooling=True)
    emb = fluid.layers.fc(pool, 16)
    return fluid.layers.l2_normalize(emb, axis=1)


def triplets(n, rng):
    out = []
    protos = np.random.RandomState(0).randn(5, 3, 8, 8)
    for _ in range(n):
        a, b = rng.choice(5, 2, replace=False)
        out += [
            protos[a] + rng.randn(3, 8, 8) * 2,
            protos[a] + rng.randn(3, 8, 8) * 2,
            protos[b] + rng.randn(3, 8, 8) * 2,
        ]
    return np.array(out, "float32")


def recall(emb, again):
    dist = ((emb[:, None] - again[None]) ** 2).sum(-1)
    return (dist.argmin(1) == np.arange(len(emb))).mean()


def main(args):
    image = fluid.layers.data(name="image", shape=[3, 8, 8], dtype="float32")
    emb = embed(image)
    loss = TripletLoss(0.3).loss(emb)
    pos, neg, _ = fluid.layers.split(fluid.layers.reshape(emb, [-1, 3, 16]), 3, dim=1)
    cos = fluid.layers.reduce_mean(
        fluid.layers.cos_sim(fluid.layers.squeeze(pos, [1]), fluid.layers.squeeze(neg, [1]))
    )
    norm = fluid.layers.sqrt(
        fluid.layers.reduce_sum(fluid.layers.square(emb), dim=-1, keep_dim=True)
    )
    test = fluid.default_main_program().clone(for_test=True)
    opt = fluid.optimizer.RMSPropOptimizer(
        learning_rate=fluid.layers.cosine_decay(0.01, 5, 10), momentum=0.9, centered=True
    )
    params_grads = opt.backward(loss)
    opt.apply_gradients(params_grads)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    train = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=loss.name, places=fluid.cpu_places(2)
    )
    rng = np.random.RandomState(4)
    for step in range(args.steps):
        cost, c, n = exe.run(train, feed={"image": triplets(8, rng)}, fetch_list=[loss, cos, norm])
        if step % 5 == 0:
            print(
                "step %d loss %.5f cos %.4f norm %.4f"
                % (step, np.mean(cost), np.mean(c), np.mean(n))
            )
    cost, e = exe.run(test, feed={"image": triplets(8, rng)}, fetch_list=[loss, emb])
    print("test loss %.5f recall %.2f" % (cost[0], recall(e[::3], e[1::3])))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=20)
    main(p.parse_args())
