"""Run programs written for Paddle unchanged: ``import paddle`` gives Rowlock.

``import rowlock.alias`` before the first ``import paddle``, or ``python -m rowlock.alias script.py arguments``,
or ``python -m rowlock.alias -m paddle.distributed.launch script.py arguments``. ``paddle.__version__`` is then
that of the Paddle whose API Rowlock has; ``paddle.version.show()`` prints both.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from .names import NotBuilt

_USAGE = "usage: python -m rowlock.alias script.py [arguments], or -m module [arguments]"
_PADDLE, _ROWLOCK = "paddle", __package__ or "rowlock"


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``paddle.x.y`` where ``rowlock.x.y`` is: both names give one module."""

    def __init__(self) -> None:
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of an alias, or None for other modules and for those that Rowlock lacks."""
        if fullname.split(".")[0] != _PADDLE:
            return None
        return importlib.util.spec_from_loader(fullname, self) if _exists(_own(fullname)) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return Rowlock's module, loaded."""
        module = importlib.import_module(_own(spec.name))
        if spec.name == _PADDLE:  # programs compare it with the versions of Paddle that they know
            vars(module)["__version__"] = importlib.import_module(".version", _ROWLOCK).full_version
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back, which the import of its alias has replaced."""
        assert module.__spec__ is not None
        module.__spec__ = self._specs.pop(module.__spec__.name)


def _own(name: str) -> str:
    return _ROWLOCK + name.removeprefix(_PADDLE)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except NotBuilt:  # it says what to use instead
        raise
    except ModuleNotFoundError:
        return False


def install() -> None:
    """Have ``import paddle`` give Rowlock from now on in this process.

    Raises:
        ImportError: another ``paddle`` was imported before.
    """
    module = sys.modules.get(_PADDLE)
    if module is not None and module.__name__ != _ROWLOCK:
        raise ImportError(
            f"paddle was imported before rowlock.alias (from {module.__file__}). Import rowlock.alias first."
        )
    if not is_installed():
        sys.meta_path.insert(0, _Alias())


def is_installed() -> bool:
    """Tell whether ``import paddle`` gives Rowlock; this module may have been run as the main one."""
    return any(type(finder).__qualname__ == _Alias.__qualname__ for finder in sys.meta_path)


def main(argv: Sequence[str] | None = None) -> None:
    """Run a script as ``python script.py arguments`` would, with Rowlock as ``paddle``; or ``-m`` a module."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["-m"] and len(arguments) > 1:
        module = arguments[1]
        own = _own(module) if module.split(".")[0] == _PADDLE else module
        try:
            refusal = "" if _exists(module) else f"there is no module {module!r}."
        except NotBuilt as error:
            refusal = str(error)
        if refusal:
            _refuse(f"python -m rowlock.alias: {refusal}")
        sys.argv[:] = arguments[1:]
        runpy.run_module(own, run_name="__main__", alter_sys=True)
        return
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return
    if not arguments or arguments[0].startswith("-"):
        _refuse(_USAGE)
    script = arguments[0]
    if not os.path.exists(script):
        _refuse(
            f"python -m rowlock.alias: there is no file {script!r} (looked for from {os.getcwd()!r})."
        )
    if os.path.isdir(script) and not os.path.exists(os.path.join(script, "__main__.py")):
        _refuse(f"python -m rowlock.alias: {script!r} is a folder without __main__.py.")
    sys.argv[:] = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


def _refuse(text: str) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(2)  # as of every command line that cannot be


install()
if __name__ == "__main__":
    main()
