"""Appends what is installed where, and what the GPU is, entry by entry: one that hangs hides no other."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

from rowlock.executor.cuda.libraries import library
from tests.gpu.results import FILE, NO_GPU, PART, append

_WORDS = ("cupy", "cuda", "nvidia", "torch", "jax", "triton", "ray", "pydantic", "numpy", "ml-dtypes",
          "ml_dtypes", "msgpack", "pyyaml", "pytest", "rowlock")  # fmt: skip
# Modules and libraries, and what goes another way, or is left out, without them.
_NEEDS = {
    "cupy": "no GPU opens",
    "cudnn": "its tests are skipped, other libraries compute images and attention",
    "ray": "gangs are threads",
    "torch": "figures stand without it",
    "jax": "figures stand without it",
    "yaml": "strategies are not written as YAML",
}
_LIBRARIES = {
    "cuda": "no GPU opens",
    "nvrtc": "no kernel is compiled",
    "cublasLt": "products are CuPy's, and split graphs",
    "nccl": "replicas meet on the host",
}


def missing() -> dict[str, str]:
    """Return what is not installed, and what follows."""
    modules = {name: why for name, why in _NEEDS.items() if util.find_spec(name) is None}
    return modules | {f"lib{name}": why for name, why in _LIBRARIES.items() if not library(name)}


def packages() -> dict[str, list[str]]:
    """Return version and folder of every package whose name begins with what matters here."""
    versions = {}
    for package in metadata.distributions():
        name = package.metadata["Name"] or ""
        if name.lower().startswith(_WORDS):
            versions[name] = [package.version, str(Path(str(package.locate_file(""))))]
    return dict(sorted(versions.items()))


def _tell(**entry: object) -> None:
    append(os.environ[FILE], part=os.environ[PART], **entry)


def main() -> int:
    """Append all there is to tell, what cannot hang first; return 0, or :data:`NO_GPU` if none opens."""
    _tell(python=sys.version, executable=sys.executable, system=platform.platform())
    names = ("CUDA_", "NVIDIA_", "LD_LIBRARY_PATH", "NCCL_", "XLA_", "ROWLOCK_")
    _tell(environment={k: v for k, v in os.environ.items() if k.startswith(names)})
    _tell(tools={name: shutil.which(name) for name in ("nvcc", "g++", "compute-sanitizer")})
    _tell(packages=packages())
    command = ["timeout", "30", "nvidia-smi"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    _tell(nvidia_smi=said.stdout + said.stderr, status=said.returncode)
    _tell(missing=missing())
    from rowlock.executor.device.gpus import open_gpu
    from rowlock.strategies.errors import Unsupported

    try:
        runtime = open_gpu(0)
    except Unsupported as error:
        _tell(no_gpu=str(error))
        return NO_GPU
    runtime.use()
    _tell(gpu=runtime.properties.__dict__, memory=runtime.memory())
    _tell(libraries=runtime.versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
