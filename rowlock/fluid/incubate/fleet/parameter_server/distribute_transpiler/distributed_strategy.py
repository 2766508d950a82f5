"""``fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy``: modes of training."""

from ......cluster.fleet.strategies import AsyncStrategy as AsyncStrategy
from ......cluster.fleet.strategies import DistributedStrategy as DistributedStrategy
from ......cluster.fleet.strategies import GeoStrategy as GeoStrategy
from ......cluster.fleet.strategies import HalfAsyncStrategy as HalfAsyncStrategy
from ......cluster.fleet.strategies import ServerRuntimeConfig as ServerRuntimeConfig
from ......cluster.fleet.strategies import StrategyFactory as StrategyFactory
from ......cluster.fleet.strategies import SyncStrategy as SyncStrategy
from ......cluster.fleet.strategies import TrainerRuntimeConfig as TrainerRuntimeConfig
from ......names import publish_imports

publish_imports(__name__)
