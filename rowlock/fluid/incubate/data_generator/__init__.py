"""``fluid.incubate.data_generator``: programs that write what datasets read."""

from ....executor.loading.data_generators import (
    DataGenerator,
    MultiSlotDataGenerator,
    MultiSlotStringDataGenerator,
)
from ....names import listing, missing

__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
