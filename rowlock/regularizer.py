"""``paddle.regularizer``: weight decay."""

from .graph.layers.regularizer import L1Decay as L1Decay
from .graph.layers.regularizer import L2Decay as L2Decay
from .graph.layers.regularizer import WeightDecayRegularizer as WeightDecayRegularizer
from .names import publish_imports

publish_imports(__name__)
