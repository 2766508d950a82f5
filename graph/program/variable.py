"""Variable and Parameter: the names a program computes with, and the shapes and types of their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Never, NoReturn

from ...strategies.errors import InvalidValue, ReadOnly
from ...strategies.types import VarType, to_var_type
from . import unique_name
from .role import grad_name
from .where import called_by_user, warn_user

if TYPE_CHECKING:
    from .block import Block
    from .operator import Operator


class Variable:
    """A named value of a block.

    ``shape`` is a tuple of ints in which -1 stands for a size known only when the program runs;
    ``dtype`` is a :class:`VarType`. Arithmetic operators append ops (see ``graph.layers.operators``).
    """

    def __init__(
        self,
        block: Block,
        *,
        name: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        type: VarType = VarType.LOD_TENSOR,
        lod_level: int | None = None,
        persistable: bool = False,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        error_clip: Any = None,
    ) -> None:
        self.block = block
        self.name = name or unique_name.generate("_generated_var")
        if type == VarType.LOD_RANK_TABLE:  # files do not say what it consists of
            shape, dtype = (-1, 2), VarType.INT64
        self._shape = None if shape is None else tuple(int(d) for d in shape)
        self._dtype = None if dtype is None else to_var_type(dtype)
        self._type = type
        self._lod_level = lod_level or 0
        self.persistable = persistable
        self.stop_gradient = stop_gradient
        self.is_data = is_data
        self.need_check_feed = need_check_feed
        self.error_clip = error_clip
        self.op: Operator | None = None
        self.where = ""  # the user's line, of variables that are fed
        self.file_fields: dict[str, Any] = {}  # fields of the file it was loaded from

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The sizes, None before they are known; -1 is a size known only when the program runs."""
        return self._shape

    @shape.setter
    def shape(self, value: Never) -> NoReturn:
        self._refuse_to_assign("shape", "compute another variable by layers.reshape")

    @property
    def dtype(self) -> VarType | None:
        """The element type, None before it is known."""
        return self._dtype

    @dtype.setter
    def dtype(self, value: Never) -> NoReturn:
        self._refuse_to_assign("dtype", "compute another variable by layers.cast")

    @property
    def lod_level(self) -> int:
        """How many levels of sequences the rows form."""
        return self._lod_level

    @lod_level.setter
    def lod_level(self, value: Never) -> NoReturn:
        self._refuse_to_assign("lod_level", "compute another variable by layers.lod_reset")

    @property
    def type(self) -> VarType:
        """What the variable holds: a tensor, rows of one, an array of tensors."""
        return self._type

    @type.setter
    def type(self, value: Never) -> NoReturn:
        self._refuse_to_assign("type", "compute another variable by a layer that returns that type")

    def _refuse_to_assign(self, part: str, cure: str) -> NoReturn:
        raise ReadOnly(
            f"{part} of {self.name!r} cannot be assigned, because it is what feeds or an op declare: {cure}, "
            f"or call desc.set_{part} to change the declaration."
        )

    @property
    def desc(self) -> VarDesc:
        """The declaration of the variable, with the methods of Paddle's ``VarDesc``."""
        return VarDesc(self)

    @property
    def grad_name(self) -> str:
        """Name of this variable's gradient."""
        return grad_name(self.name)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape or ())

    def _set_error_clip(self, error_clip: Any) -> None:
        """Have ``minimize`` clip the gradient of this variable by an ``ErrorClipByValue`` (None: not)."""
        self.error_clip = error_clip

    def details(self) -> dict[str, Any]:
        """Return the settings of the variable that a saved program does not hold, by name."""
        return {"error_clip": self.error_clip, "stop_gradient": self.stop_gradient}

    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """Return one line that describes the variable; ``with_details`` adds the gradient flags."""
        text = repr(self)
        if with_details:
            text += f" error_clip={self.error_clip} stop_gradient={self.stop_gradient}"
        return text

    def __repr__(self) -> str:
        dtype = self.dtype.name if self.dtype is not None else "?"
        dims = "?" if self.shape is None else ",".join(map(str, self.shape))
        marks = "persistable " if self.persistable else ""
        return f"{marks}{self.__class__.__name__.lower()} {self.name}: {dtype}[{dims}]"

    def __hash__(self) -> int:
        # although == appends an op: hashing distinguishes variables, not their values
        return id(self)

    def __bool__(self) -> bool:
        """Return True, as programs that test for None expect, and warn that it is no value of a step.

        The warning names no variable, so that Python shows it once for a line, which may test many.
        """
        if called_by_user():
            warn_user(
                "the truth of a Variable is tested while the program is built: it is True, whatever the "
                "variable will hold. Test `is not None`, or compute with layers."
            )
        return True

    if TYPE_CHECKING:  # these are set by graph.layers.operators and graph.layers.subscript

        def __add__(self, other: Any) -> Variable: ...
        def __radd__(self, other: Any) -> Variable: ...
        def __sub__(self, other: Any) -> Variable: ...
        def __rsub__(self, other: Any) -> Variable: ...
        def __mul__(self, other: Any) -> Variable: ...
        def __rmul__(self, other: Any) -> Variable: ...
        def __truediv__(self, other: Any) -> Variable: ...
        def __rtruediv__(self, other: Any) -> Variable: ...
        def __floordiv__(self, other: Any) -> Variable: ...
        def __rfloordiv__(self, other: Any) -> Variable: ...
        def __mod__(self, other: Any) -> Variable: ...
        def __rmod__(self, other: Any) -> Variable: ...
        def __pow__(self, other: Any) -> Variable: ...
        def __rpow__(self, other: Any) -> Variable: ...
        def __matmul__(self, other: Any) -> Variable: ...
        def __neg__(self) -> Variable: ...
        def __pos__(self) -> Variable: ...
        def __abs__(self) -> Variable: ...
        def __invert__(self) -> Variable: ...
        def __and__(self, other: Any) -> Variable: ...
        def __rand__(self, other: Any) -> Variable: ...
        def __or__(self, other: Any) -> Variable: ...
        def __ror__(self, other: Any) -> Variable: ...
        def __xor__(self, other: Any) -> Variable: ...
        def __rxor__(self, other: Any) -> Variable: ...
        def __lshift__(self, other: Any) -> Variable: ...
        def __rlshift__(self, other: Any) -> Variable: ...
        def __rshift__(self, other: Any) -> Variable: ...
        def __rrshift__(self, other: Any) -> Variable: ...
        def __eq__(self, other: Any) -> Variable: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Variable: ...  # type: ignore[override]
        def __lt__(self, other: Any) -> Variable: ...
        def __le__(self, other: Any) -> Variable: ...
        def __gt__(self, other: Any) -> Variable: ...
        def __ge__(self, other: Any) -> Variable: ...
        def __getitem__(self, item: Any) -> Variable: ...
        def __iter__(self) -> Iterator[Variable]: ...
        def __len__(self) -> int: ...
        def __contains__(self, value: Any) -> bool: ...
        def astype(self, dtype: Any) -> Variable: ...
        def numel(self) -> Variable: ...
        @property
        def T(self) -> Variable: ...

        # and these by executor.saving.variables
        def get_value(self, scope: Any = None) -> Any: ...
        def set_value(self, value: Any, scope: Any = None) -> None: ...


