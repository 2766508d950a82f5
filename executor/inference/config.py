"""What a predictor loads, and where it runs."""

from __future__ import annotations

import enum
import os
from typing import Any, NoReturn

from ...strategies.errors import InvalidType, InvalidValue, Unsupported
from ..device.place import CPUPlace, CUDAPlace, Place


class Precision(enum.IntEnum):
    """Precisions of engines inside Paddle; here a program is computed in its variables' precision."""

    Float32 = 0
    Int8 = 1
    Half = 2
    Bfloat16 = 3


class AnalysisConfig:
    """A saved model and the place that runs it: ``AnalysisConfig(folder)``, or ``(program_file, params_file)``.

    What chooses among Paddle's own libraries and passes (``switch_ir_optim``, ``enable_mkldnn``,
    ``enable_memory_optim``, threads, memory pools) is accepted and can be read back, but decides nothing:
    kernels are chosen by measurement, and memory is planned. Engines that change what is computed are refused.
    """

    Precision = Precision

    def __init__(self, model: Any = None, params: str | None = None) -> None:
        self._folder = self._program = self._params = ""
        self.model_bytes: tuple[bytes, bytes] | None = None
        self._device: int | None = None
        self._pool_mb = 100
        self._by_name = False
        self._feeds = True
        self._optimizes = True
        self._onednn = False
        self._quiet = False
        self._threads = 1
        if isinstance(model, AnalysisConfig):
            vars(self).update(vars(model))
        elif model is not None:
            self.set_model(model, params)

    def __repr__(self) -> str:
        model = "bytes" if self.model_bytes else self._folder or self._program or "no model"
        return (
            f"<AnalysisConfig: {model} on {f'GPU {self._device}' if self.use_gpu() else 'the CPU'}>"
        )

    def set_model(self, model: str, params: str | None = None) -> None:
        """Name a folder, or a program's file and its parameters' file."""
        if not isinstance(model, (str, os.PathLike)):
            raise InvalidType(f"AnalysisConfig: a model is a path (str), got {model!r}.")
        if params is None:
            self._folder, self._program, self._params = os.fspath(model), "", ""
        else:
            self._folder, self._program, self._params = "", os.fspath(model), os.fspath(params)
        self.model_bytes = None

    def set_model_buffer(
        self, program: bytes, program_size: int, params: bytes, params_size: int
    ) -> None:
        """Take the bytes of a program and of its parameters, as many of each as the sizes say."""
        if not isinstance(program, bytes) or not isinstance(params, bytes):
            raise InvalidType(
                "AnalysisConfig.set_model_buffer takes bytes, as open(path, 'rb') reads."
            )
        self.model_bytes = program[:program_size], params[:params_size]

    def set_prog_file(self, path: str) -> None:
        """Name the file of the program."""
        self._program = path

    def set_params_file(self, path: str) -> None:
        """Name the file of all parameters."""
        self._params = path

    def model_dir(self) -> str:
        """Return the folder, or an empty string."""
        return self._folder

    def prog_file(self) -> str:
        """Return the file of the program, or an empty string."""
        return self._program

    def params_file(self) -> str:
        """Return the file of all parameters, or an empty string."""
        return self._params

    def model_from_memory(self) -> bool:
        """Tell whether the model comes from bytes."""
        return self.model_bytes is not None

    def enable_use_gpu(
        self, memory_pool_init_size_mb: int, device_id: int = 0, precision_mode: int = 0
    ) -> None:
        """Run on GPU ``device_id``, in the precision of the program."""
        if precision_mode != Precision.Float32:
            self._refuse("a precision other than the program's")
        self._device, self._pool_mb = device_id, memory_pool_init_size_mb

    def disable_gpu(self) -> None:
        """Run on the CPU, as without :meth:`enable_use_gpu`."""
        self._device = None

    def use_gpu(self) -> bool:
        """Tell whether the model runs on a GPU."""
        return self._device is not None

    def gpu_device_id(self) -> int:
        """Return the number of the GPU (0 on the CPU)."""
        return self._device or 0

    def memory_pool_init_size_mb(self) -> int:
        """Return the size of the memory pool that was asked for; memory is planned whatever it is."""
        return self._pool_mb

    def place(self) -> Place:
        """Return the place that runs the model.

        Raises:
            InvalidArgument: there is no GPU.
        """
        return CPUPlace() if self._device is None else CUDAPlace(self._device)

    def switch_specify_input_names(self, x: bool = True) -> None:
        """Take the tensors of ``run`` by their names; without, in the order of ``get_input_names``."""
        self._by_name = bool(x)

    def specify_input_name(self) -> bool:
        """Tell whether ``run`` takes tensors by their names."""
        return self._by_name

    def switch_use_feed_fetch_ops(self, x: int = True) -> None:
        """Say whether ``run`` is meant to be called; ``zero_copy_run`` and ``run`` both work with either."""
        self._feeds = bool(x)

    def use_feed_fetch_ops_enabled(self) -> bool:
        """Tell what :meth:`switch_use_feed_fetch_ops` was told last (True without)."""
        return self._feeds

    def switch_ir_optim(self, x: int = True) -> None:
        """Do nothing but remember: a program is always compiled."""
        self._optimizes = bool(x)

    def ir_optim(self) -> bool:
        """Tell what :meth:`switch_ir_optim` was told last (True without)."""
        return self._optimizes

    def enable_mkldnn(self) -> None:
        """Do nothing but remember: oneDNN computes where it is there and was measured to be faster."""
        self._onednn = True

    def mkldnn_enabled(self) -> bool:
        """Tell whether :meth:`enable_mkldnn` was called."""
        return self._onednn

    def set_cpu_math_library_num_threads(self, threads: int) -> None:
        """Do nothing but remember: the environment's ``OMP_NUM_THREADS`` says how many threads compute.

        Raises:
            InvalidValue: fewer than one.
        """
        if threads < 1:
            raise InvalidValue(f"set_cpu_math_library_num_threads: at least 1, got {threads}.")
        self._threads = threads

    def cpu_math_library_num_threads(self) -> int:
        """Return the number of threads that was asked for (1 without)."""
        return self._threads

    def disable_glog_info(self) -> None:
        """Do nothing but remember: a predictor writes no log."""
        self._quiet = True

    def glog_info_disabled(self) -> bool:
        """Tell whether :meth:`disable_glog_info` was called."""
        return self._quiet

    def switch_ir_debug(self, x: int = True) -> None:
        """Do nothing: ``BuildStrategy.debug_graphviz_path`` draws the graphs of a compiled program."""

    def enable_memory_optim(self, x: bool = True) -> None:
        """Do nothing: memory is always planned."""

    def set_mkldnn_cache_capacity(self, capacity: int = 0) -> None:
        """Do nothing: plans are kept by shape, the ones used last."""

    def delete_pass(self, name: str) -> None:
        """Do nothing: none of Paddle's passes is run."""

    def enable_tensorrt_engine(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: there is no TensorRT."""
        self._refuse("TensorRT")

    def enable_lite_engine(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: there is no Paddle-Lite."""
        self._refuse("Paddle-Lite")

    def enable_quantizer(self) -> NoReturn:
        """Refuse: programs are not quantized."""
        self._refuse("quantization")

    def tensorrt_engine_enabled(self) -> bool:
        """Return False: there is no TensorRT."""
        return False

    def lite_engine_enabled(self) -> bool:
        """Return False: there is no Paddle-Lite."""
        return False

    def _refuse(self, engine: str) -> NoReturn:
        raise Unsupported(
            f"AnalysisConfig: {engine} is not built here; without this call the program's own kernels run."
        )
