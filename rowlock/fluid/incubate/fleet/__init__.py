"""``fluid.incubate.fleet``: one script for all processes of a job."""

from ....names import publish_imports
from . import base as base
from . import collective as collective
from . import parameter_server as parameter_server
from . import utils as utils

publish_imports(__name__, base, collective, parameter_server, utils)
