"""``fluid.incubate``."""

from ...names import publish_imports
from . import data_generator as data_generator

publish_imports(__name__, data_generator)
