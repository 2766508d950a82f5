"""Programs that turn images into images, and one over volumes: two places train them as one does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock as paddle
import rowlock.fluid as fluid
from rowlock.fluid import layers
from tests.programs import own_programs

ROWS = 8
Feeds = list[dict[str, np.ndarray]]


def compiled(program: Any, loss: Any, places: int, beside: Any = None) -> Any:
    """Return the program for some places; it has the variables of the one that runs ``beside`` it."""
    if places == 1:
        return program
    data_parallel = fluid.CompiledProgram(program).with_data_parallel
    where = fluid.cpu_places(places)
    return data_parallel(loss_name=loss.name, share_vars_from=beside, places=where)


@pytest.fixture(autouse=True)
def on_threads() -> Iterator[None]:
    with rowlock.cluster(launcher="threads"), fluid.unique_name.guard():
        yield


def test_a_dcgan_trains_on_two_places_as_on_one() -> None:
    one, two = (dcgan(places) for places in (1, 2))
    np.testing.assert_allclose(one, two, rtol=2e-4, atol=1e-5)
    assert one[-1][0] < one[0][0], "the discriminator learns nothing"


def dcgan(places: int, steps: int = 4) -> np.ndarray:
    """Train a generator of transposed convolutions against a discriminator; returns the losses of both."""

    def generator(noise: Any) -> Any:
        h = layers.fc(noise, 8 * 4 * 4, act="relu", param_attr="g_fc_w", bias_attr="g_fc_b")
        h = layers.reshape(h, [-1, 8, 4, 4])
        h = layers.conv2d_transpose(
            h, 4, filter_size=4, stride=2, padding=1, act="relu", param_attr="g_1", bias_attr="g_1b"
        )
        return layers.conv2d_transpose(
            h,
            1,
            output_size=16,
            stride=2,
            padding=1,
            act="tanh",
            param_attr="g_2",
            bias_attr="g_2b",
        )

    def discriminator(image: Any) -> Any:
        h = layers.conv2d(image, 4, 4, stride=2, padding=1, param_attr="d_1", bias_attr="d_1b")
        h = layers.leaky_relu(h, 0.2)
        h = layers.conv2d(h, 8, 4, stride=2, padding=1, param_attr="d_2", bias_attr="d_2b")
        h = layers.leaky_relu(h, 0.2)
        return layers.fc(h, 1, param_attr="d_fc_w", bias_attr="d_fc_b")

    def judged(scores: Any, real: float) -> Any:
        label = layers.fill_constant_batch_size_like(scores, [-1, 1], "float32", real)
        return layers.mean(layers.sigmoid_cross_entropy_with_logits(scores, label))

    d_program, g_program, startup = fluid.Program(), fluid.Program(), fluid.Program()
    startup.random_seed = 5
    with fluid.program_guard(d_program, startup):
        image = fluid.data("image", [None, 1, 16, 16])
        fake = fluid.data("fake", [None, 1, 16, 16])
        d_loss = judged(discriminator(image), 1.0) + judged(discriminator(fake), 0.0)
        names = [p.name for p in d_program.all_parameters()]
        fluid.optimizer.Adam(2e-2, beta1=0.5).minimize(d_loss, parameter_list=names)
    with fluid.program_guard(g_program, startup):
        noise = fluid.data("noise", [None, 6])
        images = generator(noise)
        sampler = g_program.clone(for_test=True)
        names = [p.name for p in g_program.all_parameters()]
        g_loss = judged(discriminator(images), 1.0)
        fluid.optimizer.Adam(2e-3, beta1=0.5).minimize(g_loss, parameter_list=names)
    exe = fluid.Executor(fluid.CPUPlace())
    rng = np.random.default_rng(0)
    losses = []
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        learn_d = compiled(d_program, d_loss, places)
        learn_g = compiled(g_program, g_loss, places, beside=learn_d if places > 1 else None)
        for _ in range(steps):
            z = {"noise": rng.standard_normal((ROWS, 6)).astype("float32")}
            real = np.sign(rng.standard_normal((ROWS, 1, 1, 1))) * np.ones((1, 1, 16, 16))
            (drawn,) = exe.run(sampler, feed=z, fetch_list=[images])
            feed = {"image": real.astype("float32"), "fake": drawn}
            d = exe.run(learn_d, feed=feed, fetch_list=[d_loss])[0]
            g = exe.run(learn_g, feed=z, fetch_list=[g_loss])[0]
            losses.append([np.mean(d), np.mean(g)])
    return np.array(losses)


def unet() -> Any:
    """Segment images: halve twice, double twice, and join what lies at the same height."""
    image = fluid.data("image", [None, 1, 16, 16])
    label = fluid.data("label", [None, 16, 16, 1], "int64")

    def twice(x: Any, width: int) -> Any:
        x = layers.conv2d(x, width, 3, padding=1, act="relu")
        return layers.conv2d(x, width, 3, padding="SAME", act="relu")

    top = twice(image, 4)
    middle = twice(layers.pool2d(top, 2, "max", 2), 8)
    bottom = twice(layers.pool2d(middle, 2, "max", 2), 8)
    up = layers.conv2d_transpose(bottom, 8, filter_size=2, stride=2)
    up = twice(layers.concat([middle, up], 1), 8)
    up = layers.conv2d_transpose(up, 4, filter_size=2, stride=2)
    scores = layers.conv2d(twice(layers.concat([top, up], 1), 4), 2, 1)
    scores = layers.transpose(scores, [0, 2, 3, 1])
    return layers.mean(layers.softmax_with_cross_entropy(scores, label))


def squares(rng: np.random.Generator) -> dict[str, np.ndarray]:
    image = rng.standard_normal((ROWS, 1, 16, 16)).astype("float32") * 0.1
    label = np.zeros((ROWS, 16, 16, 1), "int64")
    for row in range(ROWS):
        y, x = rng.integers(0, 10, 2)
        image[row, :, y : y + 6, x : x + 6] += 1
        label[row, y : y + 6, x : x + 6] = 1
    return {"image": image, "label": label}


def volumes() -> Any:
    """Tell apart volumes, with layers of 2.x."""
    x = paddle.static.data("volume", [None, 1, 8, 8, 8])
    label = paddle.static.data("label", [None, 1], "int64")
    net = paddle.nn.Sequential(
        paddle.nn.Conv3D(1, 4, 3, padding=1),
        paddle.nn.ReLU(),
        paddle.nn.MaxPool3D(2),
        paddle.nn.Conv3D(4, 8, 3, padding=1, groups=2),
        paddle.nn.ReLU(),
        paddle.nn.AdaptiveAvgPool3D([3, 3, 1]),
        paddle.nn.Flatten(),
        paddle.nn.Linear(72, 2),
    )
    return paddle.nn.CrossEntropyLoss()(net(x), label)


def bars(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Bars that lie, and bars that stand."""
    volume = rng.standard_normal((ROWS, 1, 8, 8, 8)).astype("float32") * 0.1
    label = rng.integers(0, 2, (ROWS, 1))
    for row, stands in enumerate(label[:, 0]):
        volume[(row, 0, slice(None), 4, 4) if stands else (row, 0, 4, slice(None), 4)] += 2
    return {"volume": volume, "label": label}


