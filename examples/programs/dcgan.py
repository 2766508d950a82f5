"""A DCGAN on drawn images: two programs share a startup program, and each has its optimizer."""

import argparse
import numpy as np
import paddle
import paddle.fluid as fluid

gf_dim = 8
df_dim = 8
NOISE_SIZE = 10
LEARNING_RATE = 2e-4
use_cudnn = True


def bn(x, name=None, act=None):
    return fluid.layers.batch_norm(
        x,
        param_attr=name + "1",
        bias_attr=name + "2",
        moving_mean_name=name + "3",
        moving_variance_name=name + "4",
        name=name,
        act=act,
    )


def fc(x, num_filters, name=None, act=None):
    return fluid.layers.fc(
        input=x, size=num_filters, act=act, param_attr=name + "w", bias_attr=name + "b"
    )


def deconv(
    x,
    num_filters,
    name=None,
    filter_size=5,
    stride=2,
    dilation=1,
    padding=2,
    output_size=None,
    act=None,
):
    return fluid.layers.conv2d_transpose(
        input=x,
        param_attr=name + "w",
        bias_attr=name + "b",
        num_filters=num_filters,
        output_size=output_size,
        filter_size=filter_size,
        stride=stride,
        dilation=dilation,
        padding=padding,
        use_cudnn=use_cudnn,
        act=act,
    )


def conv(x, num_filters, name):
    return fluid.layers.conv2d(
        x, num_filters, 5, stride=2, padding=2, param_attr=name + "w", bias_attr=False
    )


def D(images, name="D"):
    x = fluid.layers.reshape(images, [-1, 1, 28, 28])
    x = fluid.layers.leaky_relu(conv(x, df_dim, name + "conv1"), alpha=0.2)
    x = conv(x, df_dim * 2, name + "conv2")
    x = fluid.layers.leaky_relu(bn(x, name + "bn1"), alpha=0.2)
    x = fc(x, 32, name + "fc1")
    x = bn(x, name + "bn2", act="leaky_relu")
    return fc(x, 1, name + "fc2", act="sigmoid")


def G(noise, name="G"):
    noise = fluid.layers.reshape(noise, [-1, NOISE_SIZE])
    x = fc(noise, 64, name + "fc1")
    x = bn(x, name + "bn1", act="relu")
    x = fc(x, gf_dim * 2 * 7 * 7, name + "fc2")
    x = bn(x, name + "bn2", act="relu")
    x = fluid.layers.reshape(x, [-1, gf_dim * 2, 7, 7])
    x = deconv(x, gf_dim * 2, act="relu", output_size=[14, 14], name=name + "deconv1")
    x = deconv(
        x, 1, filter_size=5, padding=2, act="tanh", output_size=[28, 28], name=name + "deconv2"
    )
    return fluid.layers.reshape(x, shape=[-1, 28 * 28])


def loss(x, label):
    return fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(x=x, label=label))


def samples():
    rng = np.random.RandomState(0)

    def reader():
        for _ in range(1000):
            x, y = rng.randint(2, 16, 2)
            image = -np.ones((28, 28), "float32")
            image[y : y + 10, x : x + 10] = 1
            yield image.ravel(), 0

    return reader


def main(args):
    np.random.seed(3)
    d_program = fluid.Program()
    dg_program = fluid.Program()
    startup = fluid.default_startup_program()

    with fluid.program_guard(d_program, startup):
        img = fluid.layers.data(name="img", shape=[784], dtype="float32")
        label = fluid.layers.data(name="label", shape=[1], dtype="float32")
        d_logit = D(img)
        d_loss = loss(d_logit, label)
    with fluid.program_guard(dg_program, startup):
        noise = fluid.layers.data(name="noise", shape=[NOISE_SIZE], dtype="float32")
        g_img = G(noise)
        g_program = dg_program.clone()
        g_program_test = dg_program.clone(for_test=True)
        dg_logit = D(g_img)
        dg_loss = loss(
            dg_logit,
            fluid.layers.fill_constant_batch_size_like(
                input=noise, dtype="float32", shape=[-1, 1], value=1.0
            ),
        )

    opt = fluid.optimizer.Adam(learning_rate=LEARNING_RATE, beta1=0.5)
    with fluid.program_guard(d_program, startup):
        opt.minimize(loss=d_loss)
    parameters = [p.name for p in g_program.global_block().all_parameters()]
    opt2 = fluid.optimizer.Adam(learning_rate=2 * LEARNING_RATE, beta1=0.5)
    with fluid.program_guard(dg_program, startup):
        opt2.minimize(loss=dg_loss, parameter_list=parameters)

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    d_train = fluid.CompiledProgram(d_program).with_data_parallel(loss_name=d_loss.name)
    dg_train = fluid.CompiledProgram(dg_program).with_data_parallel(
        loss_name=dg_loss.name, share_vars_from=d_train
    )
    reader = paddle.batch(
        paddle.reader.shuffle(samples(), buf_size=1), batch_size=args.batch_size, drop_last=True
    )
    for batch_id, data in enumerate(reader()):
        if batch_id == args.steps:
            break
        noise_data = np.random.uniform(-1, 1, [args.batch_size, NOISE_SIZE]).astype("float32")
        real_image = np.array(list(map(lambda x: x[0], data))).reshape([-1, 784]).astype("float32")
        real_labels = np.ones((args.batch_size, 1), "float32")
        fake_labels = np.zeros((args.batch_size, 1), "float32")
        generated_image = exe.run(g_program, feed={"noise": noise_data}, fetch_list=[g_img])[0]
        total_images = np.concatenate([real_image, generated_image])
        d_loss_1 = exe.run(
            d_train, feed={"img": generated_image, "label": fake_labels}, fetch_list=[d_loss]
        )[0]
        d_loss_2 = exe.run(
            d_train, feed={"img": real_image, "label": real_labels}, fetch_list=[d_loss]
        )[0]
        d_loss_np = [np.mean(d_loss_1), np.mean(d_loss_2)]
        for _ in range(2):
            noise_data = np.random.uniform(-1, 1, [args.batch_size, NOISE_SIZE]).astype("float32")
            dg_loss_np = exe.run(dg_train, feed={"noise": noise_data}, fetch_list=[dg_loss])[0]
        if batch_id % 5 == 0:
            pictures = exe.run(g_program_test, feed={"noise": noise_data}, fetch_list=[g_img])[0]
            print(
                "batch %d d_loss %.4f, dg loss %.4f, pixels %.3f %s"
                % (
                    batch_id,
                    np.sum(d_loss_np),
                    np.mean(dg_loss_np),
                    pictures.mean(),
                    total_images.shape,
                )
            )


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--batch_size", type=int, default=16)
    p.add_argument("--steps", type=int, default=20)
    main(p.parse_args())
