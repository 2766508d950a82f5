"""``fluid.contrib.mixed_precision``: float16 by Paddle 1.8's lists."""

from ....names import publish_listed
from . import decorator as decorator
from . import fp16_lists as fp16_lists
from .decorator import OptimizerWithMixedPrecision, decorate
from .fp16_lists import AutoMixedPrecisionLists

__all__ = ["AutoMixedPrecisionLists", "OptimizerWithMixedPrecision", "decorate"]

publish_listed(__name__)
