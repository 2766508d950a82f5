"""Builds cuDNN graphs for an H200 on a host without a GPU; descriptions come in as text, one a line.

It is run as a program of its own, beside stand-ins for the driver and the CUDA runtime, which it makes too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LOADS = """cuModuleLoadData cuModuleGetFunction cuLibraryLoadData cuLibraryGetKernel cuKernelGetFunction"""
WORKS = """cuModuleUnload cuLibraryUnload cuTensorMapEncodeIm2col cuTensorMapEncodeTiled cuKernelSetAttribute"""
FAILS = """
cuGetErrorName cuGetErrorString cuCtxGetCurrent cuCtxGetLimit cuCtxPopCurrent cuCtxPushCurrent cuStreamGetCtx
cuDriverGetVersion cuLinkCreate cuLinkAddData cuLinkComplete cuLinkDestroy cuLaunchKernel cuLaunchKernelEx
cuLaunchCooperativeKernel cuDeviceGetCount cuDeviceGet cuLibraryLoadFromFile cuKernelGetAttribute
cuOccupancyMaxPotentialClusterSize
"""
RUNTIME = """
int cudaGetDevice(int* device) { *device = 0; return 0; }
int cudaDeviceGetAttribute(int* value, int which, int device) {
  *value = which == 75 ? 9 : which == 16 ? 132 : 0;  // compute capability 9.0, multiprocessors
  return 0;
}
int cudaRuntimeGetVersion(int* version) { *version = 13000; return 0; }
const char* cudaGetErrorString(int status) { return "there is no GPU"; }
"""
H200: dict[str, Any] = {
    "version": 1, "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
    "pciDeviceId": 9013, "isTccDriver": 0, "supportCoopLaunch": 1, "multiProcessorCount": 132,
    "smCountOrigin": 0, "warpSize": 32, "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
    "oversizedSharedMemoryPerBlock": 0, "totalGlobalMem": 150754820096, "smClockRateKHz": 1980000,
    "memClockRateKHz": 3201000, "memoryBusWidth": 6144, "l2CacheSize": 62914560,
}  # fmt: skip


def stand_ins(folder: Path) -> dict[str, str]:
    """Compile the stand-ins; return the environment in which they are found."""
    driver = "".join(
        f"int {name}(void** p) {{ *p = (void*)16; return 0; }}\n" for name in LOADS.split()
    )
    driver += "".join(f"int {name}(void) {{ return 0; }}\n" for name in WORKS.split())
    driver += "".join(f"int {name}(void) {{ return 100; }}\n" for name in FAILS.split())
    for name, text in (("libcuda.so.1", driver), ("libcudart.so", RUNTIME)):
        source = folder / f"{name}.c"
        source.write_text(text)
        command = ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", str(source), "-o"]
        subprocess.run([*command, str(folder / name)], check=True)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))
    runtime = str(folder / "libcudart.so")
    return {**os.environ, "LD_LIBRARY_PATH": path, "CUDNN_FRONTEND_CUDART_LIB_NAME": runtime}


def main() -> None:
    """Print of each description how many plans cuDNN has and the first one's workspace, or why it has none."""
    import cudnn

    from rowlock.executor.cuda import dnn
    from rowlock.executor.cuda.cudnn import build_plans, one_plan
    from rowlock.executor.cuda.cudnn_graphs import plan_graph

    where = {"device_property": cudnn.create_device_properties(json.dumps(H200))}
    declines = (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError)
    compiled: set[type] = set()
    for line in sys.stdin:
        graph = eval(line, vars(dnn))
        answer: dict[str, Any] = {"graph": str(graph)}
        try:
            plans = plan_graph(graph, **where)
            answer["plans"] = plans.get_execution_plan_count()
            quick = isinstance(graph, dnn.Convolution)
            if quick or type(graph) not in compiled:  # the others take a second each to compile
                (first,) = build_plans(plans, 1)
                answer["workspace"] = plans.get_workspace_size_plan_at_index(first)
            if type(graph) not in compiled:
                data = bytes(one_plan(graph, first, **where).serialize())
                again = cudnn.pygraph(**where)
                again.deserialize(data)
                answer["again"] = again.get_workspace_size()
            compiled.add(type(graph))
        except declines as error:
            answer["declined"] = str(error)[:300]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
