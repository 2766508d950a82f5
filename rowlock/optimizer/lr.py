"""``paddle.optimizer.lr``: schedules that ``step()`` moves on."""

from ..graph.training.lr_scheduler import CosineAnnealingDecay as CosineAnnealingDecay
from ..graph.training.lr_scheduler import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from ..graph.training.lr_scheduler import CyclicLR as CyclicLR
from ..graph.training.lr_scheduler import ExponentialDecay as ExponentialDecay
from ..graph.training.lr_scheduler import InverseTimeDecay as InverseTimeDecay
from ..graph.training.lr_scheduler import LambdaDecay as LambdaDecay
from ..graph.training.lr_scheduler import LinearLR as LinearLR
from ..graph.training.lr_scheduler import LinearWarmup as LinearWarmup
from ..graph.training.lr_scheduler import LRScheduler as LRScheduler
from ..graph.training.lr_scheduler import MultiplicativeDecay as MultiplicativeDecay
from ..graph.training.lr_scheduler import MultiStepDecay as MultiStepDecay
from ..graph.training.lr_scheduler import NaturalExpDecay as NaturalExpDecay
from ..graph.training.lr_scheduler import NoamDecay as NoamDecay
from ..graph.training.lr_scheduler import OneCycleLR as OneCycleLR
from ..graph.training.lr_scheduler import PiecewiseDecay as PiecewiseDecay
from ..graph.training.lr_scheduler import PolynomialDecay as PolynomialDecay
from ..graph.training.lr_scheduler import ReduceOnPlateau as ReduceOnPlateau
from ..graph.training.lr_scheduler import StepDecay as StepDecay
from ..names import publish_imports

publish_imports(__name__)
