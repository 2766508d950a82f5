"""``paddle.incubate``."""

from ..geometric import segment_max as segment_max
from ..geometric import segment_mean as segment_mean
from ..geometric import segment_min as segment_min
from ..geometric import segment_sum as segment_sum
from ..names import publish_imports
from . import optimizer as optimizer
from .operators import *
from .optimizer import LookAhead as LookAhead
from .optimizer import ModelAverage as ModelAverage

publish_imports(__name__, optimizer)
