"""``fluid.layers.io``: data variables and readers."""

from ...executor.loading.data_loader import create_py_reader_by_data as create_py_reader_by_data
from ...executor.loading.data_loader import double_buffer as double_buffer
from ...executor.loading.data_loader import py_reader as py_reader
from ...executor.loading.data_loader import read_file as read_file
from ...graph.layers.io import data as data
from ...names import publish_imports

publish_imports(__name__)
