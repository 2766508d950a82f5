"""``fluid.io``: readers; saving and loading."""

from ..executor.loading.collate import default_collate_fn as default_collate_fn
from ..executor.loading.data_loader import DataLoader as DataLoader
from ..executor.loading.data_loader import PyReader as PyReader
from ..executor.loading.sample_readers import ComposeNotAligned as ComposeNotAligned
from ..executor.loading.sample_readers import batch as batch
from ..executor.loading.sample_readers import buffered as buffered
from ..executor.loading.sample_readers import cache as cache
from ..executor.loading.sample_readers import chain as chain
from ..executor.loading.sample_readers import compose as compose
from ..executor.loading.sample_readers import firstn as firstn
from ..executor.loading.sample_readers import map_readers as map_readers
from ..executor.loading.sample_readers import multiprocess_reader as multiprocess_reader
from ..executor.loading.sample_readers import shuffle as shuffle
from ..executor.loading.sample_readers import xmap_readers as xmap_readers
from ..executor.saving.models import load_inference_model as load_inference_model
from ..executor.saving.models import save_inference_model as save_inference_model
from ..executor.saving.programs import get_parameter_value as get_parameter_value
from ..executor.saving.programs import get_parameter_value_by_name as get_parameter_value_by_name
from ..executor.saving.programs import get_program_parameter as get_program_parameter
from ..executor.saving.programs import get_program_persistable_vars as get_program_persistable_vars
from ..executor.saving.programs import load_params as load_params
from ..executor.saving.programs import load_persistables as load_persistables
from ..executor.saving.programs import load_vars as load_vars
from ..executor.saving.programs import save_params as save_params
from ..executor.saving.programs import save_persistables as save_persistables
from ..executor.saving.programs import save_vars as save_vars
from ..executor.saving.states import load as load
from ..executor.saving.states import load_program_state as load_program_state
from ..executor.saving.states import save as save
from ..executor.saving.states import set_program_state as set_program_state
from ..executor.saving.variables import is_belong_to_optimizer as is_belong_to_optimizer
from ..executor.saving.variables import is_parameter as is_parameter
from ..executor.saving.variables import is_persistable as is_persistable
from ..graph.program.formats.inference import append_fetch_ops as append_fetch_ops
from ..graph.program.formats.inference import prepend_feed_ops as prepend_feed_ops
from ..io import BatchSampler as BatchSampler
from ..io import Dataset as Dataset
from ..names import publish_imports

publish_imports(__name__)
