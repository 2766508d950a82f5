"""``paddle.incubate``."""

from ..names import publish_imports
from . import optimizer as optimizer
from .optimizer import LookAhead as LookAhead
from .optimizer import ModelAverage as ModelAverage

publish_imports(__name__, optimizer)
