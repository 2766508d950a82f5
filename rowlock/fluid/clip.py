"""``fluid.clip``."""

from ..graph.training.clip import BaseErrorClipAttr as BaseErrorClipAttr
from ..graph.training.clip import ErrorClipByValue as ErrorClipByValue
from ..graph.training.clip import GradientClipBase as GradientClipBase
from ..graph.training.clip import GradientClipByGlobalNorm as GradientClipByGlobalNorm
from ..graph.training.clip import GradientClipByNorm as GradientClipByNorm
from ..graph.training.clip import GradientClipByValue as GradientClipByValue
from ..graph.training.clip import append_gradient_clip_ops as append_gradient_clip_ops
from ..graph.training.clip import error_clip_callback as error_clip_callback
from ..graph.training.clip import set_gradient_clip as set_gradient_clip
from ..names import publish_imports

ClipByGlobalNorm = GradientClipByGlobalNorm
ClipByNorm = GradientClipByNorm
ClipByValue = GradientClipByValue

publish_imports(__name__)
