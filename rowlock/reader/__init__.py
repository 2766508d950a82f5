"""``paddle.reader``: decorators of readers."""

from ..names import publish_imports
from .decorator import *

publish_imports(__name__)
