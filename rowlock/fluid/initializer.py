"""``fluid.initializer``."""

from ..graph.layers.initializer import MSRA as MSRA
from ..graph.layers.initializer import Bilinear as Bilinear
from ..graph.layers.initializer import BilinearInitializer as BilinearInitializer
from ..graph.layers.initializer import Constant as Constant
from ..graph.layers.initializer import ConstantInitializer as ConstantInitializer
from ..graph.layers.initializer import Initializer as Initializer
from ..graph.layers.initializer import MSRAInitializer as MSRAInitializer
from ..graph.layers.initializer import Normal as Normal
from ..graph.layers.initializer import NormalInitializer as NormalInitializer
from ..graph.layers.initializer import NumpyArrayInitializer as NumpyArrayInitializer
from ..graph.layers.initializer import TruncatedNormal as TruncatedNormal
from ..graph.layers.initializer import TruncatedNormalInitializer as TruncatedNormalInitializer
from ..graph.layers.initializer import Uniform as Uniform
from ..graph.layers.initializer import UniformInitializer as UniformInitializer
from ..graph.layers.initializer import Xavier as Xavier
from ..graph.layers.initializer import XavierInitializer as XavierInitializer
from ..names import publish_imports

publish_imports(__name__)
