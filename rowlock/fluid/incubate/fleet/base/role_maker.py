"""``fluid.incubate.fleet.base.role_maker``: which part a process plays."""

from .....cluster.fleet.roles import GeneralRoleMaker as GeneralRoleMaker
from .....cluster.fleet.roles import MPISymetricRoleMaker as MPISymetricRoleMaker
from .....cluster.fleet.roles import PaddleCloudRoleMaker as PaddleCloudRoleMaker
from .....cluster.fleet.roles import Role as Role
from .....cluster.fleet.roles import RoleMakerBase as RoleMakerBase
from .....cluster.fleet.roles import (
    UserDefinedCollectiveRoleMaker as UserDefinedCollectiveRoleMaker,
)
from .....cluster.fleet.roles import UserDefinedRoleMaker as UserDefinedRoleMaker
from .....names import publish_imports

publish_imports(__name__)
