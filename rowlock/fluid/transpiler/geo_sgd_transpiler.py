"""``fluid.transpiler.geo_sgd_transpiler``."""

from ...graph.transpiler.distribute import GeoSgdTranspiler
from ...names import listing, missing

__all__ = ["GeoSgdTranspiler"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
