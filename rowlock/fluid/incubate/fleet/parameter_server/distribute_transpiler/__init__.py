"""``fluid.incubate.fleet.parameter_server.distribute_transpiler``: the fleet with parameter servers."""

from ......cluster.fleet.servers import DistributedTranspiler as DistributedTranspiler
from ......cluster.fleet.servers import TranspilerOptimizer as TranspilerOptimizer
from ......cluster.fleet.servers import fleet as fleet
from ......cluster.fleet.strategies import AsyncStrategy as AsyncStrategy
from ......cluster.fleet.strategies import DistributedStrategy as DistributedStrategy
from ......cluster.fleet.strategies import GeoStrategy as GeoStrategy
from ......cluster.fleet.strategies import HalfAsyncStrategy as HalfAsyncStrategy
from ......cluster.fleet.strategies import StrategyFactory as StrategyFactory
from ......cluster.fleet.strategies import SyncStrategy as SyncStrategy
from ......cluster.fleet.strategies import TrainerRuntimeConfig as TrainerRuntimeConfig
from ......names import publish_imports
from . import distributed_strategy as distributed_strategy

publish_imports(__name__, distributed_strategy)
