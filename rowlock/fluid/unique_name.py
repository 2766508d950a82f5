"""``fluid.unique_name``: names of variables and parameters."""

from ..graph.program import unique_name as _names
from ..graph.program.unique_name import UniqueNameGenerator as UniqueNameGenerator
from ..graph.program.unique_name import generate as generate
from ..graph.program.unique_name import guard as guard
from ..graph.program.unique_name import switch as switch
from ..names import missing, publish_imports


def __getattr__(name: str) -> UniqueNameGenerator:
    """Return the generator in force, as ``generator``, which ``guard`` and ``switch`` replace."""
    return _names.generator if name == "generator" else missing(__name__)(name)


publish_imports(__name__)
