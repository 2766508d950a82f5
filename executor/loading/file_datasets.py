"""Datasets of files: what ``Executor.train_from_dataset`` reads (``fluid.DatasetFactory``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ...strategies.current import current_config
from ...strategies.errors import EOFException, InvalidState, InvalidValue, Unsupported, nearest
from ..feed.reader import Batch, Prefetch
from ..host.background import in_background
from .dataset_base import ENGINES, DatasetBase, Workers, whole_number
from .multi_slot import Records, batches_of, joined, packed, unpacked

_AHEAD = 8  # batches that each thread reads before they are taken


class QueueDataset(DatasetBase):
    """Reads its files anew in each pass, a few batches ahead.

    Thread i of n reads files i, i + n and so on, and makes batches of them; they are taken from the threads
    in turn, so that the order is the same in each pass.
    """

    _feed_name = "MultiSlotDataFeed"

    def _pass(self, threads: int, least: int) -> Iterator[Batch]:
        count = min(threads, len(self.filelist))
        return _in_turn([self._reader(self.filelist[i::count], least) for i in range(count)])

    def _reader(self, files: Sequence[str], least: int) -> Prefetch:
        slots, size = self._slots, self._batch_size

        def source() -> Iterator[Batch]:
            for records in batches_of(self._records(files), slots, size, least):
                yield records.feed(slots)

        return Prefetch(source, _AHEAD)


class InMemoryDataset(DatasetBase):
    """Reads its files once (``load_into_memory``), and may shuffle the samples between passes.

    Numbers 0 in sequences are padding, as they are to Paddle's: they are left out, but for one where a sample
    has nothing else.
    """

    _feed_name = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self._memory: Records | None = None
        self._original: Records | None = None  # as read, for slots_shuffle
        self._shuffled = False
        self._preload: Future[Records] | None = None
        self._candidates = 0
        self._content = False

    def set_queue_num(self, queue_num: int) -> None:
        """Check a number of queues. Samples lie in one, from which steps take in its order."""
        whole_number("set_queue_num", queue_num)

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Have lines begin with a 1 and the sample's name."""
        self._heads = (1 + self._content) * bool(parse_ins_id)

    def set_parse_content(self, parse_content: bool) -> None:
        """Have a 1 and a word of content follow the sample's name; it is skipped."""
        self._content = bool(parse_content)
        self._heads = (1 + self._content) * bool(self._heads or parse_content)

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:  # type: ignore[override]
        """Let :meth:`slots_shuffle` draw values of so many samples; not at all with ``fea_eval=False``."""
        size = whole_number("set_fea_eval", record_candidate_size)
        self._candidates = size if fea_eval else 0

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Check a number of samples. :meth:`global_shuffle` sends those for a trainer at once."""
        whole_number("set_fleet_send_batch_size", fleet_send_batch_size)

    def set_merge_by_lineid(self, merge_size: int = 2) -> NoReturn:
        """Refuse."""
        raise Unsupported(
            "set_merge_by_lineid: samples of one name are not merged; merge them in the pipe command."
        )

    def load_into_memory(self) -> None:
        """Read all files, by ``set_thread``'s threads; in the order of the files, whichever is read first.

        Raises:
            InvalidState: no files, or no variables were set.
            MissingFile: a file is not there.
            DamagedFile: a line does not fit the variables, or the pipe command failed.
        """
        self._check()
        self._keep(_read_all(self, self.thread_num))

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Begin to do what :meth:`load_into_memory` does; :meth:`wait_preload_done` waits for its end."""
        self._check()
        if self._preload is not None:
            raise InvalidState("preload_into_memory was called before: call wait_preload_done.")
        threads = whole_number("thread_num", thread_num or self.thread_num)
        self._preload = in_background(partial(_read_all, self, threads), "rowlock-preload")

    def wait_preload_done(self) -> None:
        """Wait until the data is in memory, and raise what reading raised."""
        if self._preload is None:
            raise InvalidState("there is nothing to wait for: call preload_into_memory first.")
        preload, self._preload = self._preload, None
        self._keep(preload.result())

    def _records(self, files: Sequence[str]) -> Iterator[Records]:
        return (records.without_padding(self._slots) for records in super()._records(files))

    def _keep(self, records: Records) -> None:
        self._memory = self._original = records
        self._shuffled = False

    def _held(self, method: str) -> Records:
        if self._memory is None:
            raise InvalidState(f"{method}: nothing is in memory: call load_into_memory first.")
        return self._memory

    def local_shuffle(self) -> None:
        """Put this process's samples into a random order, drawn from NumPy's global generator."""
        records = self._held("local_shuffle")
        self._memory = records.take(np.random.permutation(len(records)))
        self._shuffled = True

    def global_shuffle(self, fleet: Workers | None = None, thread_num: int = 12) -> None:
        """Deal the samples of all trainers of ``fleet`` out among them at random; alone, shuffle them.

        Each gets as many as the others, or one more.
        Each trainer must call it. ``thread_num`` is accepted as Paddle does.

        Raises:
            InvalidState: nothing was loaded.
        """
        records = self._held("global_shuffle")
        if fleet is not None and fleet.worker_num() > 1:
            records = self._dealt(records, fleet)
        self._memory = self._original = records
        self.local_shuffle()

    def _dealt(self, records: Records, fleet: Workers) -> Records:
        """Return the samples that fall to this trainer, of all trainers'."""
        to = _recipients(len(records), fleet)
        own: list[Records] = []
        for rank in range(fleet.worker_num()):  # one trainer's samples at a time
            parts = fleet.gather_bytes(packed(records.take(np.flatnonzero(to == rank))))
            if rank == fleet.worker_index():
                own = [unpacked(part) for part in parts]
        return joined(own, self._slots)

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Give each sample, in these slots, the values of another, to measure how much the slots matter.

        They are drawn from ``record_candidate_size`` samples (:meth:`set_fea_eval`) of the data as loaded.

        Raises:
            InvalidState: ``set_fea_eval`` was not called, or nothing was loaded.
            InvalidValue: there is no such slot.
        """
        if not self._candidates:
            raise InvalidState("slots_shuffle: call set_fea_eval first.")
        self._held("slots_shuffle")
        samples = self._original
        assert samples is not None
        names = [slot.name for slot in self._slots]
        for name in slots:
            if name not in names:
                raise InvalidValue(f"slots_shuffle: no slot {name!r}.{nearest(name, names)}")
        pool = np.random.permutation(len(samples))[: self._candidates]
        columns = []
        for name, column in zip(names, samples.columns, strict=True):
            if name in slots:
                rows = np.random.randint(max(1, len(pool)), size=len(samples))
                column = column.take(pool[rows])
            columns.append(column)
        self._memory = Records(tuple(columns), samples.ids)

    def release_memory(self) -> None:
        """Forget the samples; :meth:`load_into_memory` reads them again."""
        self._memory = self._original = None
        self._shuffled = False

    def get_memory_data_size(self, fleet: Workers | None = None) -> int:
        """Return how many samples are in memory, here or at all trainers of ``fleet``."""
        return _total(0 if self._memory is None else len(self._memory), fleet)

    def get_shuffle_data_size(self, fleet: Workers | None = None) -> int:
        """Return how many samples were shuffled since they were loaded, as :meth:`get_memory_data_size`."""
        return self.get_memory_data_size(fleet) if self._shuffled else _total(0, fleet)

    def _pass(self, threads: int, least: int) -> Iterator[Batch]:
        records, slots = self._held("a pass over the dataset"), self._slots
        parts = batches_of(iter([records]), slots, self._batch_size, least)
        return (part.feed(slots) for part in parts)


def _recipients(count: int, fleet: Workers) -> Any:
    """Return the trainer that each of this one's samples goes to; trainers get equally many, up to one."""
    seed = int(np.random.randint(1 << 31))
    answers = fleet.gather_workers([count, seed])
    counts, seeds = [answer[0] for answer in answers], [answer[1] for answer in answers]
    order = np.random.default_rng(seeds).permutation(sum(counts))  # the same at all
    first = sum(counts[: fleet.worker_index()])
    return order[first : first + count] % fleet.worker_num()


