"""Layers of paddle.nn: built, initialised and run as Paddle does; trained as programs train them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock import nn, static
from rowlock.strategies.errors import Unsupported
from tests.programs import executor_after, on_places, own_programs
from tests.reference import nn_layers

pytestmark = pytest.mark.usefixtures("no_compiled_loops")
REFERENCE: dict[str, Any] = json.loads(
    (Path(nn_layers.__file__).parent / "nn_layers.json").read_text()
)


@pytest.mark.parametrize("case", REFERENCE["cases"])
def test_layers_are_paddles(case: str) -> None:
    expected, result = REFERENCE["cases"][case], nn_layers.run(paddle, case)
    assert result["repr"] == expected["repr"]
    assert result["state"] == expected["state"]
    assert result["initial"] == expected["initial"]
    for (shape, array), (their_shape, theirs) in zip(
        result["values"], expected["values"], strict=True
    ):
        assert shape == their_shape or (shape, their_shape) == ([1], [])
        np.testing.assert_allclose(array, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("expression", REFERENCE["mistakes"])
def test_mistakes_raise_what_paddle_raises(expression: str) -> None:
    assert nn_layers.mistake(paddle, expression) == REFERENCE["mistakes"][expression]


def test_constructors_have_paddles_signatures() -> None:
    wrong = []
    for name in paddle.nn.__all__:
        layer = getattr(paddle.nn, name)
        if isinstance(layer, type) and issubclass(layer, paddle.nn.Layer):
            own, theirs = nn_layers.signature(layer), REFERENCE["signatures"][name]
            wrong += [f"{name}: {own} instead of {theirs}"] if own != theirs else []
            assert layer.__doc__, name
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", REFERENCE["trained"])
def test_networks_train_as_paddles_do(name: str) -> None:
    expected, result = REFERENCE["trained"][name], nn_layers.trained(paddle, name)
    np.testing.assert_allclose(result["losses"], expected["losses"], rtol=1e-5)
    assert list(result["sums"]) == list(expected["sums"])
    np.testing.assert_allclose(
        list(result["sums"].values()), list(expected["sums"].values()), rtol=1e-4, atol=1e-4
    )


class Probe(nn.Layer):
    """Two layers that share a parameter, a buffer of each kind, and one layer twice."""

    def __init__(self) -> None:
        super().__init__("probe")
        self.first = nn.Linear(2, 2)
        self.again = self.first
        self.second = nn.Linear(2, 2, bias_attr=False)
        self.second.weight = self.first.weight
        self.scale = self.create_parameter([2], default_initializer=nn.initializer.Constant(3.0))
        steps = static.create_global_var([1], 7.0, "float32", persistable=True)
        self.register_buffer("steps", steps)
        self.factor = static.create_global_var([1], 2.0, "float32", persistable=True)
        self.register_buffer("table", paddle.to_tensor([1.0, 2.0]))
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return self.drop(self.second(self.again(x)) * self.scale * self.factor + self.table)


def names(pairs: Any) -> list[str]:
    return [name for name, _ in pairs]


def test_attributes_register_themselves_once_and_in_order(fresh_programs: None) -> None:
    net = Probe()
    assert net.full_name() == "probe_0"
    assert names(net.named_parameters()) == ["scale", "first.weight", "first.bias"]
    assert names(net.named_parameters("p", include_sublayers=False)) == ["p.scale"]
    every = ["scale", "first.weight", "first.bias", "again.weight", "again.bias", "second.weight"]
    assert names(net.named_parameters(remove_duplicate=False)) == every
    assert names(net.named_buffers()) == ["steps", "factor", "table"] and len(net.buffers()) == 3
    assert names(net.named_sublayers()) == ["first", "second", "drop"]
    assert names(net.named_sublayers("p", include_self=True))[:2] == ["p", "p.first"]
    assert names(net.named_children()) == ["first", "second", "drop"]
    assert list(net.children()) == net.sublayers() == [net.first, net.second, net.drop]
    head = ["scale", "steps", "first.weight", "first.bias", "again.weight", "again.bias"]
    assert list(net.state_dict()) == [*head, "second.weight"]
    assert list(net.to_static_state_dict())[1:4] == ["steps", "factor", "table"]
    assert list(net.first.state_dict(structured_name_prefix="a.")) == ["a.weight", "a.bias"]
    visited: list[Any] = []
    assert net.apply(visited.append) is net and visited == [*net.sublayers(), net]
    before = net.scale
    net.scale = None
    assert net.scale is None and "scale" not in net.state_dict()
    net.scale = before
    del net.first
    assert names(net.named_sublayers()) == ["again", "second", "drop"]
    assert "table" in dir(net) and not hasattr(net, "first")


def test_hooks_replace_inputs_and_outputs_until_they_are_removed(fresh_programs: None) -> None:
    seen: list[Any] = []
    net = nn.Identity()
    hooks = [
        net.register_forward_pre_hook(lambda layer, inputs: inputs[0] + "b"),
        net.register_forward_pre_hook(lambda layer, inputs: (inputs[0] + "a",), prepend=True),
        net.register_forward_pre_hook(lambda layer, inputs, named: (inputs, {}), with_kwargs=True),
        net.register_forward_post_hook(lambda layer, inputs, output: seen.append((inputs, output))),
        net.register_forward_post_hook(lambda layer, inputs, output: output + "!"),
    ]
    assert net("x", wrong=1) == "xab!" and seen == [(("xab",), "xab")]
    for hook in hooks:
        hook.remove()
        hook.remove()
    assert net("x") == "x"
    broken = nn.Layer()
    broken.register_forward_post_hook(lambda *arguments: seen.append(arguments), always_call=True)
    with pytest.raises(NotImplementedError, match=r"Layer defines no forward\(\)"):
        broken("x")
    assert seen[-1] == (broken, ("x",), None)


def test_values_come_from_and_go_to_the_global_scope(fresh_programs: None) -> None:
    net = Probe().eval()
    out = net(static.data("x", [None, 2]))
    exe = executor_after()
    state = {name: np.asarray(v.get_value()) for name, v in net.state_dict().items()}
    assert state["scale"].tolist() == [3.0, 3.0] and state["steps"].tolist() == [7.0]
    values = {name: np.full_like(value, 0.5) for name, value in state.items()}
    values["first.bias"] = np.zeros(5, "float32")
    with pytest.warns(UserWarning, match="leaves first.bias as it is: its shape is"):
        lacking, unexpected = net.set_state_dict({**values, "other": 3})
    assert (lacking, unexpected) == (["first.bias"], ["first.bias", "other"])
    feed = {"x": np.ones((3, 2), "float32")}
    (result,) = exe.run(feed=feed, fetch_list=[out])
    np.testing.assert_allclose(result, np.tile([2.5, 3.5], (3, 1)))
    other = nn.Linear(2, 2)
    assert other.set_state_dict({"weight": net.first.weight, "bias": [1.0, 2.0]}) == ([], [])
    assert np.asarray(other.weight.get_value()).tolist() == [[0.5, 0.5]] * 2
    own = {p.name: np.ones(p.shape) for p in other.parameters()}
    assert other.load_dict(own, use_structured_name=False) == ([], [])
    with pytest.raises(ValueError, match=r"has the shape \[2\], the value \[3\]"):
        other.bias.set_value(np.zeros(3))


def test_states_are_saved_whole_or_not_at_all(fresh_programs: None, tmp_path: Path) -> None:
    path = tmp_path / "new" / "net.pdparams"
    net = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="Run its startup program first"):
        paddle.save(net.state_dict(), path)
    assert not path.exists()
    paddle.save({"ids": [1, 2], "half": np.float16([0.5])}, path)
    loaded = paddle.load(str(path), return_numpy=True)
    assert loaded["ids"].tolist() == [1, 2] and loaded["half"].dtype == np.float16
    with pytest.raises(TypeError, match="save takes a dict of values by name"):
        paddle.save([1], path)
    with pytest.raises(TypeError, match="under 'a' is no array of numbers"):
        paddle.save({"a": "text"}, path)
    with pytest.raises(Unsupported, match="use_binary_format is not built"):
        paddle.save({}, path, use_binary_format=True)
    with pytest.raises(FileNotFoundError):
        paddle.load(tmp_path / "none.pdparams")
    assert list(paddle.load(path)) == ["ids", "half"]


def test_training_and_element_types_are_of_what_is_built_after(fresh_programs: None) -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5)).to(dtype="float64")
    x = static.data("x", [64, 2], "float64")
    train, test = net(x), net.eval()(x)
    assert not net[1].training and net.train()[1].training
    exe = executor_after()
    dropped, whole = exe.run(feed={"x": np.ones((64, 2))}, fetch_list=[train, test])
    assert dropped.dtype == np.float64 and (dropped == 0).any() and not (whole == 0).any()
    with pytest.raises(RuntimeError, match="call to\\(\\) before ops are built"):
        net.astype("float32")


def test_containers_are_lists_and_dicts_of_layers(fresh_programs: None) -> None:
    layers = nn.LayerList([nn.ReLU(), nn.Tanh()])
    layers.insert(1, nn.Sigmoid())
    layers += [nn.ELU()]
    assert [type(one).__name__ for one in layers] == ["ReLU", "Sigmoid", "Tanh", "ELU"]
    assert names(layers.named_children()) == ["0", "1", "2", "3"] and len(layers[1:3]) == 2
    del layers[0]
    assert layers.pop(-1) is not None and len(layers) == 2 and isinstance(layers[-1], nn.Tanh)
    layers[0] = nn.Linear(2, 2)
    assert names(layers.named_parameters()) == ["0.weight", "0.bias"]
    chain = nn.Sequential(("a", nn.ReLU()), ("b", nn.Tanh()))
    assert chain["a"] is chain[0] and isinstance(chain[1:], nn.Sequential) and len(chain) == 2
    table = nn.LayerDict({"x": nn.ReLU()})
    table.update([("y", nn.Tanh())])
    assert list(table) == list(table.keys()) == ["x", "y"] and "x" in table
    assert isinstance(table.pop("x"), nn.ReLU) and len(table) == 1
    parameters = nn.ParameterList([layers[0].weight])
    assert parameters.append(layers[0].bias) is parameters and len(list(parameters)) == 2
    assert names(parameters.named_parameters()) == ["0", "1"]
    with pytest.raises(IndexError, match="index 9 is out of range"):
        layers[9]


class Forgetful(nn.Layer):
    def __init__(self, layer: Any) -> None:
        self.size = 3
        if layer is not None:
            self.layer = layer

    def forward(self, x: Any) -> Any:
        return x


def test_mistakes_say_what_to_do(fresh_programs: None) -> None:
    message = r"Forgetful.__init__\(\) must call super\(\).__init__\(\)"
    with pytest.raises(ValueError, match=message):
        Forgetful(nn.ReLU())
    with pytest.raises(AttributeError, match=message):
        Forgetful(None)(3)
    net = nn.Linear(2, 2)
    for name in ("backward", "clear_gradients", "cuda"):
        with pytest.raises(Unsupported, match=rf"Linear.{name}\(\) .* Rowlock is static-graph: "):
            getattr(net, name)()
    with pytest.raises(Unsupported, match="cannot be copied"):
        copy.deepcopy(net)
    with pytest.raises(AttributeError, match="Did you mean 'weight'"):
        net.wieght  # noqa: B018
    x = static.data("x", [2, 3, 4])
    with pytest.raises(Unsupported, match="caches of attention are imperative"):
        nn.MultiHeadAttention(4, 2)(x, cache=())


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("name", ["Classifier", "Encoder"])
def test_networks_train_on_two_places_and_their_state_travels(name: str, tmp_path: Path) -> None:
    sums = []
    for places in (1, 2):
        main, startup, layer, loss = nn_layers.built(paddle, name)
        exe = static.Executor()
        program = on_places(main, places, loss)
        with static.scope_guard(static.Scope()):
            exe.run(startup)
            state = layer.state_dict()
            start = {path: nn_layers.pattern(v.name, v.shape) for path, v in state.items()}
            layer.set_state_dict(start)
            losses = [
                exe.run(program, feed=nn_layers.batch(name, step), fetch_list=[loss])[0].mean()
                for step in range(8)
            ]
            paddle.save(state, tmp_path / "state.pdparams")
        _, startup, layer, _ = nn_layers.built(paddle, name)
        with static.scope_guard(static.Scope()):
            exe.run(startup)
            assert layer.set_state_dict(paddle.load(tmp_path / "state.pdparams")) == ([], [])
            values = [np.asarray(v.get_value()) for v in layer.state_dict().values()]
        moved = [not np.array_equal(a, b) for a, b in zip(values, start.values(), strict=True)]
        assert any(moved) and np.isfinite(losses).all()
        sums.append([float(value.sum()) for value in values])
    if name == "Encoder":  # a batch norm has other statistics on each place
        np.testing.assert_allclose(sums[0], sums[1], rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("converted", [True, False])
def test_statistics_meet_where_a_layer_says_so(fresh_programs: None, converted: bool) -> None:
    """Two places with SyncBatchNorm train as one with BatchNorm; a test takes the running statistics."""
    sums = []
    for places in (1, 2):
        with own_programs() as (main, startup):
            norm: Any = nn.SyncBatchNorm(3, data_format="NLC") if places == 2 else None
            norm = norm or nn.BatchNorm1D(3, data_format="NLC")
            layer = nn.Sequential(nn.Linear(2, 3), norm, nn.Linear(3, 1, bias_attr=False))
            if converted and places == 2:
                layer[1] = nn.BatchNorm1D(3, data_format="NLC")
                layer = nn.SyncBatchNorm.convert_sync_batchnorm(layer)
            assert type(layer[1]).__name__ == ("SyncBatchNorm" if places == 2 else "BatchNorm1D")
            out = layer(static.data("x", [None, 4, 2]))
            loss = paddle.mean(out * out + out)
            test = main.clone(for_test=True)
            paddle.optimizer.SGD(0.1).minimize(loss)
        program = on_places(main, places, loss)
        exe = static.Executor()
        with static.scope_guard(static.Scope()):
            exe.run(startup)
            state = layer.state_dict()
            layer.set_state_dict({k: nn_layers.pattern(k, v.shape) for k, v in state.items()})
            for step in range(4):
                drawn = np.random.default_rng(step).normal(size=(6, 4, 2)).astype("float32")
                exe.run(program, feed={"x": drawn}, fetch_list=[loss])
            values = [np.asarray(v.get_value()).ravel() for v in state.values()]
            values += [exe.run(test, feed={"x": drawn}, fetch_list=[out])[0].ravel()]
        sums.append(np.concatenate(values))
    np.testing.assert_allclose(sums[0], sums[1], rtol=1e-4, atol=1e-5)


def test_sync_batch_norm_without_weights_is_fixed(fresh_programs: None) -> None:
    norm = nn.SyncBatchNorm(3, weight_attr=False)
    assert [p.trainable for p in norm.parameters()] == [True, False, False, False]
    assert repr(norm) == "SyncBatchNorm(num_features=3, momentum=0.9, epsilon=1e-05)"
    plain = nn.BatchNorm2D(3, bias_attr=False)
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(plain)
    assert synced.weight is plain.weight and not synced.bias.trainable
    assert nn.SyncBatchNorm.convert_sync_batchnorm(synced) is synced


@pytest.mark.parametrize("shape", [[4, 6], [2, 8, 9], [2, 9, 5]])
def test_fold_tells_which_windows_fit(fresh_programs: None, shape: list[int]) -> None:
    text = (
        rf"fold: x must be \[N, C \* 9, 4\] for these windows, got \[{', '.join(map(str, shape))}\]"
    )
    with pytest.raises(ValueError, match=text):
        nn.Fold([4, 4], [3, 3])(static.data("x", shape))


def test_layers_that_were_called_take_no_number_of_the_next(fresh_programs: None) -> None:
    def data(*shape: int, dtype: str = "float32") -> Any:
        return static.data(fluid.unique_name.generate("x"), list(shape), dtype)

    images, volumes = data(2, 4, 5, 5), data(2, 4, 3, 5, 5)
    for build, inputs in [
        (lambda: nn.Linear(4, 4), [data(2, 4)]),
        (lambda: nn.Conv2D(4, 4, 1, groups=2), [images]),
        (lambda: nn.Conv3D(4, 4, 1), [volumes]),
        (lambda: nn.Conv2DTranspose(4, 4, 1), [images]),
        (lambda: nn.Conv3DTranspose(4, 4, 1), [volumes]),
        (lambda: nn.BatchNorm(4), [images]),
        (lambda: nn.LayerNorm(5), [images]),
        (lambda: nn.GroupNorm(2, 4), [images]),
        (lambda: nn.Embedding(4, 4), [data(2, 1, dtype="int64")]),
        (lambda: nn.Bilinear(4, 4, 4), [data(2, 4), data(2, 4)]),
        (lambda: nn.SpectralNorm([4, 4]), [data(4, 4)]),
    ]:
        names = []
        for _ in range(2):
            layer = build()
            layer(*inputs)
            names.append(layer.full_name())
        assert [int(name.rsplit("_", 1)[1]) for name in names] == [0, 1], names
