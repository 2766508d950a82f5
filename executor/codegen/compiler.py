"""The compiler behind ``native.py``: LLVM, by llvmlite, of what ``translation.py`` writes."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from .translation import Module


def object_code(source: str, entry: str, symbol: str) -> bytes:
    """Compile ``entry(words)``, the last function of a source; the result exports one function, ``symbol``.

    The functions before it are compiled into it.
    """
    machine = _machine()
    end = source.index(f"def {entry}(")
    text = Module(source[:end] + number_places(source[end:])).export(entry, symbol)
    module = llvm.parse_assembly(text)
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


_ACCESS = re.compile(r"\b(load|store)\((?=([a-zA-Z]\w*), )")
_SAME = re.compile(r"^ *(\w+) = (\w+)$", re.MULTILINE)


def number_places(text: str) -> str:
    """Write into each ``load(x, i)`` and ``store(x, i, v)`` which place in memory ``x`` is, of how many.

    Pointers of different names are different places: what is stored to one is not read from another, so that
    loops become vectors. One that is another's by ``x = y`` is the same place. Accesses with numbers stay.
    """
    same = dict(_SAME.findall(text))
    names = dict.fromkeys(name for _, name in _ACCESS.findall(text))
    places = list(dict.fromkeys(same.get(name, name) for name in names))

    def numbered(access: re.Match[str]) -> str:
        call, name = access.groups()
        return f"{call}({places.index(same.get(name, name))}, {len(places)}, "

    return _ACCESS.sub(numbered, text)


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
