"""Block, which a user's script fills op by op, and the blocks of a program."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...strategies.errors import InvalidValue, NotFound, nearest, require_type
from ...strategies.types import VarType, to_var_type
from ..ops.rules import product
from .known import is_computable, of_sizes, size_values
from .operator import OpDesc, Operator
from .role import CALLSTACK, DEVICE, NAMESCOPE, ROLE, ROLE_VAR, OpRole
from .scopes import current_device, current_name_scope
from .variable import Parameter, VarDesc, Variable
from .where import user_line

_program_ids = itertools.count()


class Block:
    """An ordered list of operators and the variables they use. Block 0 is the program's own."""

    def __init__(self, program: ProgramBlocks, idx: int, parent_idx: int = -1) -> None:
        self.program = program
        self.idx = idx
        self.parent_idx = parent_idx
        self.forward_block_idx = -1
        self.vars: OrderedDict[str, Variable] = OrderedDict()
        self.ops: list[Operator] = []
        self.from_file = False
        self.file_fields: dict[str, Any] = {}  # fields of a file beside variables and operators

    @property
    def desc(self) -> Block:
        """The block itself, under the name by which ``op.desc.infer_shape`` takes it."""
        return self

    def op_size(self) -> int:
        """Return the number of operators, as Paddle's BlockDesc does."""
        return len(self.ops)

    def op(self, index: int) -> OpDesc:
        """Return the declaration of an operator, as Paddle's BlockDesc does."""
        return self.ops[index].desc

    def all_vars(self) -> list[VarDesc]:
        """Return the declarations of the variables, as Paddle's BlockDesc does."""
        return [variable.desc for variable in self.vars.values()]

    def _sync_with_cpp(self) -> None:
        """Do nothing: Paddle reads a block again here whose C++ half was edited; here a block has one half."""

    def var(self, name: str) -> Variable:
        """Return the variable of this block with that name.

        Raises:
            InvalidType: ``name`` is not a string.
            NotFound: this block holds no such variable.
        """
        require_type(name, str, "a variable is looked up by its name (str)")
        if name not in self.vars:
            raise NotFound(f"block {self.idx} has no variable {name!r}.{nearest(name, self.vars)}")
        return self.vars[name]

    def has_var(self, name: str) -> bool:
        """Tell whether this block holds the name."""
        return name in self.vars

    def var_recursive(self, name: str) -> Variable:
        """Return the variable from this block or the nearest enclosing one that holds it.

        Raises:
            NotFound: none of them holds it.
        """
        variable = self.find_var_recursive(name)
        if variable is None:
            raise NotFound(
                f"no variable {name!r} in block {self.idx} or around it.{nearest(name, self.vars)} "
                f"A variable of another program is used only under that one's program_guard."
            )
        return variable

    def find_var_recursive(self, name: str) -> Variable | None:
        """Return the variable from this block or the nearest enclosing one that holds it (None: none does).

        A gradient block sees the block whose gradients it computes, too, before those around.
        """
        if name in self.vars:
            return self.vars[name]
        for index in (self.forward_block_idx, self.parent_idx):
            variable = None if index < 0 else self.program.block(index).find_var_recursive(name)
            if variable is not None:
                return variable
        return None

    _var_recursive, _find_var_recursive = var_recursive, find_var_recursive

    def has_array(self, name: str) -> bool:
        """Tell whether the name, as this block sees it, is of an array of tensors."""
        variable = self.find_var_recursive(name)
        return variable is not None and variable.type == VarType.LOD_TENSOR_ARRAY

    def known_value(self, name: str, end: int | None = None) -> np.ndarray | None:
        """Return the value of a variable before the operator at ``end`` (None: after all).

        None: it is known only when the program runs.
        """
        for index in range((len(self.ops) if end is None else end) - 1, -1, -1):
            if name in self.ops[index].output_arg_names:
                return self._computed_value(name, index)
        return self._value_around(name)

    def _computed_value(self, name: str, index: int) -> np.ndarray | None:
        """Return the value that the operator at ``index`` gives a variable, None if it is not known."""
        op, variable = self.ops[index], self.find_var_recursive(name)
        if variable is None or variable.shape is None or variable.dtype is None:
            return None
        if not is_computable(op.type, variable.shape):
            return None
        try:
            inputs, attrs = op.resolve_numbers()
        except InvalidValue:
            return None
        if op.type in ("shape", "size"):
            source = self.find_var_recursive(inputs["Input"][0])
            if source is None or source.shape is None:
                return None
            return size_values(source.shape if op.type == "shape" else [product(source.shape)])
        operands = [self.known_value(n, index) for names in inputs.values() for n in names]
        return of_sizes(op.type, operands, attrs, variable.shape, variable.dtype)

    def _value_around(self, name: str) -> np.ndarray | None:
        """Return the value that a variable has in the block around, before the operator that holds this one.

        A gradient block sees what the block that it belongs to has computed at its end.
        """
        if self.forward_block_idx >= 0:
            forward = self.program.block(self.forward_block_idx)
            if name in forward.vars:
                return forward.known_value(name)
        # in a loop, the round before may have written it
        is_result = any(name in op.output_arg_names for op in self.ops)
        if is_result or name in self.vars or self.parent_idx < 0:
            return None
        parent = self.program.block(self.parent_idx)
        ops = enumerate(parent.ops)
        end = next((i for i, op in ops if op.attrs.get("sub_block") is self), len(parent.ops))
        return parent.known_value(name, end)

    def create_var(self, **settings: Any) -> Variable:
        """Add a variable, or return the existing one of that name if the settings agree with it.

        Raises:
            InvalidValue: the name exists with another shape, dtype, type, lod_level or persistable.
        """
        name = settings.get("name")
        if name is not None and name in self.vars:
            existing = self.vars[name]
            request = Variable(self, **settings)
            for field in ("type", "shape", "dtype", "lod_level", "persistable"):
                old, new = getattr(existing, field), getattr(request, field)
                if settings.get(field) is not None and old is not None and old != new:
                    at = f" (declared at {existing.where})" if existing.where else ""
                    raise InvalidValue(
                        f"variable {name!r} exists with {field} {old!r}{at}, and is created again with "
                        f"{new!r}. Choose another name, or build in a new Program (fluid.program_guard)."
                    )
            return existing
        variable = Variable(self, **settings)
        self.vars[variable.name] = variable
        self.program.touch()
        return variable

    def create_parameter(self, shape: Any, dtype: Any, **settings: Any) -> Parameter:
        """Add a parameter to block 0.

        Raises:
            InvalidValue: the block has a variable of that name with another shape or dtype.
        """
        home = self.program.global_block()
        parameter = Parameter(home, shape, dtype, **settings)
        home.check_same(parameter.name, parameter.shape, parameter.dtype)
        home.vars[parameter.name] = parameter
        self.program.touch()
        return parameter

    def check_same(self, name: str, shape: Any, dtype: Any) -> None:
        """Raise InvalidValue if this block's variable of that name has another shape or dtype."""
        previous = self.vars.get(name)
        if previous is None or previous.shape is None or previous.dtype is None:
            return
        before = f"{previous.dtype.name}{list(previous.shape)}"
        now = f"{to_var_type(dtype).name}{[int(size) for size in shape]}"
        if before != now:
            raise InvalidValue(
                f"parameter {name!r} was created before as {before}, and is asked for as {now}. "
                f"Layers that share a parameter need the same sizes; give others names of their own."
            )

    def append_op(
        self,
        type: str,
        inputs: Any = None,
        outputs: Any = None,
        attrs: Any = None,
        stop_gradient: bool = False,
    ) -> Operator:
        """Add an operator at the end and infer the shapes and dtypes of its outputs.

        ``stop_gradient`` is of the imperative mode; here a variable's own counts.
        """
        return self._insert_op(len(self.ops), type, inputs, outputs, attrs)

    def _prepend_op(
        self,
        type: str,
        inputs: Any = None,
        outputs: Any = None,
        attrs: Any = None,
        stop_gradient: bool = False,
    ) -> Operator:
        return self._insert_op(0, type, inputs, outputs, attrs)

    prepend_op = _prepend_op

    def _insert_op(
        self, index: int, type: str, inputs: Any = None, outputs: Any = None, attrs: Any = None
    ) -> Operator:
        op = Operator(self, type, inputs, outputs, {**self.program.stamp(), **(attrs or {})})
        for name in op.output_arg_names:
            self.program.make_if_missing(self, name)
        op.infer()
        for slot_names in op.outputs.values():
            for name in slot_names:
                if name in self.vars:
                    self.vars[name].op = op
        self.ops.insert(index, op)
        self.program.touch()
        return op

    def _remove_op(self, index: int) -> None:
        del self.ops[index]
        self.program.touch()

    def _remove_var(self, name: str) -> None:
        self.var(name)
        del self.vars[name]
        self.program.touch()

    def _clone_variable(self, var: Variable, force_persistable: bool = True) -> Variable:
        persistable = True if force_persistable else var.persistable
        settings = {"shape": var.shape, "dtype": var.dtype, "lod_level": var.lod_level}
        return self.create_var(
            name=var.name, type=var.type, persistable=persistable, is_data=var.is_data, **settings
        )

    def _rename_var(self, old: str, new: str) -> Variable:
        variable = self.var(old)
        self.vars = OrderedDict((new if name == old else name, v) for name, v in self.vars.items())
        variable.name = new
        for op in self.ops:
            op.rename_input(old, new)
            op.rename_output(old, new)
        self.program.touch()
        return variable

    def all_parameters(self) -> list[Parameter]:
        """Return the parameters of this block in the order of their creation."""
        return [v for v in self.vars.values() if isinstance(v, Parameter)]

    iter_parameters = all_parameters

    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """Return the block as text: its variables, then its operators, one a line."""
        lines = [f"{{ // block {self.idx}"]
        lines += [f"    {v.to_string(throw_on_error, with_details)}" for v in self.vars.values()]
        lines += [f"    {op}" for op in self.ops]
        return "\n".join([*lines, "}"])

    __repr__ = __str__ = to_string


