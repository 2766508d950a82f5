"""A predictor: a saved model in a scope of its own, run on one place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ...graph.program.program import Program
from ...graph.program.variable import Variable
from ...strategies.errors import FeedError, InvalidType, InvalidValue, NotFound, nearest
from ..device.tensor import Tensor
from ..executor import Executor
from ..feed.scope import Scope
from ..saving.models import MODEL, load_model, read_program
from .config import AnalysisConfig
from .tensors import PaddleTensor, ZeroCopyTensor


class PaddlePredictor:
    """Runs a saved model; :func:`create_paddle_predictor` makes it, and :meth:`clone` another."""

    def __init__(
        self,
        config: AnalysisConfig,
        scope: Scope,
        program: Program,
        feeds: list[str],
        fetches: list[Variable],
    ) -> None:
        self._config = config
        self._scope = scope
        self._program = program
        self._fetches = fetches
        self._executor = Executor(config.place())
        self._inputs = {name: ZeroCopyTensor(name) for name in feeds}
        self._outputs = {variable.name: ZeroCopyTensor(variable.name) for variable in fetches}

    @classmethod
    def load(cls, config: AnalysisConfig) -> PaddlePredictor:
        """Load the model that a config names."""
        scope = Scope()
        return cls(config, scope, *_load(config, scope))

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(self._inputs), ", ".join(self._outputs)
        return f"<PaddlePredictor: {inputs} -> {outputs}>"

    def clone(self, stream: Any = None) -> PaddlePredictor:
        """Return a predictor with tensors of its own on the same parameters; it may run in another thread."""
        model = self._program, list(self._inputs), self._fetches
        return PaddlePredictor(self._config, self._scope, *model)

    def get_input_names(self) -> list[str]:
        """Return the names of the variables to feed, in order."""
        return list(self._inputs)

    def get_output_names(self) -> list[str]:
        """Return the names of the variables that are fetched, in order."""
        return list(self._outputs)

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """Return the declared shape of each variable to feed; -1 is any size."""
        block = self._program.global_block()
        return {name: list(block.var(name).shape or ()) for name in self._inputs}

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """Return the tensor that :meth:`zero_copy_run` feeds to a variable.

        Raises:
            NotFound: no variable of this name is fed.
        """
        return _look_up(self._inputs, name, "feeds")

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """Return the tensor that :meth:`zero_copy_run` writes a variable to.

        Raises:
            NotFound: no variable of this name is fetched.
        """
        return _look_up(self._outputs, name, "fetches")

    get_input_handle = get_input_tensor
    get_output_handle = get_output_tensor

    def zero_copy_run(self) -> bool:
        """Feed the input tensors, run the model, and write the output tensors.

        Raises:
            FeedError: an input tensor holds no value, or one that does not fit its variable.
            ExecutionError: an operator failed.
        """
        empty = [name for name, tensor in self._inputs.items() if not tensor.value().initialized]
        if empty:
            raise FeedError(
                f"the predictor's input {empty[0]!r} holds no value: call "
                f"get_input_tensor({empty[0]!r}).copy_from_cpu(array) before zero_copy_run()."
            )
        feed = {name: tensor.value() for name, tensor in self._inputs.items()}
        for output, value in zip(self._outputs.values(), self._run(feed), strict=True):
            output.copy_from_cpu(value.memory())
            output.set_lod(value.lod())
        return True

    def run(self, inputs: Sequence[PaddleTensor] | None = None) -> Any:
        """Run the model on tensors and return those that it predicts; without any, :meth:`zero_copy_run`.

        Tensors stand in the order of ``get_input_names``, or (``switch_specify_input_names``) have its names.

        Raises:
            FeedError: there are more or fewer tensors than inputs, a name is none of theirs, or a value
                does not fit.
            ExecutionError: an operator failed.
        """
        if inputs is None:
            return self.zero_copy_run()
        if not isinstance(inputs, Sequence) or not all(isinstance(t, PaddleTensor) for t in inputs):
            raise InvalidType(
                f"PaddlePredictor.run takes a list of PaddleTensor (for arrays: [PaddleTensor(array)]), got "
                f"{type(inputs).__name__}."
            )
        if len(inputs) != len(self._inputs):
            raise FeedError(
                f"the predictor takes {len(self._inputs)} tensors ({', '.join(self._inputs)}), got "
                f"{len(inputs)}."
            )
        names = [t.name for t in inputs] if self._config.specify_input_name() else self._inputs
        feed: dict[str, Tensor] = {}
        for name, source in zip(names, inputs, strict=True):
            if name not in self._inputs or name in feed:
                raise FeedError(
                    f"the predictor's tensors must be named {', '.join(self._inputs)}, one each; got {name!r}"
                    f"{' twice' if name in feed else ''} (switch_specify_input_names)."
                )
            feed[name] = Tensor(name)
            feed[name].adopt(source.as_ndarray())
            feed[name].set_lod(source.lod)
        return [
            PaddleTensor(value.memory(), name, value.lod())
            for name, value in zip(self._outputs, self._run(feed), strict=True)
        ]

    def _run(self, feed: dict[str, Tensor]) -> list[Tensor]:
        return self._executor.run(
            self._program, feed, self._fetches, scope=self._scope, return_numpy=False
        )

    def get_serialized_program(self) -> bytes:
        """Return the bytes of the model's program."""
        return self._program.desc.serialize_to_string()

    def program(self) -> Program:
        """Return the model's program."""
        return self._program

    def scope(self) -> Scope:
        """Return the scope that holds the model's parameters."""
        return self._scope


def create_paddle_predictor(config: AnalysisConfig) -> PaddlePredictor:
    """Return a predictor for the model that ``config`` names, saved here or by Paddle.

    Raises:
        InvalidValue: the config names no model.
        MissingFile: the folder or a file is not there.
        DamagedFile: a file is damaged, or the parameters are another program's.
    """
    if not isinstance(config, AnalysisConfig):
        raise InvalidType(f"create_paddle_predictor takes an AnalysisConfig, got {config!r}.")
    return PaddlePredictor.load(config)


def _load(config: AnalysisConfig, scope: Scope) -> list[Any]:
    if config.model_bytes is not None:
        program, params = config.model_bytes
        return load_model(program, "the program", None, params, scope)
    path, params_path = config.prog_file(), config.params_file()
    if path and params_path:
        return load_model(read_program(path), repr(path), "", params_path, scope)
    if not config.model_dir():
        raise InvalidValue(
            "the config names no model: AnalysisConfig(folder), or AnalysisConfig(program_file, params_file)."
        )
    path = os.path.join(config.model_dir(), MODEL)
    return load_model(read_program(path), repr(path), config.model_dir(), None, scope)


def _look_up(tensors: dict[str, ZeroCopyTensor], name: str, verb: str) -> ZeroCopyTensor:
    if name not in tensors:
        raise NotFound(
            f"the model {verb} no variable {name!r}, but {', '.join(tensors)}.{nearest(name, tensors)}"
        )
    return tensors[name]
