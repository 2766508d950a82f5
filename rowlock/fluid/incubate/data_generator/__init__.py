"""``fluid.incubate.data_generator``: programs that write what datasets read."""

from ....executor.loading.data_generators import DataGenerator as DataGenerator
from ....executor.loading.data_generators import MultiSlotDataGenerator as MultiSlotDataGenerator
from ....executor.loading.data_generators import (
    MultiSlotStringDataGenerator as MultiSlotStringDataGenerator,
)
from ....names import publish_imports

publish_imports(__name__)