def _read_all(dataset: InMemoryDataset, threads: int) -> Records:
    """Return the samples of all files, in their order, read by threads."""
    files = dataset.filelist
    count = min(threads, len(files))
    by_file: list[Records] = [joined([], dataset._slots)] * len(files)

    def source(first: int) -> Iterator[Batch]:
        for i in range(first, len(files), count):
            by_file[i] = joined(list(dataset._records([files[i]])), dataset._slots)
            yield {}

    readers = [Prefetch(lambda first=first: source(first), 1) for first in range(count)]  # type: ignore[misc]
    for _ in _in_turn(readers):
        pass
    return joined(by_file, dataset._slots)


def _in_turn(readers: list[Prefetch]) -> Iterator[Batch]:
    """Yield what readers have read, one of each in turn, until all are at their end."""
    within = current_config().step_deadline_s
    queue = list(readers)
    try:
        while queue:
            for reader in list(queue):
                try:
                    batch = reader.take(within)
                except EOFException:
                    queue.remove(reader)
                    continue
                yield batch
    finally:
        for reader in readers:
            reader.stop()


def _total(count: int, fleet: Workers | None) -> int:
    return count if fleet is None else sum(int(total) for total in fleet.gather_workers(count))


class DatasetFactory:
    """Makes datasets by the names of their classes."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> Any:
        """Return a new ``QueueDataset`` or ``InMemoryDataset``.

        Raises:
            InvalidValue: no such class.
            Unsupported: a BoxPSDataset, or a FileInstantDataset.
        """
        kinds = {"QueueDataset": QueueDataset, "InMemoryDataset": InMemoryDataset}
        if datafeed_class in ("BoxPSDataset", "FileInstantDataset"):
            raise Unsupported(f"{datafeed_class} {ENGINES}. Use InMemoryDataset or QueueDataset.")
        if datafeed_class not in kinds:
            raise InvalidValue(
                f"create_dataset: no dataset is called {datafeed_class!r}, only "
                f"{' and '.join(kinds)}."
            )
        return kinds[datafeed_class]()
