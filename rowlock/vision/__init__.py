"""``paddle.vision``: :mod:`~rowlock.vision.models`, and ``ops`` and ``transforms`` of images."""

from ..names import publish_imports
from . import models as models
from . import ops as ops
from . import transforms as transforms
from .models import *
from .transforms import *

publish_imports(__name__, models, ops, transforms)
