"""``fluid.transpiler.geo_sgd_transpiler``."""

from ...graph.transpiler.distribute import GeoSgdTranspiler as GeoSgdTranspiler
from ...names import publish_imports

publish_imports(__name__)
