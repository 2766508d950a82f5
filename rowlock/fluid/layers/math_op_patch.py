"""``fluid.layers.math_op_patch``: operators of variables are methods of ``Variable``."""

from ...names import publish_listed

__all__: list[str] = []

publish_listed(__name__)
