"""``fluid.reader``: loaders that feed programs."""

from ..executor.loading.collate import default_collate_fn as default_collate_fn
from ..executor.loading.data_loader import DataLoader as DataLoader
from ..executor.loading.data_loader import PyReader as PyReader
from ..names import publish_imports

publish_imports(__name__)
