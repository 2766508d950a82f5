"""``fluid.op``."""

from ..names import publish_listed

__all__: list[str] = []

publish_listed(__name__)
