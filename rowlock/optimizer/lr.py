"""``paddle.optimizer.lr``: schedules that ``step()`` moves on."""

from ..graph.training.lr_scheduler.base import LRScheduler as LRScheduler
from ..graph.training.lr_scheduler.base import ReduceOnPlateau as ReduceOnPlateau
from ..graph.training.lr_scheduler.cycles import CosineAnnealingDecay as CosineAnnealingDecay
from ..graph.training.lr_scheduler.cycles import (
    CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts,
)
from ..graph.training.lr_scheduler.cycles import CyclicLR as CyclicLR
from ..graph.training.lr_scheduler.cycles import OneCycleLR as OneCycleLR
from ..graph.training.lr_scheduler.decays import ExponentialDecay as ExponentialDecay
from ..graph.training.lr_scheduler.decays import InverseTimeDecay as InverseTimeDecay
from ..graph.training.lr_scheduler.decays import LambdaDecay as LambdaDecay
from ..graph.training.lr_scheduler.decays import LinearLR as LinearLR
from ..graph.training.lr_scheduler.decays import LinearWarmup as LinearWarmup
from ..graph.training.lr_scheduler.decays import MultiplicativeDecay as MultiplicativeDecay
from ..graph.training.lr_scheduler.decays import MultiStepDecay as MultiStepDecay
from ..graph.training.lr_scheduler.decays import NaturalExpDecay as NaturalExpDecay
from ..graph.training.lr_scheduler.decays import NoamDecay as NoamDecay
from ..graph.training.lr_scheduler.decays import PiecewiseDecay as PiecewiseDecay
from ..graph.training.lr_scheduler.decays import PolynomialDecay as PolynomialDecay
from ..graph.training.lr_scheduler.decays import StepDecay as StepDecay
from ..names import publish_imports

publish_imports(__name__)
