"""``paddle.inference``: predict with a saved model. ``fluid.core`` has the same under Paddle 1.x's names."""

from ..executor.inference.config import AnalysisConfig as Config
from ..executor.inference.config import Precision as PrecisionType
from ..executor.inference.predictor import PaddlePredictor as Predictor
from ..executor.inference.predictor import create_paddle_predictor as create_predictor
from ..executor.inference.tensors import PaddleDType as DataType
from ..executor.inference.tensors import ZeroCopyTensor as Tensor
from ..executor.inference.tensors import paddle_dtype_size as get_num_bytes_of_data_type
from ..names import publish_listed

__all__ = [
    "Config",
    "DataType",
    "PrecisionType",
    "Predictor",
    "Tensor",
    "create_predictor",
    "get_num_bytes_of_data_type",
]

publish_listed(__name__)