class Parameter(Variable):
    """A persistable variable that an optimizer may update.

    Raises:
        InvalidValue: ``shape`` is missing, empty, or has a dimension that is not positive.
    """

    def __init__(
        self,
        block: Block,
        shape: Sequence[int] | None,
        dtype: Any,
        *,
        trainable: bool = True,
        optimize_attr: dict[str, Any] | None = None,
        regularizer: Any = None,
        gradient_clip_attr: Any = None,
        do_model_average: bool = False,
        need_clip: bool = True,
        is_distributed: bool = False,
        **variable: Any,
    ) -> None:
        name = variable.get("name")
        if shape is None:
            raise InvalidValue(f"parameter {name!r}: a shape is needed, got None.")
        if len(shape) == 0:
            raise InvalidValue(f"parameter {name!r}: the shape must have at least one dimension.")
        if any(dim < 0 for dim in shape):
            raise InvalidValue(
                f"parameter {name!r}: every dimension must be known and not negative, got {list(shape)}."
            )
        variable.setdefault("persistable", True)
        super().__init__(block, shape=shape, dtype=dtype, **variable)
        self.trainable = trainable
        self.stop_gradient = self.stop_gradient or not trainable
        self.optimize_attr = optimize_attr or {"learning_rate": 1.0}
        self.regularizer = regularizer
        self.gradient_clip_attr = gradient_clip_attr
        self.do_model_average = do_model_average
        self.need_clip = need_clip
        self.is_distributed = is_distributed

    def details(self) -> dict[str, Any]:
        """Return the settings of the parameter that a saved program does not hold, by name."""
        names = ("trainable", "optimize_attr", "regularizer", "do_model_average", "is_distributed")
        return super().details() | {name: getattr(self, name) for name in names}


class VarDesc:
    """The declaration of a variable, with the methods of Paddle's C++ class.

    ``set_shape`` leaves a size open, or prunes a parameter.
    """

    def __init__(self, variable: Variable) -> None:
        self._variable = variable

    def name(self) -> str:
        return self._variable.name

    def shape(self) -> list[int]:
        return list(self._variable.shape or ())

    def set_shape(self, shape: Sequence[int]) -> None:
        self._variable._shape = tuple(int(size) for size in shape)

    def dtype(self) -> VarType | None:
        return self._variable.dtype

    def set_dtype(self, dtype: Any) -> None:
        self._variable._dtype = to_var_type(dtype)

    def type(self) -> VarType:
        return self._variable.type

    def set_type(self, type: VarType) -> None:
        self._variable._type = type

    def lod_level(self) -> int:
        return self._variable.lod_level

    def set_lod_level(self, level: int) -> None:
        self._variable._lod_level = int(level)

    def persistable(self) -> bool:
        return self._variable.persistable

    def set_persistable(self, persistable: bool) -> None:
        self._variable.persistable = bool(persistable)
