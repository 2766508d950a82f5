"""``paddle.vision.transforms``: transforms of images of Pillow and of NumPy arrays, before they are fed.

``transforms.py``, ``colours.py`` and ``distortions.py`` have them as objects, ``functional.py`` as functions.
Pillow (the extra ``vision``) is imported when it is needed: for its own images, and to resample arrays or turn
their hue.
"""

from ...names import publish_imports
from .functional import *
from .transforms import *

publish_imports(__name__)
