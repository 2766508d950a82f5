"""``paddle.distributed.fleet``: Paddle 2.x's fleet for static programs; its functions are one fleet's."""

from __future__ import annotations

from typing import Any

from ...cluster.fleet.fleet_2x import Fleet, UtilBase
from ...cluster.fleet.fleet_2x import fleet as fleet
from ...cluster.fleet.roles import CloudRoleMaker as PaddleCloudRoleMaker
from ...cluster.fleet.roles import DefinedRoleMaker as UserDefinedRoleMaker
from ...cluster.fleet.roles import Role
from ...executor.loading.data_generators import MultiSlotDataGenerator, MultiSlotStringDataGenerator
from ...executor.loading.dataset_base import DatasetBase
from ...names import missing, publish_listed
from .. import datasets
from . import base as base
from . import utils as utils

InMemoryDataset = datasets.InMemoryDataset
QueueDataset = datasets.QueueDataset

all_reduce = fleet.all_reduce
barrier_worker = fleet.barrier_worker
distributed_optimizer = fleet.distributed_optimizer
init = fleet.init
init_server = fleet.init_server
init_worker = fleet.init_worker
is_first_worker = fleet.is_first_worker
is_server = fleet.is_server
is_worker = fleet.is_worker
minimize = fleet.minimize
node_num = fleet.node_num
nranks = world_size = worker_num = fleet.worker_num
rank = worker_index = fleet.worker_index
run_server = fleet.run_server
save_inference_model = fleet.save_inference_model
save_persistables = fleet.save_persistables
server_endpoints = fleet.server_endpoints
server_index = fleet.server_index
server_num = fleet.server_num
split_files = fleet.split_files
stop_worker = fleet.stop_worker
util = fleet.util
worker_endpoints = fleet.worker_endpoints

_missing = missing(__name__)


def __getattr__(name: str) -> Any:
    if name == "DistributedStrategy":  # it imports Pydantic
        from ...strategies.distributed import DistributedStrategy

        return DistributedStrategy
    if name in ("main_program", "startup_program"):  # known once ``minimize`` was called
        return getattr(fleet, name)
    return _missing(name)


__all__ = [
    "DatasetBase",
    "DistributedStrategy",
    "Fleet",
    "InMemoryDataset",
    "MultiSlotDataGenerator",
    "MultiSlotStringDataGenerator",
    "PaddleCloudRoleMaker",
    "QueueDataset",
    "Role",
    "UserDefinedRoleMaker",
    "UtilBase",
    "all_reduce",
    "barrier_worker",
    "base",
    "distributed_optimizer",
    "fleet",
    "init",
    "init_server",
    "init_worker",
    "is_first_worker",
    "is_server",
    "is_worker",
    "minimize",
    "node_num",
    "nranks",
    "rank",
    "run_server",
    "save_inference_model",
    "save_persistables",
    "server_endpoints",
    "server_index",
    "server_num",
    "split_files",
    "stop_worker",
    "util",
    "utils",
    "worker_endpoints",
    "worker_index",
    "worker_num",
    "world_size",
]

publish_listed(__name__)
