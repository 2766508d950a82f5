"""``fluid.dataloader``: samples by number, and which of them make a batch."""

from ..io import BatchSampler as BatchSampler
from ..io import Dataset as Dataset
from ..names import publish_imports

publish_imports(__name__)
