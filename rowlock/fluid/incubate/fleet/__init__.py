"""``fluid.incubate.fleet``: one script for all processes of a job."""

from ....names import listing, missing
from . import base, collective, parameter_server, utils

__all__ = ["base", "collective", "parameter_server", "utils"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