def autoencoder() -> Any:
    """Write each maximum back to where it was, and add details by a transposed convolution."""
    x = paddle.static.data("image", [None, 2, 8, 8])
    F = paddle.nn.functional
    h = paddle.nn.Conv2D(2, 4, 3, padding=1)(x)
    small, places = F.max_pool2d(h, 2, return_mask=True)
    details = paddle.nn.Conv2DTranspose(4, 4, 3, stride=2, padding=1, output_padding=1)(small)
    h = F.max_unpool2d(small, places, 2) + details
    return F.mse_loss(paddle.nn.Conv2D(4, 2, 1)(h), x)


def waves(rng: np.random.Generator) -> dict[str, np.ndarray]:
    at = np.arange(8)
    phases = rng.uniform(0, 6, (ROWS, 2, 1, 1))
    image = np.sin(phases + at[:, None] * 0.7 + at * 0.4)
    return {"image": image.astype("float32")}


@pytest.mark.parametrize(
    ("net", "batch"),
    [(unet, squares), (volumes, bars), (autoencoder, waves)],
    ids=lambda f: f.__name__,
)
def test_a_net_trains_on_two_places_as_on_one(net: Any, batch: Any) -> None:
    one, two = (trained(net, batch, places) for places in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)
    assert np.mean(one[-3:]) < 0.9 * np.mean(one[:3])


def trained(net: Any, batch: Any, places: int, steps: int = 12) -> list[float]:
    """Return the losses of some steps."""
    with own_programs(3) as (main, startup):
        loss = net()
        fluid.optimizer.Adam(2e-2).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    rng = np.random.default_rng(1)
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        program = compiled(main, loss, places)
        return [
            float(np.mean(exe.run(program, feed=batch(rng), fetch_list=[loss])[0]))
            for _ in range(steps)
        ]


@pytest.mark.parametrize("resize", ["resize_bilinear", "resize_nearest"])
@pytest.mark.parametrize("sizes", ["of a shape", "one by one", "scale"])
def test_sizes_that_follow_from_images_of_any_size(resize: str, sizes: str) -> None:
    """A decoder enlarges to the size of an earlier map; images of each batch have a size of their own."""

    def net(height: int | None, width: int | None) -> Any:
        with own_programs() as (main, startup):
            image = fluid.data("image", [None, 1, height, width])
            early = layers.conv2d(image, 2, 3, padding=1, param_attr="early", bias_attr=False)
            low = layers.conv2d(early, 2, 3, stride=2, padding=1, param_attr="low", bias_attr=False)
            if sizes == "scale":
                twice = layers.fill_constant([1], "float32", 2.0)
                high = getattr(layers, resize)(low, scale=twice)
            else:
                shape = layers.shape(early)[2:]
                each = [layers.shape(early)[2], layers.slice(shape, [0], [1], [2])]
                high = getattr(layers, resize)(low, shape if sizes == "of a shape" else each)
            loss = layers.reduce_mean(layers.square(high - early))
            fluid.optimizer.SGD(0.1).minimize(loss)
        return main, startup, loss

    def trained(fixed: bool) -> list[float]:
        rng, losses = np.random.default_rng(3), []
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        start = {name: rng.standard_normal((2, n, 3, 3), np.float32) for name, n in WIDTHS.items()}
        for step, (height, width) in enumerate([(6, 8), (4, 6), (6, 8)]):
            main, startup, loss = net(*((height, width) if fixed else (None, None)))
            with fluid.scope_guard(scope):
                if not step:
                    exe.run(startup)
                    for name, value in start.items():
                        scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
                image = rng.standard_normal((2, 1, height, width), np.float32)
                losses.append(float(exe.run(main, {"image": image}, [loss])[0][0]))
        return losses

    np.testing.assert_allclose(trained(False), trained(True), rtol=1e-6)


WIDTHS = {"early": 1, "low": 2}  # parameters and the channels that they read
