"""``fluid.transpiler.ps_dispatcher``: which server has which variable."""

from ...graph.transpiler.dispatch import HashName as HashName
from ...graph.transpiler.dispatch import PSDispatcher as PSDispatcher
from ...graph.transpiler.dispatch import RoundRobin as RoundRobin
from ...names import publish_imports

publish_imports(__name__)
