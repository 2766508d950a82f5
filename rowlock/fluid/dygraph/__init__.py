"""``fluid.dygraph``: what static programs ask of it."""

from ...names import publish_imports
from ...nn.layer.layers import Layer as Layer
from . import base as base
from .base import enabled as enabled
from .base import guard as guard
from .base import to_variable as to_variable

publish_imports(__name__, base)
