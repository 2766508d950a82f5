"""``vision.models``: the parameters that Paddle 3's have, what they compute, training, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from rowlock import nn, static
from rowlock.vision import models
from tests.programs import executor_after, on_places
from tests.reference import vision_models as cases

RECORD = json.loads((Path(__file__).parents[1] / "reference" / "vision_models.json").read_text())


pytestmark = pytest.mark.usefixtures("fresh_programs")


def built(call: str) -> Any:
    return eval(f"models.{call}", {"models": models})


def ready(model: Any, dtype: str = "float32") -> static.Executor:
    """Return an executor that has run the startup program, and give the model its values."""
    exe = executor_after()
    assert model.set_state_dict(cases.values(model, dtype)) == ([], [])
    return exe


@pytest.mark.parametrize("call", cases.STATES)
def test_state_dicts_have_paddles_keys_shapes_and_names(call: str) -> None:
    assert cases.state(built(call)) == RECORD["states"][call]


@pytest.fixture
def dtype(mode: str) -> Iterator[str]:
    paddle.set_default_dtype(cases.DTYPES[mode])
    yield cases.DTYPES[mode]
    paddle.set_default_dtype("float32")


@pytest.mark.parametrize("mode", cases.DTYPES)
@pytest.mark.parametrize("call", cases.OUTPUTS)
def test_outputs(call: str, mode: str, dtype: str) -> None:
    shape = cases.OUTPUTS[call]
    model = built(call)
    for layer in model.sublayers():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    getattr(model, mode)()
    out = model(static.data("x", [-1, *shape[1:]], dtype))
    exe = ready(model, dtype)
    (scores,) = exe.run(feed={"x": cases.images(shape, dtype)}, fetch_list=[out])
    size, numbers = RECORD["outputs"][call][mode]
    assert list(scores.shape) == size
    np.testing.assert_allclose(scores.ravel(), numbers, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["train"])
@pytest.mark.parametrize("call", cases.TRAINING)
def test_gradients_and_steps(call: str, dtype: str) -> None:
    shape = cases.TRAINING[call]
    model = built(call)
    for layer in model.sublayers():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    image, label = static.data("x", [-1, *shape[1:]], dtype), static.data("y", [-1, 1], "int64")
    loss = nn.functional.cross_entropy(model(image), label)
    _, pairs = paddle.optimizer.Momentum(0.01, 0.9).minimize(loss)
    slope_of = {parameter.name: slope for parameter, slope in pairs}
    own = dict(model.named_parameters())
    keys = cases.watched(model)
    exe = ready(model, dtype)
    feed = {"x": cases.images(shape, dtype), "y": np.arange(shape[0]).reshape(-1, 1)}
    fetches = [loss, *(slope_of[own[key].name] for key in keys)]
    first, *slopes = exe.run(feed=feed, fetch_list=fetches)
    (second,) = exe.run(feed=feed, fetch_list=[loss])
    record = RECORD["training"][call]
    np.testing.assert_allclose([first.item(), second.item()], record["losses"], rtol=1e-5)
    lengths = {key: np.linalg.norm(slope) for key, slope in zip(keys, slopes, strict=True)}
    assert lengths == pytest.approx(record["slopes"], rel=1e-4, abs=1e-9)


def test_a_step_on_two_places_is_that_on_one() -> None:
    model = models.LeNet()
    image, label = static.data("x", [-1, 1, 28, 28]), static.data("y", [-1, 1], "int64")
    loss = nn.functional.cross_entropy(model(image), label)
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = ready(model)
    main = static.default_main_program()
    compiled = on_places(main, 2, loss)
    feed = {"x": cases.images([4, 1, 28, 28]), "y": np.array([[1], [2], [3], [4]])}
    weights, losses = [], []
    with paddle.cluster(launcher="threads"):
        for program in (main, compiled):
            model.set_state_dict(cases.values(model))
            losses.append(np.mean(exe.run(program, feed=feed, fetch_list=[loss])[0]))
            weights.append(np.array(model.features[0].weight.get_value()))
    assert not np.allclose(weights[0], cases.values(model)["features.0.weight"], atol=1e-4)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-5, atol=1e-6)


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: models.resnet50(pretrained=True), r"resnet50\(pretrained=True\).*set_state_dict"),
    (lambda: models.vgg16(True), r"vgg16\(pretrained=True\) would download"),
    (lambda: models.mobilenet_v2(True), r"mobilenet_v2\(pretrained=True\) would download"),
    (lambda: models.ResNet(models.resnet.BasicBlock, 20), r"one of \[18, 34, .*got 20"),
    (lambda: models.resnet.BasicBlock(8, 8, dilation=2), "dilation must be 1, got 2"),
    (lambda: models.SqueezeNet("2.0"), r"version is one of \['1.0', '1.1'\], got '2.0'"),
    (lambda: models.DenseNet(120), "layers is one of .*got 120"),
    (lambda: models.ShuffleNetV2(0.7), "scale is one of .*got 0.7"),
    (lambda: models.ShuffleNetV2(act="tanh"), "act is one of .*got 'tanh'"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_told_with_their_cure(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=message):
        mistake()


def test_features_without_classes() -> None:
    x = static.data("x", [-1, 3, 64, 64])
    assert models.densenet121(num_classes=0, with_pool=False)(x).shape == (-1, 1024, 2, 2)
    assert models.squeezenet1_1(num_classes=0)(x).shape == (-1, 512)
    assert models.squeezenet1_1(num_classes=0, with_pool=False)(x).shape == (-1, 512, 3, 3)


def test_builders_are_functions_with_names_and_fixed_widths() -> None:
    assert models.resnext50_32x4d.__name__ == "resnext50_32x4d"
    assert models.resnext50_32x4d(groups=1, num_classes=0).groups == 32
    assert paddle.vision.resnet18 is models.resnet18
