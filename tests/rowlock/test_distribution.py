"""``paddle.distribution``: draws, batches of unknown size, gradients; densities are in expressions.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from rowlock import distribution, static
from rowlock.strategies.errors import InvalidType, InvalidValue, Unsupported

pytestmark = pytest.mark.usefixtures("no_compiled_loops")
COUNT = 4000
A, B = np.array([0.3, 0.6, 0.2], "float32"), np.array([1.2, 0.7, 2.0], "float32")


@pytest.fixture(autouse=True)
def programs() -> Iterator[None]:
    main = static.Program()
    main.random_seed = 7
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        yield


def fetched(*variables: Any, feed: Any = None) -> list[Any]:
    exe = static.Executor(paddle.CPUPlace())
    return list(exe.run(static.default_main_program(), feed=feed, fetch_list=list(variables)))


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("Normal", (A, B)),
        ("LogNormal", (A, A)),
        ("Laplace", (A, B)),
        ("Gumbel", (A, B)),
        ("Uniform", (A, B)),
        ("Exponential", (A,)),
        ("Bernoulli", (A,)),
        ("Geometric", (A,)),
    ],
)
def test_draws_have_the_mean_and_variance_of_their_distribution(kind: str, parameters: Any) -> None:
    own = getattr(distribution, kind)(*parameters)
    assert own.batch_shape == (3,)
    drawn, mean, variance = fetched(own.sample([COUNT]), own.mean, own.variance)
    assert drawn.shape == (COUNT, 3)
    np.testing.assert_array_less(np.abs(drawn.mean(0) - mean), 5 * np.sqrt(variance / COUNT))
    np.testing.assert_allclose(drawn.var(0), variance, rtol=0.3)


def test_draws_of_distributions_without_a_mean() -> None:
    logits = np.array([[0.2, 0.5, 1.2], [2.0, 0.3, 0.6]], "float32")
    classes, far = distribution.Categorical(logits), distribution.Cauchy(0.5, 2.0)
    numbers, below = fetched(classes.sample([COUNT]), far.cdf(far.sample([COUNT])))
    assert numbers.dtype == np.int64
    shares = np.stack([np.bincount(column, minlength=3) / COUNT for column in numbers.T])
    weights = np.exp(logits)
    np.testing.assert_allclose(shares, weights / weights.sum(1, keepdims=True), atol=0.05)
    np.testing.assert_allclose(np.sort(below.ravel()), np.linspace(0, 1, COUNT), atol=0.05)


def test_a_batch_may_be_as_long_as_what_is_fed_and_gradients_pass() -> None:
    x = static.data("x", [-1, 2])
    x.stop_gradient = False
    around = distribution.Normal(x, paddle.exp(x))
    noise = around.rsample()
    slope = paddle.static.gradients([paddle.sum(noise)], [x])[0]
    flat = distribution.Laplace(x, 1.0).sample([3])
    feed = {"x": np.zeros((5, 2), "float32")}
    drawn, slopes, several = fetched(noise, slope, flat, feed=feed)
    assert (drawn.shape, several.shape) == ((5, 2), (3, 5, 2))
    np.testing.assert_allclose(slopes, 1 + drawn, rtol=1e-5)  # of x + exp(x) z at 0


def test_divergences_of_other_classes_are_registered() -> None:
    normal, flat = distribution.Normal(0.0, 1.0), distribution.Laplace(0.0, 1.0)
    with pytest.raises(Unsupported, match="kl_divergence of Normal from Laplace is not built"):
        distribution.kl_divergence(normal, flat)

    class Own(distribution.Laplace):
        pass

    @distribution.register_kl(distribution.Normal, Own)
    def divergence(p: Any, q: Any) -> Any:
        return p.loc + 2.5

    (result,) = fetched(distribution.kl_divergence(normal, Own(0.0, 1.0)))
    assert result == 2.5
    with pytest.raises(InvalidType, match="register_kl takes classes of distributions, got"):
        distribution.register_kl(int, Own)


def test_mistakes_say_what_to_do() -> None:
    with pytest.raises(
        InvalidType, match="Normal: scale must be a number, a list, an array or a V"
    ):
        distribution.Normal(0.0, "1")
    with pytest.raises(InvalidValue, match=r"Normal: parameters of \[3\] and \[2\] do not fit"):
        distribution.Normal(A, A[:2])
    with pytest.raises(Unsupported, match="Cauchy has no mean"):
        distribution.Cauchy(0.0, 1.0).mean  # noqa: B018 - its error is what is read
    with pytest.raises(Unsupported, match="no gradient passes through a class"):
        distribution.Categorical(A).rsample()
    unknown = static.data("u", [-1, -1])
    with pytest.raises(
        InvalidValue, match=r"only the first size of a batch may be unknown, got \[-1, -1\]"
    ):
        distribution.Normal(unknown, 1.0).sample()
