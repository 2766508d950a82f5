"""DatasetBase: files of samples, the variables that their lines hold, and how they are read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from ...strategies.errors import InvalidState, InvalidType, InvalidValue, Unsupported
from ..feed.reader import Batch
from .multi_slot import Parser, Records, Slot, whole_lines
from .pipe_command import PLAIN, blocks_of, check_file

ENGINES = "needs servers that Rowlock has not (PSLib, BoxPS)"


class Workers(Protocol):
    """The trainers among whom a dataset shuffles: a ``fleet``."""

    def worker_index(self) -> int:
        """Return this trainer's number."""

    def worker_num(self) -> int:
        """Return how many trainers there are."""

    def gather_workers(self, values: Any) -> list[Any]:
        """Return the values that trainers passed, by number."""

    def gather_bytes(self, array: Any) -> list[Any]:
        """Return the bytes that trainers passed, by number."""


class DatasetBase:
    """Files of MultiSlot text (``count number ... count number ...``), read by threads through a command.

    ``set_use_var`` says which variables a line holds, in order: float32 and int64, dense or sequences
    (``lod_level=1``).
    """

    _feed_name = ""

    def __init__(self) -> None:
        self.thread_num = 1
        self.filelist: list[str] = []
        self._slots: tuple[Slot, ...] = ()
        self._batch_size = 1
        self._command = PLAIN
        self._heads = 0

    def set_batch_size(self, batch_size: int) -> None:
        """Have batches of so many samples; the last one of a pass may be smaller."""
        self._batch_size = whole_number("set_batch_size", batch_size)

    def set_thread(self, thread_num: int) -> None:
        """Read by so many threads (and as many processes of the pipe command), at most one a file."""
        self.thread_num = whole_number("set_thread", thread_num)

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Read these files.

        Raises:
            InvalidType: this is no list of paths.
        """
        if isinstance(filelist, (str, bytes)) or not isinstance(filelist, Sequence):
            raise InvalidType(f"set_filelist takes a list of paths, got {filelist!r}.")
        for path in filelist:
            if not isinstance(path, str):
                raise InvalidType(f"set_filelist takes a list of paths, got {path!r} in it.")
        self.filelist = list(filelist)

    def set_use_var(self, var_list: Sequence[Any]) -> None:
        """Feed these variables, in the order in which a line holds them.

        Raises:
            InvalidType: this is no list of variables.
            InvalidValue: one is neither float32 nor int64, or there are none.
        """
        if not isinstance(var_list, Sequence) or isinstance(var_list, str):
            raise InvalidType(f"set_use_var takes a list of variables, got {var_list!r}.")
        if not var_list:
            raise InvalidValue("set_use_var: the list of variables is empty.")
        self._slots = tuple(Slot.of(variable) for variable in var_list)

    def set_pipe_command(self, pipe_command: str) -> None:
        """Have ``pipe_command < file`` write the lines, in a shell (as ``python generator.py`` does)."""
        if not isinstance(pipe_command, str):
            raise InvalidType(f"set_pipe_command takes a str, got {pipe_command!r}.")
        if not pipe_command.strip():
            raise InvalidValue("set_pipe_command: the command is empty; 'cat' changes nothing.")
        self._command = pipe_command.strip()

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> NoReturn:
        """Refuse: files are read from this host's paths."""
        raise Unsupported(
            "set_hdfs_config: datasets read files that this host sees. Download them first "
            "(HDFSClient.download), or mount the file system."
        )

    def set_download_cmd(self, download_cmd: str) -> NoReturn:
        """Refuse, as :meth:`set_hdfs_config` does."""
        raise Unsupported(
            "set_download_cmd: datasets read files that this host sees. Download them first, or let the pipe "
            "command do it: it may read a list of addresses from its file."
        )

    def set_rank_offset(self, rank_offset: str) -> NoReturn:
        """Refuse."""
        raise Unsupported(f"set_rank_offset {ENGINES}.")

    def set_pv_batch_size(self, pv_batch_size: int) -> NoReturn:
        """Refuse."""
        raise Unsupported(f"set_pv_batch_size {ENGINES}.")

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> NoReturn:
        """Refuse: only an :class:`InMemoryDataset` can shuffle slots."""
        self._refuse("set_fea_eval")

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Refuse: only an :class:`InMemoryDataset` can shuffle slots."""
        self._refuse("slots_shuffle")

    def local_shuffle(self) -> None:
        """Refuse: only an :class:`InMemoryDataset` can shuffle."""
        self._refuse("local_shuffle")

    def global_shuffle(self, fleet: Workers | None = None, thread_num: int = 12) -> None:
        """Refuse: only an :class:`InMemoryDataset` can shuffle."""
        self._refuse("global_shuffle")

    def _refuse(self, method: str) -> NoReturn:
        raise Unsupported(f"{method} needs an InMemoryDataset, this is a {type(self).__name__}.")

    def desc(self) -> str:
        """Return the settings as the text of Paddle's DataFeedDesc."""
        lines = [f'name: "{self._feed_name}"', f"batch_size: {self._batch_size}"]
        if self._slots:
            lines.append("multi_slot_desc {")
        for slot in self._slots:
            dense = ["    is_dense: true"] * (slot.shape is not None)
            sizes = [f"    shape: {size}" for size in slot.shape or ()]
            head = ["  slots {", f'    name: "{slot.name}"', f'    type: "{slot.type}"']
            lines += [*head, *dense, "    is_used: true", *sizes, "  }"]
        command = re.sub(r"([\\'\"])", r"\\\1", self._command)
        return "\n".join([*lines, *["}"] * bool(self._slots), f'pipe_command: "{command}"', ""])

    def batches(self, threads: int = 0, least: int = 1) -> Iterator[Batch]:
        """Yield the feeds of one pass over the data.

        Args:
            threads: how many read, in place of ``set_thread``'s; 0: that.
            least: a last batch of fewer samples is joined to the one before.

        Raises:
            InvalidState: no files, or no variables were set.
            MissingFile: a file is not there.
            DamagedFile: a line does not fit the variables, or the pipe command failed.
        """
        self._check()
        return self._pass(threads or self.thread_num, least)

    def _pass(self, threads: int, least: int) -> Iterator[Batch]:
        raise NotImplementedError

    def _check(self) -> None:
        if not self._slots:
            raise InvalidState("the dataset knows no variables: call set_use_var first.")
        if not self.filelist:
            raise InvalidState("the dataset has no files: call set_filelist first.")
        for file in self.filelist:
            check_file(file)

    def _records(self, files: Sequence[str]) -> Iterator[Records]:
        """Yield the samples of files, block by block."""
        parser = Parser(self._slots, self._heads)
        for file in files:
            for text, line in whole_lines(blocks_of(file, self._command)):
                yield parser.records(text, file, line)


def whole_number(what: str, value: Any) -> int:
    """Return a whole number above 0.

    Raises:
        InvalidType: the value is no whole number.
        InvalidValue: it is not above 0.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise InvalidType(f"{what} takes a whole number, got {value!r}.")
    if value < 1:
        raise InvalidValue(f"{what} takes a number above 0, got {value}.")
    return int(value)