class ProgramBlocks:
    """The blocks of a program, and what all operators that are added to them get: all but copies and files."""

    def __init__(self, seed: int = 0) -> None:
        self.id = next(_program_ids)
        self.version = 0
        self.blocks = [Block(self, 0)]
        self.current_block_idx = 0
        self._seed, self._first_step = seed, 0
        self._current_role = OpRole.Forward
        self._op_role_var: list[str] = []
        self._appending_grad_times = 0
        self.lr_scheduler: Any = None
        # readers that feed data variables; see executor/feed/reader.py
        self.readers: list[Any] = []
        self.minimized: list[tuple[str, set[str], str]] = []  # loss, parameters, the user's line
        self._nccl_comm_num = 1
        self._trainers_endpoints: list[str] = []
        self._use_hierarchical_allreduce = False
        self._hierarchical_allreduce_inter_nranks = 0
        # Of programs that ``graph/transpiler`` wrote; ``distribution`` is a Distribution
        self.distribution: Any = None
        self._is_distributed = self._is_chief = False
        self.shared_variables: dict[str, str] = {}  # by ``memory_optimize``: old name -> variable
        self._endpoints: list[str] = []
        self._ps_endpoint: str | None = None
        self._distributed_lookup_table: str | None = None
        self.file_fields: dict[str, Any] = {}  # versions, as in the file that it was loaded from
        # What an executor runs in its place: see executor/compiled_program.py ParallelForm.
        self.parallel_form: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "parallel_form": None}  # copies run on their own

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy (copy.deepcopy, pickle, an argument of a Ray task) is another program than the one that it was
        # made of, and than those of the process it comes to: what is kept by number must not be taken for it.
        self.__dict__.update(state, id=next(_program_ids))

    # -- building ---------------------------------------------------------------------------------

    def touch(self) -> None:
        """Note that the program changed, so that its compiled variants are not used again."""
        self.version += 1

    def stamp(self) -> dict[str, Any]:
        """Return the attributes every operator gets from the place where it is built."""
        return {
            ROLE: int(self._current_role),
            ROLE_VAR: list(self._op_role_var),
            NAMESCOPE: current_name_scope(),
            CALLSTACK: [user_line()],
            DEVICE: current_device(),
        }

    def make_if_missing(self, block: Block, name: str) -> None:
        """Create the output variable ``name`` in ``block`` unless an enclosing block has it."""
        if block.find_var_recursive(name) is None:
            block.create_var(name=name)

    @contextmanager
    def optimized_guard(self, param_and_grads: list[Any]) -> Iterator[None]:
        """Give ops built inside the role Optimize and the parameter/gradient pair they serve."""
        names = [v.name if isinstance(v, Variable) else v for v in param_and_grads]
        with self.role_guard(OpRole.Optimize, names):
            yield

    _optimized_guard = optimized_guard

    @contextmanager
    def lr_schedule_guard(self, is_with_opt: bool = False) -> Iterator[None]:
        """Give ops built inside the role LRSched (with Optimize too if ``is_with_opt``)."""
        role = OpRole.LRSched | OpRole.Optimize if is_with_opt else OpRole.LRSched
        with self.role_guard(role, []):
            yield

    _lr_schedule_guard = lr_schedule_guard

    @contextmanager
    def role_guard(self, role: OpRole, role_var: list[str]) -> Iterator[None]:
        """Give ops built inside this role and these role variables."""
        roles = self._current_role, self._op_role_var
        self._current_role, self._op_role_var = role, role_var
        try:
            yield
        finally:
            self._current_role, self._op_role_var = roles

    # -- looking ----------------------------------------------------------------------------------

    @property
    def random_seed(self) -> int:
        """Seed of the random ops that have none of their own; 0 means drawn once per program."""
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        require_type(seed, int, "Program.random_seed must be an int", InvalidValue)
        self._seed = seed
        self.touch()

    @property
    def first_step(self) -> int:
        """Number of the first step that is run; random ops draw by it.

        Set it to the number of finished steps to continue from a checkpoint with the same random numbers; do so
        before the program is compiled, or first run by an executor.
        """
        return self._first_step

    @first_step.setter
    def first_step(self, step: int) -> None:
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise InvalidValue(f"Program.first_step must be an int from 0 on, got {step!r}.")
        self._first_step = step
        self.touch()

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def global_block(self) -> Block:
        """Return block 0."""
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """Return a block by number."""
        return self.blocks[index]

    def current_block(self) -> Block:
        """Return the block that new operators go to."""
        return self.blocks[self.current_block_idx]

    def _create_block(self, parent_idx: int | None = None) -> Block:
        parent = self.current_block_idx if parent_idx is None else parent_idx
        block = Block(self, len(self.blocks), parent)
        self.blocks.append(block)
        self.current_block_idx = block.idx
        return block

    def _sync_with_cpp(self) -> None:
        """Do nothing: see :meth:`Block._sync_with_cpp`."""

    def _rollback(self) -> None:
        self.current_block_idx = self.current_block().parent_idx

    def list_vars(self) -> Iterator[Variable]:
        """Yield every variable of every block."""
        for block in self.blocks:
            yield from block.vars.values()

    def all_parameters(self) -> list[Parameter]:
        """Return every parameter, in the order of their creation."""
        return [p for block in self.blocks for p in block.all_parameters()]
