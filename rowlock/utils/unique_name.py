"""``paddle.utils.unique_name``: names of variables and parameters."""

from ..fluid.unique_name import generate as generate
from ..fluid.unique_name import guard as guard
from ..fluid.unique_name import switch as switch
from ..names import publish_imports

publish_imports(__name__)
