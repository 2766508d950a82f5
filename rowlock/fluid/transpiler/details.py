"""``fluid.transpiler.details``."""

from ...graph.transpiler.ports import wait_server_ready as wait_server_ready
from ...names import publish_imports

publish_imports(__name__)
