"""GPUs where there is none: the host runs their kernels, or nothing does (``null.py``).

Start at ``simulated.py`` ``SimulatedRuntime``. ``host_compiler.py`` compiles generated CUDA C++ for the
host.
"""
