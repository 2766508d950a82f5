"""``paddle.distributed``: starting the processes of a job, and file systems.

``python -m rowlock.distributed.launch script.py`` starts workers, ``launch_ps`` workers and parameter servers.
``launch(servers, trainers)`` starts both from one program, as actors and tasks of Ray.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..names import missing, publish_listed
from . import fs_wrapper

__all__ = ["TrainerProgram", "fs_wrapper", "launch"]


def __getattr__(name: str) -> Any:
    if name == "launch":  # a module that can be called
        return importlib.import_module(".launch", __name__)
    if name == "TrainerProgram":
        return importlib.import_module("..cluster.pserver.topology", __name__).TrainerProgram
    return missing(__name__)(name)


publish_listed(__name__)
