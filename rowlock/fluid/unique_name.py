"""``fluid.unique_name``: names of variables and parameters."""

from ..graph.program.unique_name import UniqueNameGenerator as UniqueNameGenerator
from ..graph.program.unique_name import generate as generate
from ..graph.program.unique_name import guard as guard
from ..graph.program.unique_name import switch as switch
from ..names import publish_imports

publish_imports(__name__)
