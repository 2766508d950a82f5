"""``paddle.reader.decorator``: where Paddle keeps ``paddle.reader``."""

from ..executor.loading.sample_readers import ComposeNotAligned as ComposeNotAligned
from ..executor.loading.sample_readers import batch_by_length as batch_by_length
from ..executor.loading.sample_readers import buffered as buffered
from ..executor.loading.sample_readers import cache as cache
from ..executor.loading.sample_readers import chain as chain
from ..executor.loading.sample_readers import compose as compose
from ..executor.loading.sample_readers import firstn as firstn
from ..executor.loading.sample_readers import map_readers as map_readers
from ..executor.loading.sample_readers import multiprocess_reader as multiprocess_reader
from ..executor.loading.sample_readers import shuffle as shuffle
from ..executor.loading.sample_readers import xmap_readers as xmap_readers
from ..names import publish_imports

publish_imports(__name__)
