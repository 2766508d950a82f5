"""``paddle.distributed.fleet.base``: roles."""

from ....names import publish_imports
from . import role_maker as role_maker

publish_imports(__name__, role_maker)
