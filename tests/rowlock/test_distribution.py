"""``paddle.distribution``: draws, batches of unknown size, gradients; densities are in expressions.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

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
        ("Gamma", (A * 3, B)),
        ("Chi2", (B,)),
        ("Beta", (A, B)),
        ("StudentT", (B + 5, A, B)),
        ("ContinuousBernoulli", (A,)),
        ("Binomial", (np.float32([9, 200, 70]), A)),
        ("Poisson", (np.float32([0.4, 12, 90]),)),
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


def test_draws_of_vectors() -> None:
    shares = np.float32([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    cases = [
        distribution.Dirichlet(shares * 4),
        distribution.Multinomial(9, shares),
        distribution.MultivariateNormal(
            A, scale_tril=np.float32([[1, 0, 0], [2, 1, 0], [0, 1, 2]])
        ),
        distribution.Independent(distribution.Normal(shares, shares), 1),
    ]
    for case in cases:
        drawn, mean, variance = fetched(case.sample([COUNT]), case.mean, case.variance)
        assert drawn.shape == (COUNT, *case.batch_shape, *case.event_shape)
        np.testing.assert_array_less(np.abs(drawn.mean(0) - mean), 5 * np.sqrt(variance / COUNT))
        np.testing.assert_allclose(drawn.var(0), variance, rtol=0.3)
    assert [case.event_shape for case in cases] == [(3,)] * 4


def test_draws_of_what_is_fed_and_their_slopes() -> None:
    x = static.data("x", [-1, 2])
    x.stop_gradient = False
    scale = distribution.transform.AffineTransform(0.0, paddle.unsqueeze(x[:, 0], 1))
    drawn = [
        distribution.Gamma(x + 2, x).rsample(),
        distribution.TransformedDistribution(distribution.Normal(x * 0, 1.0), [scale]).rsample(),
        distribution.Beta(x, x * 2).sample([3]),
        paddle.poisson(x),
        paddle.binomial(paddle.cast(x * 20, "int64"), x * 0.1),
        paddle.standard_gamma(x),
    ]
    slopes = paddle.static.gradients([paddle.sum(drawn[0]), paddle.sum(drawn[1])], [x])
    feed = {"x": np.full((5, 2), 2.0, "float32")}
    gamma, scaled, beta, *counts, slope = fetched(*drawn, *slopes, feed=feed)
    assert (beta.shape, [c.shape for c in counts]) == ((3, 5, 2), [(5, 2)] * 3)
    assert counts[1].dtype == np.int64 and np.all((beta > 0) & (beta < 1))
    expected = -gamma / 2  # of a draw over x
    expected[:, 0] += scaled.sum(1) / 2
    np.testing.assert_allclose(slope, expected, rtol=1e-5)


def test_student_t_is_scipys() -> None:
    x, df = np.linspace(-3, 3, 3).astype("float32"), np.float32([0.8, 1.5, 6])
    own, other = distribution.StudentT(df, A, B), stats.t(df, A, B)
    results = fetched(own.log_prob(paddle.to_tensor(x)), own.entropy(), own.mean, own.variance)
    expected = [other.logpdf(x), other.entropy(), [np.nan, *A[1:]], [np.nan, np.inf, 6.0]]
    for result, numbers in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, numbers, rtol=1e-5)


def test_entropy_and_divergence_of_an_exponential_family_follow_from_its_normalizer() -> None:
    class Own(distribution.ExponentialFamily):
        def __init__(self, rate: Any) -> None:
            self.rate = paddle.to_tensor(rate)
            super().__init__(self.rate.shape)
            self._natural_parameters = (-self.rate,)

        def _log_normalizer(self, natural: Any) -> Any:
            return -paddle.log(-natural)

    own, other = (distribution.Exponential(numbers) for numbers in (A, B))
    pairs = [
        (Own(A).entropy(), own.entropy()),
        (distribution.kl_divergence(Own(A), Own(B)), distribution.kl_divergence(own, other)),
    ]
    for result, expected in (fetched(*pair) for pair in pairs):
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    with pytest.raises(Unsupported, match="of Gamma from Beta is not built"):
        distribution.kl_divergence(distribution.Gamma(A, B), distribution.Beta(A, B))


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (lambda d: d.Normal(0.0, -1.0), "Normal: scale must be 0 or above, got -1.0"),
        (
            lambda d: d.Laplace(0.0, [1.0, -1.0]),
            r"Laplace: scale must be 0 or above, got \[1.0, -1.0",
        ),
        (lambda d: d.Bernoulli(1.5), "Bernoulli: probs must be between 0 and 1, got 1.5"),
        (lambda d: d.Geometric(0.0), "Geometric: probs must be above 0 and at most 1, got 0.0"),
        (lambda d: d.Uniform(2.0, 1.0), "Uniform: low must not be above high, got 2.0 and 1.0"),
        (lambda d: d.Exponential(-1.0), "Exponential: rate must be above 0, got -1.0"),
        (lambda d: d.Gamma(0.0, 1.0), "Gamma: concentration must be above 0, got 0.0"),
        (lambda d: d.Chi2(-1.0), "Chi2: df must be above 0"),
        (lambda d: d.Dirichlet([1.0, -1.0]), "Dirichlet: concentration must be above 0"),
        (lambda d: d.Dirichlet(1.0), "must have a number for each share, got 1.0"),
        (lambda d: d.Binomial(2.5, 0.5), "Binomial: total_count must be whole numbers from 0"),
        (lambda d: d.Multinomial(0, [0.5, 0.5]), "Multinomial: total_count must be a whole number"),
        (lambda d: d.Poisson(-2.0), "Poisson: rate must be 0 or above"),
        (lambda d: d.Beta(1.0, float("nan")), "Beta: beta must be above 0, got nan"),
        (lambda d: d.StudentT(3.0, 0.0, -1.0), "StudentT: scale must be 0 or above"),
        (lambda d: d.MultivariateNormal(A), r"MultivariateNormal: one of .* got \[\]"),
        (lambda d: d.MultivariateNormal(A, scale_tril=B), r"must be \[..., n, n\] for loc"),
        (lambda d: d.Independent(d.Normal(A, B), 2), "must be from 1 to 1, the dimensions of the"),
        (lambda d: d.AbsTransform().forward_log_det_jacobian(paddle.ones([2])), "two numbers"),
        (lambda d: d.ReshapeTransform([2], [3]), r"\[2\] and \[3\] must have as many elements"),
        (lambda d: d.ReshapeTransform([2], [2, 1]).forward_shape([3]), r"must end with \[2\]"),
        (lambda d: d.TransformedDistribution(d.Normal(A, B), [3]), "must be a list of Transforms"),
        (lambda d: d.StackTransform([d.ExpTransform()]).forward(paddle.ones([2])), "the 1 trans"),
    ],
)
def test_numbers_that_a_parameter_cannot_be_are_refused(refused: Any, sentence: str) -> None:
    with pytest.raises((InvalidValue, InvalidType, Unsupported), match=sentence):
        refused(distribution)


def test_shapes_of_transforms() -> None:
    t = distribution.transform
    chain = t.ChainTransform([t.ExpTransform(), t.StickBreakingTransform()])
    assert chain.forward_shape([2, 3]) == (2, 4) and chain.inverse_shape([2, 4]) == (2, 3)
    assert t.AffineTransform(A, 1.0).forward_shape([2, 1]) == (2, 3)
    assert t.PowerTransform(A).inverse_shape([1]) == (3,)
    assert t.ReshapeTransform([4], [2, 2]).inverse_shape([5, 2, 2]) == (5, 4)
    assert t.ExpTransform()(t.TanhTransform()).forward(paddle.ones([2])).shape == (2,)
    simplex = distribution.TransformedDistribution(distribution.Normal(A, B), [chain])
    assert (simplex.batch_shape, simplex.event_shape) == ((), (4,))
    (drawn,) = fetched(simplex.sample([6]))
    np.testing.assert_allclose(drawn.sum(-1), np.ones(6), rtol=1e-5)


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
        InvalidValue, match=r"only one size of a batch may be unknown, got \[-1, -1\]"
    ):
        distribution.Normal(unknown, 1.0).sample()
