"""Where gradients meet and what they weigh: ReduceStrategy and GradientScaleStrategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import FeedError
from tests.conftest import product
from tests.contract.nets import CLIPS, OPTIMIZERS, Net, assert_close, device_copies, feed

Reduce, Scale = BuildStrategy.ReduceStrategy, BuildStrategy.GradientScaleStrategy


def trained(
    places: int, build: dict[str, Any], steps: int = 3, rows: int = 6, **net: Any
) -> tuple[Net, fluid.CompiledProgram]:
    model = Net(**net)
    program = model.compiled(places, build=build)
    for step in range(steps):
        model.run(program, feed(rows, step), [model.loss])
    return model, program


@product(places=[2, 3], optimizer=OPTIMIZERS, clip=CLIPS)
def test_reduce_equals_all_reduce_and_one_place(
    threads: None, places: int, optimizer: str, clip: str
) -> None:
    net = {"optimizer": OPTIMIZERS[optimizer], "clip": CLIPS[clip], "decay": 0.01}
    everywhere, _ = trained(places, {}, **net)
    owned, _ = trained(places, {"reduce_strategy": Reduce.Reduce}, **net)
    alone = Net(**net)
    for step in range(3):
        alone.run(alone.main, feed(6, step), [])
    assert_close(owned.parameters(), everywhere.parameters())
    assert_close(owned.parameters(), alone.parameters(), 1e-5)


@pytest.mark.parametrize("places", [1, 2, 3])
@pytest.mark.parametrize("clip", ["none", "global"])
def test_reduce_on_every_gang(gang: str, places: int, clip: str) -> None:
    net = {"optimizer": OPTIMIZERS["adam"], "clip": CLIPS[clip]}
    everywhere, _ = trained(places, {}, **net)
    owned, program = trained(places, {"reduce_strategy": Reduce.Reduce}, **net)
    assert_close(owned.parameters(), everywhere.parameters())
    for name in owned.parameters():
        copies = device_copies(program, name)
        assert all(copy.tobytes() == copies[0].tobytes() for copy in copies), name


@pytest.mark.parametrize("fused", [True, False])
def test_owners_are_balanced_and_alone_hold_optimizer_state(gang: str, fused: bool) -> None:
    build = {
        "reduce_strategy": Reduce.Reduce,
        "fuse_broadcast_ops": fused,
        "fuse_all_reduce_ops": fused,
    }
    net, program = trained(2, build, optimizer=OPTIMIZERS["adam"])
    run = program._parallel
    # In the order in which gradients are finished: fc_1.b (1), fc_1.w (3), fc_0.b (3), fc_0.w (12 elements).
    owners = {n: r for n, r in run.values.owners.items() if "moment1" in n}
    by_parameter = {name.split("_moment1")[0]: rank for name, rank in owners.items()}
    assert by_parameter == {"fc_1.b_0": 0, "fc_1.w_0": 1, "fc_0.b_0": 0, "fc_0.w_0": 1}
    for name, rank in run.values.owners.items():
        with pytest.raises(RuntimeError, match=f"replica {1 - rank} holds no value"):
            run.gang.read(run.values.id, name, 1 - rank)
    # The scope shows the owner's value; what is written there reaches the owner.
    name = next(n for n in owners if n.startswith("fc_0.w"))
    assert np.abs(net.value(name)).max() > 0
    net.scope.find_var(name).get_tensor().set(np.full((4, 3), 7.0, "float32"), None)
    net.run(program, feed(6, 9), [])
    assert net.value(name).max() > 6
    broadcasts = [n for n in program.explain().graph.nodes if n.op == "fused_broadcast"]
    assert len(broadcasts) == (1 if fused else 4)


def test_reduce_shows_what_it_saves(threads: None) -> None:
    _, program = trained(2, {"reduce_strategy": Reduce.Reduce}, optimizer=OPTIMIZERS["adam"])
    # Adam: two moments like the parameter and two powers of beta for each; 19 elements of parameters.
    text = str(program.explain())
    per_parameter = {"fc_1.b": 1, "fc_1.w": 3, "fc_0.b": 3, "fc_0.w": 12}
    nbytes = {name: (2 * count + 2) * 4 for name, count in per_parameter.items()}
    first = nbytes["fc_1.b"] + nbytes["fc_0.b"]
    second = nbytes["fc_1.w"] + nbytes["fc_0.w"]
    assert f"{first:,} and {second:,} bytes" in text
    assert f"saves {first + second:,} bytes" in text


def test_a_training_program_in_all_reduce_mode_takes_over_from_reduce(gang: str) -> None:
    net = Net(optimizer=OPTIMIZERS["momentum"])
    first = net.compiled(2, build={"reduce_strategy": Reduce.Reduce})
    second = net.compiled(2, share_vars_from=first)
    alone = Net(optimizer=OPTIMIZERS["momentum"])
    for step in range(4):
        net.run((first, second)[step % 2], feed(6, step), [net.loss])
        alone.run(alone.main, feed(6, step), [])
    assert_close(net.parameters(), alone.parameters(), 1e-5)


def test_no_reduce_leaves_each_place_alone(gang: str) -> None:
    build = {"reduce_strategy": Reduce._NoReduce, "gradient_scale_strategy": Scale.One}
    net, program = trained(2, build, steps=1, rows=6)
    whole = feed(6)
    for rank, rows in enumerate((slice(0, 3), slice(3, 6))):
        alone = Net()
        alone.run(alone.main, {name: array[rows] for name, array in whole.items()}, [])
        for name, expected in alone.parameters().items():
            np.testing.assert_allclose(device_copies(program, name)[rank], expected, 1e-6, 1e-7)
    assert not any("reduce" in node.op for node in program.explain().graph.nodes)
    np.testing.assert_array_equal(net.value("fc_0.w_0"), device_copies(program, "fc_0.w_0")[0])


@product(places=[1, 2, 3], rows=[1, 2, 3, 7, 8], optimizer=["sgd", "adam"])
def test_sample_weighted_is_exact_for_any_batch(
    gang: str, places: int, rows: int, optimizer: str
) -> None:
    net = {"optimizer": OPTIMIZERS[optimizer], "drop": 0.3}
    build = {"gradient_scale_strategy": Scale.SampleWeighted}
    spread, _ = trained(places, build, rows=rows, **net)
    alone = Net(**net)
    for step in range(3):
        alone.run(alone.main, feed(rows, step), [])
    assert_close(spread.parameters(), alone.parameters())


@pytest.mark.parametrize("reduce", [Reduce.AllReduce, Reduce.Reduce])
def test_sample_weighted_list_feeds_and_places_without_rows(gang: str, reduce: Reduce) -> None:
    build = {"gradient_scale_strategy": Scale.SampleWeighted, "reduce_strategy": reduce}
    net, alone = Net(clip=CLIPS["global"]), Net(clip=CLIPS["global"])
    program = net.compiled(3, build=build)
    for step, sizes in enumerate([(4, 0, 1), (0, 0, 2), (1, 3, 0), (2, 2, 2)]):
        whole = feed(sum(sizes), step)
        ends = np.cumsum(sizes)
        parts = [
            {name: array[end - size : end] for name, array in whole.items()}
            for size, end in zip(sizes, ends, strict=True)
        ]
        loss, x = net.run(program, parts, [net.loss, "x"])
        assert loss.shape == (sum(size > 0 for size in sizes),)
        np.testing.assert_array_equal(x, whole["x"])
        alone.run(alone.main, whole, [])
    assert_close(net.parameters(), alone.parameters())


def test_sample_weighted_wants_to_know_the_samples(threads: None) -> None:
    net = Net()
    program = net.compiled(2, build={"gradient_scale_strategy": Scale.SampleWeighted})
    parts = [feed(2), feed(3)]
    parts[0]["y"] = feed(4)["y"]
    with pytest.raises(FeedError, match=r"differ in their rows: 'x': \[2, 3\], 'y': \[4, 3\]"):
        net.run(program, parts, [])
    empty = {name: array[:0] for name, array in feed(2).items()}
    with pytest.raises(FeedError, match=r"0 rows|gets no rows"):
        net.run(program, empty, [])
    with pytest.raises(FeedError, match=r"0 rows|gets no rows"):
        net.run(program, [empty, empty], [])


def test_the_scale_of_the_loss_gradient(gang: str) -> None:
    """fc_1.b_0's gradient is the sum over places of the seed times the mean of 2(p - y)."""
    for scale, seeds in (
        (Scale.CoeffNumDevice, (0.5, 0.5)),
        (Scale.One, (1, 1)),
        (Scale.Customized, (0.3, 2)),
    ):
        net, build = Net(), {"gradient_scale_strategy": scale}
        program, batch = net.compiled(2, build=build), feed(6)
        if scale is Scale.Customized:
            with pytest.raises(FeedError, match=r"loss@GRAD|mean_0.tmp_0@GRAD"):
                net.run(program, batch, [net.loss])
            batch[net.loss.name + "@GRAD"] = np.array(seeds, "float32")
        prediction, grad = net.run(program, batch, [net.prediction, "fc_1.b_0@GRAD"])
        error = 2 * (prediction - batch["y"])
        expected = seeds[0] * error[:3].mean() + seeds[1] * error[3:].mean()
        np.testing.assert_allclose(grad, [expected, expected], 1e-5)
