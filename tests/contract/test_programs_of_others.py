"""Programs as people write them for Paddle run unchanged under the alias, in parallel on Ray where they ask.

Paddle 1.8.5 runs the same files, but for ``static_2x.py``, which is in the style of 2.x.
"""

from __future__ import annotations

import random
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rowlock.fluid as fluid
from tests.conftest import lasting, one_in
from tests.programs import own_programs

PROGRAMS = Path(__file__).parents[2] / "examples" / "programs"


@pytest.fixture(autouse=True)
def like_a_fresh_process(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    from rowlock import alias

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    alias.install()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPU_NUM", "2")
    before = set(sys.modules)
    with own_programs(1), fluid.scope_guard(fluid.Scope()), lasting("ray"):
        yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "paddle":
            del sys.modules[name]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a program with arguments; return each number that it prints behind ``loss``."""

    def run(command: str) -> list[float]:
        name, *arguments = command.split()
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        random.seed(1)  # of shuffles: what is learnt in a few steps is no matter of luck
        runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
        printed = capsys.readouterr().out
        return [float(number) for number in re.findall(r"(?:loss|resumed) (-?\d+\.\d+)", printed)]

    return run


def test_a_residual_net_with_named_parameters_and_piecewise_decay(run) -> None:
    losses = run("resnet_cifar --num_epochs 2 --samples 96 --batch_size 16 --places 2")
    tested = losses[1::2]  # a loss of training is that of one batch, which the shuffle chose
    assert tested[1] < 0.95 * tested[0]


@pytest.mark.parametrize("places", one_in(2, [1, 2], more=0))
def test_wide_and_deep_scored_by_the_area_under_the_curve(run, places: int) -> None:
    losses = run(f"wide_and_deep --num_epochs 2 --samples 512 --places {places}")
    assert losses[-1] < losses[0]


def test_an_autoencoder_saves_and_resumes(run) -> None:
    *epochs, through, resumed = run("autoencoder --num_epochs 2")
    assert epochs[1] < epochs[0]
    assert resumed == pytest.approx(through, rel=0.5)  # other initial weights, as many steps


def test_a_gan_of_two_programs_that_share_parameters(run) -> None:
    losses = run("gan --parallel --steps 21")
    assert all(0.1 < loss < 5 for loss in losses)


def test_a_gan_whose_critic_is_held_to_its_gradient(run) -> None:
    losses = run("wgan_gp --places 2 --steps 11 --n_critic 2")
    d_losses, penalties, _ = losses[0::3], losses[1::3], losses[2::3]
    assert d_losses[-1] < d_losses[0]
    assert all(0 < penalty < 1 for penalty in penalties)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", one_in(3, ["unet", "unet --method bilinear --size 30", "super_resolution"], more=0)
)
def test_nets_from_images_to_images(run, command: str) -> None:
    losses = run(command)
    assert losses[3] < 0.8 * losses[0]


@pytest.mark.slow
def test_an_embedding_of_triplets(run) -> None:
    assert all(0 < loss < 0.6 for loss in run("triplets"))


@pytest.mark.slow
def test_a_gan_of_transposed_convolutions_and_batch_norm(run) -> None:
    assert all(0.1 < loss < 3 for loss in run("dcgan --steps 6"))


@pytest.mark.parametrize("iterable", one_in(2, [0, 1], more=0))
def test_a_loader_made_from_a_generator(run, iterable: int) -> None:
    losses = run(f"loader --iterable {iterable}")
    assert losses[-1] < 0.5 * losses[0]


def test_a_program_in_the_style_of_2x(run) -> None:
    losses = run("static_2x")
    assert losses[-1] < losses[0]


def test_an_image_classifier_goes_on_from_its_checkpoint(run) -> None:
    losses = run("image_classifier --num_epochs 1 --total_images 128")
    again = "--pretrained_model output/MobileSE/0 --reduce_strategy reduce --num_epochs 1"
    resumed = run(f"image_classifier --checkpoint output/MobileSE/0 {again} --total_images 128")
    assert resumed[0] < losses[0]
    rate = Path("output/MobileSE/0/learning_rate").read_bytes()
    assert np.frombuffer(rate[-4:], "float32")[0] == np.float32(0.1)


@pytest.mark.parametrize("clip", one_in(2, ["global", "norm"], more=0))
def test_a_net_over_sentences_in_batches_of_any_size(run, clip: str) -> None:
    losses = run(f"text_cnn --clip {clip}")
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_an_encoder_whose_layers_are_computed_again(run) -> None:
    *steps, last, averaged = run("encoder --steps 41")
    assert steps[-1] < 0.7 * steps[0] and max(last, averaged) < 0.7 * steps[0]


def test_a_trainer_that_its_environment_describes(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "1")
    losses = run("trainer_from_environment --memory_optimize --pass_num 1")
    assert losses[-1] < losses[0]
    assert Path("params/conv2d_0.w_0").is_file()
