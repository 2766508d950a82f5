"""The compiler behind ``native.py``: Numba's, asked for object code. The only module that imports Numba.

A source may use the functions of :data:`PRELUDE`, NumPy's scalar functions as ``np`` and ``math``.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numba
import numpy as np
from numba.core import types
from numba.core.codegen import CPUCodeLibrary, JITCPUCodegen, get_host_cpu_features
from numba.core.compiler import Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

# A product may be rounded together with the sum that it enters; :func:`plus` may be split over the lanes of a
# vector. Nothing is assumed of nan, of infinities or of the sign of zero. Numba's rewrites are for calls on
# arrays, which sources do not have; Numba's wrappers are for callers in Python and C. All of them take time.
_ENTRY: dict[str, Any] = {
    "fastmath": {"contract"},
    "error_model": "numpy",
    "no_rewrites": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
_HELPER = {**_ENTRY, "forceinline": True}


def _emitted(instruction: Callable[..., Any]) -> Any:
    """Return what Numba asks for the code of a call: an instruction's, of a builder and its operands."""
    return lambda context, builder, signature, arguments: instruction(builder, *arguments)


def _pointer(element: Any) -> Any:
    def typed(context: Any, address: Any) -> Any:
        signature = types.CPointer(element)(types.int64)

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, emit

    return intrinsic(typed)


def _reinterpret(source: Any, target: Any) -> Any:
    def typed(context: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), emit

    return intrinsic(typed)


@intrinsic
def select(context: Any, condition: Any, yes: Any, no: Any) -> Any:
    """Choose without a branch, so that loops around it become vectors."""
    return yes(types.boolean, yes, yes), _emitted(ir.IRBuilder.select)


@intrinsic
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return a(a, a, a), _emitted(ir.IRBuilder.fma)


@intrinsic
def plus(context: Any, total: Any, value: Any) -> Any:
    """total + value, where the order of the additions is the compiler's."""
    add = partial(ir.IRBuilder.fadd, flags=("reassoc", "contract"))
    return total(total, total), _emitted(add)


@intrinsic
def product(context: Any, a: Any, b: Any) -> Any:
    """a * b, rounded before any sum that it enters."""
    multiply = partial(ir.IRBuilder.fmul, flags=("arcp",))  # without a flag it would get "contract"
    return a(a, a), _emitted(multiply)


def _call(name: str) -> Any:
    def call(builder: Any, *arguments: Any) -> Any:
        kind = arguments[0].type
        form = ir.FunctionType(kind, [kind] * len(arguments))
        return builder.call(
            builder.module.declare_intrinsic(f"llvm.{name}", [kind], form), arguments
        )

    return _emitted(call)


def _same_width(name: str) -> Any:
    return intrinsic(lambda context, value: (value(value), _call(name)))


def _of_two(name: str) -> Any:
    return intrinsic(lambda context, a, b: (a(a, b), _call(name)))


@intrinsic
def high_of_product(context: Any, a: Any, b: Any) -> Any:
    """The upper 64 of the 128 bits of a product."""

    def high(builder: Any, *factors: Any) -> Any:
        wide, narrow = ir.IntType(128), ir.IntType(64)
        product = builder.mul(*(builder.zext(factor, wide) for factor in factors))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), narrow)

    return types.uint64(types.uint64, types.uint64), _emitted(high)


def _set_apart(access: Any, builder: Any, scope: int, scopes: int) -> None:
    """Say of an access to one place that it does not touch the other places."""
    add = builder.module.add_metadata
    domain = add(["rowlock"])
    places = [add([f"place {k}", domain]) for k in range(scopes)]
    access.set_metadata("alias.scope", add([places[scope]]))
    if scopes > 1:
        access.set_metadata("noalias", add([p for k, p in enumerate(places) if k != scope]))


@intrinsic(prefer_literal=True)
def load(context: Any, scope: Any, scopes: Any, pointer: Any, index: Any) -> Any:
    """pointer[index], in place ``scope`` of so many; see :func:`number_places`."""

    def fetch(builder: Any, _scope: Any, _scopes: Any, pointer: Any, index: Any) -> Any:
        instruction = builder.load(builder.gep(pointer, [index]))
        _set_apart(instruction, builder, scope.literal_value, scopes.literal_value)
        return instruction

    return pointer.dtype(scope, scopes, pointer, types.int64), _emitted(fetch)


