"""``paddle.distribution``: distributions whose parameters are variables, numbers or arrays.

A distribution has a ``batch_shape``, that of its parameters, broadcast, and an ``event_shape``, that of one
draw; samples are ``shape`` and then both. The first size of a batch may be unknown, as of what is fed. Numbers
that a parameter cannot be are refused; what a step computes is not looked at. Draws are functions of numbers
that do not depend on parameters, so gradients pass from ``rsample`` to these: Kingma and Welling, arXiv
1312.6114.

``base`` is what all have in common, ``located`` and ``discrete`` are of one number, ``gamma`` of what gamma
distributions draw, ``composed`` of vectors, ``transform`` of functions of draws.
"""

from ..names import publish_imports
from . import transform as transform
from .base import *
from .composed import *
from .discrete import *
from .gamma import *
from .located import *
from .transform import *

publish_imports(__name__, transform)
