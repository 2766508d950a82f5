"""``fluid.incubate.fleet.base.role_maker``: which part a process plays."""

from .....cluster.fleet.roles import (
    GeneralRoleMaker,
    MPISymetricRoleMaker,
    PaddleCloudRoleMaker,
    Role,
    RoleMakerBase,
    UserDefinedCollectiveRoleMaker,
    UserDefinedRoleMaker,
)
from .....names import listing, missing

__all__ = [
    "GeneralRoleMaker",
    "MPISymetricRoleMaker",
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
