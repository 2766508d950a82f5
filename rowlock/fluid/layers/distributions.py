"""``fluid.layers.distributions``."""

from ...graph.layers.distributions import Categorical as Categorical
from ...graph.layers.distributions import MultivariateNormalDiag as MultivariateNormalDiag
from ...graph.layers.distributions import Normal as Normal
from ...graph.layers.distributions import Uniform as Uniform
from ...names import publish_imports

publish_imports(__name__)