@intrinsic(prefer_literal=True)
def store(context: Any, scope: Any, scopes: Any, pointer: Any, index: Any, value: Any) -> Any:
    """pointer[index] = value, in place ``scope`` of so many; see :func:`number_places`."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, pointer, index, value = arguments
        instruction = builder.store(value, builder.gep(pointer, [index]))
        _set_apart(instruction, builder, scope.literal_value, scopes.literal_value)
        return context.get_dummy_value()

    return types.none(scope, scopes, pointer, types.int64, pointer.dtype), emit


@intrinsic
def ahead(context: Any, pointer: Any, index: Any) -> Any:
    """Have pointer[index] brought to the cache; it need not exist."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
        builder.call(fetch, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(pointer, types.int64), emit


# Addresses as pointers to elements; the bits of a float as an integer and back; rounding in one instruction;
# of two numbers the larger or smaller, and nan if one is.
PRELUDE: dict[str, Any] = {
    "np": np,
    "math": math,
    "f32": _pointer(types.float32),
    "f64": _pointer(types.float64),
    "i8": _pointer(types.int8),
    "u8": _pointer(types.uint8),
    "u16": _pointer(types.uint16),
    "i32": _pointer(types.int32),
    "u32": _pointer(types.uint32),
    "i64": _pointer(types.int64),
    "bits": _reinterpret(types.float32, types.int32),
    "unbits": _reinterpret(types.int32, types.float32),
    "select": select,
    "ahead": ahead,
    "load": load,
    "store": store,
    "fma": fma,
    "product": product,
    "high_of_product": high_of_product,
    "plus": plus,
    "largest": _of_two("maximum"),
    "least": _of_two("minimum"),
    "nearest": _same_width("rint"),
    "root": _same_width("sqrt"),
    "whole_below": _same_width("floor"),
    "whole_above": _same_width("ceil"),
    "cut": _same_width("trunc"),
    "size_of": _same_width("fabs"),
}


class _Library(CPUCodeLibrary):
    """Optimized code that Numba's own engine does not run, and makes no machine code of."""

    def _finalize_specific(self) -> None:
        pass


class _Codegen(JITCPUCodegen):
    """Numba's choice of passes for this processor, on such code."""

    _library_class: Any = _Library

    def _add_module(self, module: Any) -> None:
        pass


@functools.cache
def _target() -> Any:
    """Return what Numba knows of this processor, with code that stays out of Numba's engine."""
    return cpu_target.target_context.subtarget(_internal_codegen=_Codegen("rowlock"))


def object_code(source: str, entry: str, symbol: str) -> bytes:
    """Compile ``entry(words)``, the last function of a source; the result exports one function, ``symbol``.

    The functions before it are compiled into it.
    """
    end = source.index(f"def {entry}(")
    names = dict(_helpers(source[:end]))
    exec(compile(number_places(source[end:]), f"<{symbol}>", "exec"), names)
    flags: Any = Flags()
    cpu_target.options.parse_as_flags(flags, _ENTRY)
    flags.no_compile = True  # leaves the library open, which is closed when its text is asked for
    with global_compiler_lock:
        result = compile_extra(
            cpu_target.typing_context,
            _target(),
            names[entry],
            (types.CPointer(types.int64),),
            types.void,
            flags,
            {},
        )
        result.library.finalize()
        text = result.library.get_llvm_str()
    return _exported(llvm.parse_assembly(text), result.fndesc.mangled_name, symbol, _machine())


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


@functools.lru_cache(64)
def _helpers(source: str) -> dict[str, Any]:
    """Return the functions of a source, and those of :data:`PRELUDE`, for others to call.

    Most sources that have any share them with others; each is compiled when it is first called.
    """
    names: dict[str, Any] = dict(PRELUDE)
    exec(compile(source, "<helpers>", "exec"), names)
    for name, value in names.items():
        if name not in PRELUDE and callable(value):
            names[name] = numba.njit(**_HELPER)(value)
    return names


@functools.cache
def _machine() -> Any:
    """Return LLVM's back end for this processor, with the options that Numba gives its own.

    Numba keeps that private, and results are to be the same bits. The modes of relocation and addressing are
    those of code that stays in this process.
    """
    settings: Any = numba.config  # what the environment asks of Numba (NUMBA_OPT and others)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    cpu, features = settings.CPU_NAME, settings.CPU_FEATURES
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name() if cpu is None else cpu,
        features=get_host_cpu_features() if features is None else features,
        opt=int(settings.OPT),
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


def _exported(module: Any, inner: str, symbol: str, machine: Any) -> bytes:
    """Return the object code of one function of a module, without what only Numba's own callers need."""
    for function in module.functions:
        if not function.is_declaration:
            if function.name == inner:
                function.name = symbol
                function.linkage = "external"
            else:
                function.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes.run(module, llvm.create_pass_builder(machine, options))
    here = ctypes.CDLL(None)
    for function in module.functions:
        known = function.name.startswith("llvm.") or hasattr(here, function.name)
        assert not function.is_declaration or known, f"{function.name} is nowhere to be found"
    code: bytes = machine.emit_object(module)
    return code
