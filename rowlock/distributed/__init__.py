"""``paddle.distributed``: starting the processes of a job, the fleet that they are, and their files.

``python -m rowlock.distributed.launch script.py`` starts workers, ``launch_ps`` workers and parameter servers.
``launch(servers, trainers)`` starts both from one program, as actors and tasks of Ray. What asks for workers is
imported when it is used: a launcher needs nothing of what runs programs.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..names import missing, publish_listed
from . import fs_wrapper

__all__ = [
    "InMemoryDataset",
    "ParallelEnv",
    "QueueDataset",
    "TrainerProgram",
    "fleet",
    "fs_wrapper",
    "get_rank",
    "get_world_size",
    "init_parallel_env",
    "launch",
]


def __getattr__(name: str) -> Any:
    if name in ("fleet", "launch"):  # ``launch`` is a module that can be called
        return importlib.import_module(f".{name}", __name__)
    if name in ("ParallelEnv", "get_rank", "get_world_size", "init_parallel_env"):
        return getattr(importlib.import_module(".parallel", __name__), name)
    if name in ("InMemoryDataset", "QueueDataset"):
        return getattr(importlib.import_module(".datasets", __name__), name)
    if name == "TrainerProgram":
        return importlib.import_module("..cluster.pserver.topology", __name__).TrainerProgram
    return missing(__name__)(name)


publish_listed(__name__)
