"""``paddle.distributed.fleet.base.role_maker``: which part a process plays."""

from ....cluster.fleet.roles import CloudRoleMaker as PaddleCloudRoleMaker
from ....cluster.fleet.roles import DefinedRoleMaker as UserDefinedRoleMaker
from ....cluster.fleet.roles import Role, RoleMakerBase
from ....names import publish_listed

__all__ = ["PaddleCloudRoleMaker", "Role", "RoleMakerBase", "UserDefinedRoleMaker"]

publish_listed(__name__)
