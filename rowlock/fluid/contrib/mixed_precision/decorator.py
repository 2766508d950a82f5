"""``fluid.contrib.mixed_precision.decorator``: the module that Paddle keeps ``decorate`` in."""

from ....executor.driver.mixed_precision import (
    OptimizerWithMixedPrecision as OptimizerWithMixedPrecision,
)
from ....names import publish_imports
from . import decorate as decorate

publish_imports(__name__)
