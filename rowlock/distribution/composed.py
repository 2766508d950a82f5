"""Distributions of vectors: several that go together, and normal ones that depend on each other."""

from __future__ import annotations

import math
from typing import Any

from ..functions import math as functions
from ..functions.math import cholesky, matmul
from ..graph.layers import shape as layers
from ..graph.layers import unary
from ..graph.layers.matrices import diagonal
from ..graph.program.variable import Variable
from ..linalg import inv
from ..names import publish_definitions
from ..strategies.errors import InvalidValue, require_type
from .base import Distribution, register_kl
from .parameters import aligned, broadcast, sum_last, values_of


class Independent(Distribution):
    """Draws of a batch as one: the last ``reinterpreted_batch_rank`` dimensions are the event's.

    Raises:
        InvalidType: ``base`` is no distribution.
        InvalidValue: its batch has not so many dimensions.
    """

    def __init__(self, base: Distribution, reinterpreted_batch_rank: int) -> None:
        require_type(base, Distribution, "Independent: base must be a Distribution")
        rank = len(base.batch_shape)
        if not 0 < reinterpreted_batch_rank <= rank:
            raise InvalidValue(
                f"Independent: reinterpreted_batch_rank must be from 1 to {rank}, the dimensions of the "
                f"batch {list(base.batch_shape)}, got {reinterpreted_batch_rank!r}."
            )
        whole, batch = base.batch_shape + base.event_shape, rank - reinterpreted_batch_rank
        super().__init__(whole[:batch], whole[batch:])
        self._base, self._rank = base, reinterpreted_batch_rank

    mean = property(lambda self: self._base.mean)
    variance = property(lambda self: self._base.variance)

    def sample(self, shape: Any = ()) -> Variable:
        return self._base.sample(shape)

    def rsample(self, shape: Any = ()) -> Variable:
        return self._base.rsample(shape)

    def log_prob(self, value: Variable) -> Variable:
        return sum_last(self._base.log_prob(value), self._rank)

    def entropy(self) -> Variable:
        return sum_last(self._base.entropy(), self._rank)


class MultivariateNormal(Distribution):
    """Normal vectors around ``loc`` [..., n], which one of the matrices [..., n, n] tells the spread of.

    ``covariance_matrix`` is ``scale_tril`` by its transpose, the inverse of ``precision_matrix``.

    Raises:
        InvalidValue: there is none of the matrices, or several; shapes do not fit.
    """

    covariance_matrix: Variable | None = None
    precision_matrix: Variable | None = None
    scale_tril: Variable | None = None

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
    ) -> None:
        kind = "MultivariateNormal"
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        chosen = [name for name, matrix in matrices.items() if matrix is not None]
        if len(chosen) != 1:
            raise InvalidValue(
                f"{kind}: one of {', '.join(matrices)} says how far draws spread, got {chosen}."
            )
        (name,) = chosen
        center, matrix = values_of(loc, "loc", kind), values_of(matrices[name], name, kind)
        shape, size = tuple(matrix.shape or ()), (center.shape or (1,))[-1]
        if len(shape) < 2 or shape[-2] != shape[-1] or size not in (1, shape[-1]):
            raise InvalidValue(
                f"{kind}: {name} must be [..., n, n] for loc [..., n], got {list(shape)} and "
                f"{list(center.shape or ())}."
            )
        batch = broadcast(tuple(center.shape or ())[:-1], shape[:-2], kind)
        super().__init__(batch, shape[-1:])
        setattr(self, name, matrix)
        if name != "scale_tril":
            matrix = cholesky(inv(matrix) if name == "precision_matrix" else matrix)
        self._root, self._inverse = matrix, inv(matrix)
        self._log_root = sum_last(unary.log(diagonal(matrix, axis1=-2, axis2=-1)), 1)
        self.loc = functions.add(center, sum_last(matrix, 1) * 0.0)
        self._values = {"loc": self.loc}

    mean = property(lambda self: self.loc)
    variance = property(
        lambda self: functions.add(sum_last(unary.square(self._root), 1), self.loc * 0.0)
    )
    _is_normal = True

    def _from(self, numbers: Variable, /) -> Variable:
        return functions.add(_product(self._root, numbers), self.loc)

    def _distance(self, vectors: Variable) -> Variable:
        """Return the squares of Mahalanobis' distances."""
        return sum_last(unary.square(_product(self._inverse, vectors)), 1)

    def log_prob(self, value: Variable) -> Variable:
        value, loc = self._aligned(value)
        norm = self.event_shape[0] * math.log(2 * math.pi)
        return functions.subtract((self._distance(value - loc) + norm) * -0.5, self._log_root)

    def entropy(self) -> Variable:
        half = 0.5 * self.event_shape[0] * (1.0 + math.log(2 * math.pi))
        return functions.add(self._log_root + half, sum_last(self.loc * 0.0, 1))


def _product(matrix: Variable, vectors: Variable) -> Variable:
    """Return the products of matrices [..., n, n] and vectors [..., n]."""
    matrix, columns = aligned(matrix, layers.unsqueeze(vectors, [vectors.ndim]))
    return layers.squeeze(matmul(matrix, columns), [columns.ndim - 1])


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Variable:
    loc, other = aligned(p.loc, q.loc)
    inverse, root = aligned(q._inverse, p._root)
    spread = sum_last(unary.square(matmul(inverse, root)), 2)
    total = functions.add(spread, q._distance(loc - other)) - float(p.event_shape[0])
    return functions.add(total * 0.5, functions.subtract(q._log_root, p._log_root))


publish_definitions(__name__)
