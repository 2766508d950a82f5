"""The compiler behind ``native.py``: LLVM, by llvmlite, of what ``translation.py`` writes."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from .translation import Module


def object_code(source: str, entry: str, symbol: str) -> bytes:
    """Compile ``entry(words)`` of a source; the result exports one function, ``symbol``.

    The other functions of the source are compiled into it.
    """
    machine = _machine()
    module = llvm.parse_assembly(Module(source).export(entry, symbol))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    here = ctypes.CDLL(None)
    for function in module.functions:
        known = function.name.startswith("llvm.") or hasattr(here, function.name)
        assert not function.is_declaration or known, f"{function.name} is nowhere to be found"
    code: bytes = machine.emit_object(module)
    return code


@cache
def _machine() -> Any:
    """Return LLVM's back end for this processor.

    The modes of relocation and addressing are those of code that stays in this process.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )
