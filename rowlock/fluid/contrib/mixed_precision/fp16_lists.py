"""``fluid.contrib.mixed_precision.fp16_lists``: the lists of ops that run in float16, or never do."""

from ....graph.training.amp.lists import AutoMixedPrecisionLists18 as AutoMixedPrecisionLists
from ....names import publish_listed

__all__ = ["AutoMixedPrecisionLists"]

publish_listed(__name__)
