"""Paddle 2.x's datasets of files, which ``init`` sets up at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..executor.loading import file_datasets
from ..executor.loading.dataset_base import DatasetBase
from ..strategies.errors import InvalidType, Unsupported


class _Init(DatasetBase):
    """Adds ``init`` to a dataset."""

    def init(
        self,
        *,
        batch_size: int = 1,
        thread_num: int = 1,
        use_var: Sequence[Any] = (),
        pipe_command: str = "cat",
        input_type: int = 0,
        fs_name: str = "",
        fs_ugi: str = "",
        download_cmd: str = "cat",
        **settings: Any,
    ) -> None:
        """Set the size of batches, the threads that read, a line's variables, and the command that writes it.

        ``data_feed_type`` and ``queue_num`` are accepted as Paddle does.

        Raises:
            InvalidType: an argument that there is not.
            Unsupported: files of Hadoop, or another kind of input.
        """
        for name in settings:
            if name not in ("data_feed_type", "queue_num"):
                raise InvalidType(f"{type(self).__name__}.init has no argument {name!r}.")
        if input_type or fs_name or fs_ugi or download_cmd != "cat":
            raise Unsupported(
                f"{type(self).__name__}.init reads this host's files (input_type=0): mount or download others."
            )
        self.set_batch_size(batch_size)
        self.set_thread(thread_num)
        self.set_use_var(list(use_var))
        self.set_pipe_command(pipe_command)


class InMemoryDataset(_Init, file_datasets.InMemoryDataset):
    """Reads its files once (``load_into_memory``), and may shuffle the samples between passes."""


class QueueDataset(_Init, file_datasets.QueueDataset):
    """Reads its files in every pass."""


__all__ = ["InMemoryDataset", "QueueDataset"]
