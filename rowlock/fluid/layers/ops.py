"""``fluid.layers.ops``: functions of one tensor."""

from ...graph.layers.activations import hard_shrink as hard_shrink
from ...graph.layers.activations import softshrink as softshrink
from ...graph.layers.activations import tanh_shrink as tanh_shrink
from ...graph.layers.activations import thresholded_relu as thresholded_relu
from ...graph.layers.tensors import cumsum as cumsum
from ...graph.layers.unary import abs as abs
from ...graph.layers.unary import acos as acos
from ...graph.layers.unary import asin as asin
from ...graph.layers.unary import atan as atan
from ...graph.layers.unary import ceil as ceil
from ...graph.layers.unary import cos as cos
from ...graph.layers.unary import erf as erf
from ...graph.layers.unary import exp as exp
from ...graph.layers.unary import floor as floor
from ...graph.layers.unary import gelu as gelu
from ...graph.layers.unary import logsigmoid as logsigmoid
from ...graph.layers.unary import reciprocal as reciprocal
from ...graph.layers.unary import round as round
from ...graph.layers.unary import rsqrt as rsqrt
from ...graph.layers.unary import sigmoid as sigmoid
from ...graph.layers.unary import sin as sin
from ...graph.layers.unary import softplus as softplus
from ...graph.layers.unary import softsign as softsign
from ...graph.layers.unary import sqrt as sqrt
from ...graph.layers.unary import square as square
from ...graph.layers.unary import tanh as tanh
from ...names import publish_imports

publish_imports(__name__)
