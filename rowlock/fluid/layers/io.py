"""``fluid.layers.io``: data variables and readers."""

from ...executor.loading.data_loader import (
    create_py_reader_by_data,
    double_buffer,
    py_reader,
    read_file,
)
from ...graph.layers.io import data
from ...names import listing, missing

__all__ = [
    "create_py_reader_by_data",
    "data",
    "double_buffer",
    "py_reader",
    "read_file",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
