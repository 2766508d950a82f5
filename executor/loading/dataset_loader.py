"""A DataLoader over a data set: batches read in this process or by workers, for one place or several."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice, repeat
from typing import Any

from ...graph.program.variable import Variable
from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue
from ..device.place import CPUPlace, check_source
from .collate import Collate, Exhausted, by_name, default_collate_fn, default_convert_fn, fetcher
from .datasets import Dataset, IterableDataset, NoLength
from .sample_readers import buffered
from .samplers import BatchSampler
from .workers import Crew, Job


class DatasetLoader:
    """Batches of a data set, of samples that ``batch_sampler`` or ``batch_size`` and ``shuffle`` choose.

    With ``return_list`` a batch is the result of ``collate_fn``, for several places a list of one for each;
    without, it is a list of a dict for each place, by the names in ``feed_list``. Batches at the end that
    are too few for all places are left out. ``batch_size=None``: each sample is a batch, and is not joined.

    ``num_workers`` processes read ``prefetch_factor`` batches ahead each, and give arrays through shared memory
    (``use_shared_memory``); ``timeout`` seconds may pass until a batch is there (0: any number).
    ``persistent_workers`` last from one iteration to the next. Without workers a thread reads ahead
    (``use_buffer_reader``).

    Raises:
        InvalidArgument: arguments contradict each other.
        InvalidValue: an iterable data set is to be shuffled or sampled.
        InvalidType: ``dataset`` is none, or ``feed_list`` holds something else than variables.
    """

    def __init__(
        self,
        dataset: Dataset,
        feed_list: Sequence[Variable] | None = None,
        places: Any = None,
        return_list: bool = True,
        batch_sampler: Iterable[Any] | None = None,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Collate | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        reader_buffer_size: int = 2,
        prefetch_factor: int = 2,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        persistent_workers: bool = False,
    ) -> None:
        _check_dataset(dataset)
        _check_number("num_workers", num_workers, 0)
        _check_number("prefetch_factor", prefetch_factor, 1)
        _check_number("reader_buffer_size", reader_buffer_size, 1)
        if timeout < 0:
            raise InvalidArgument(f"timeout must not be below 0, got {timeout!r}.")
        self.dataset = dataset
        self.feed_list = feed_list
        self.return_list = return_list
        self.places = checked_places(places)
        self._names = _names(feed_list, return_list)
        self.batch_sampler, self.batch_size = _sampling(
            dataset, batch_sampler, batch_size, shuffle, drop_last
        )
        self.drop_last = drop_last
        self.auto_collate_batch = self.batch_sampler is not None or self.batch_size is not None
        self.collate_fn = collate_fn
        self.num_workers = num_workers
        self.use_buffer_reader = use_buffer_reader
        self.use_shared_memory = use_shared_memory and num_workers > 0
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self._ahead = reader_buffer_size * len(self.places)
        self._prefetch = prefetch_factor
        self._persistent = persistent_workers
        self._crew: Crew | None = None

    def __len__(self) -> int:
        """Return the number of batches.

        Raises:
            NoLength: the data set is iterable.
        """
        if isinstance(self.dataset, IterableDataset):
            raise NoLength("an iterable data set has no number of batches.")
        return len(self.dataset if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]

    def __call__(self) -> Iterator[Any]:
        return iter(self)

    def __iter__(self) -> Iterator[Any]:
        count = len(self.places)
        with closing(self._by_workers() if self.num_workers else self._read_here()) as batches:
            while len(group := list(islice(batches, count))) == count:
                if not self.return_list:
                    yield [by_name(self._names, batch) for batch in group]
                else:
                    yield group[0] if count == 1 else group

    def _tasks(self) -> Iterable[Any]:
        if isinstance(self.dataset, IterableDataset):
            return repeat(None)
        return range(len(self.dataset)) if self.batch_sampler is None else self.batch_sampler

    def _fetcher(self) -> Callable[[Any], Any]:
        batched = self.auto_collate_batch
        collate = self.collate_fn or (default_collate_fn if batched else default_convert_fn)
        return fetcher(self.dataset, self.batch_size, batched, collate, self.drop_last)

    def _read_here(self) -> Generator[Any, None, None]:
        def read() -> Iterator[Any]:
            fetch = self._fetcher()
            for task in self._tasks():
                try:
                    batch = fetch(task)
                except Exhausted:
                    return
                yield batch

        yield from (buffered(read, self._ahead) if self.use_buffer_reader else read)()

    def _by_workers(self) -> Generator[Any, None, None]:
        # one iteration at a time uses the crew
        crew, self._crew = self._crew or self._new_crew(), None
        intact = False
        try:
            yield from crew.batches(self._tasks())
            intact = True
        except GeneratorExit:  # the iteration was left; batches under way are thrown away
            intact = True
            raise
        finally:
            if intact and self._persistent and self._crew is None:
                self._crew = crew
            else:
                crew.stop()

    def _new_crew(self) -> Crew:
        job = Job(self.dataset, self._fetcher, self.worker_init_fn, self.use_shared_memory)
        ahead = -(-self._prefetch * max(self.num_workers, len(self.places)) // self.num_workers)
        crew = Crew(job, self.num_workers, ahead, self.timeout)
        if self._persistent:
            weakref.finalize(self, crew.stop)
        return crew


def _check_dataset(dataset: Any) -> None:
    if not hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset):
        raise InvalidType(f"dataset must be a paddle.io.Dataset, got {type(dataset).__name__}.")


def _check_number(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise InvalidArgument(f"{name} must be a whole number from {least} on, got {value!r}.")


def checked_places(places: Any) -> list[Any]:
    """Return the places that a loader feeds: those of a list, or a single one (None: the CPU)."""
    single = CPUPlace() if places is None else places
    listed = list(places) if isinstance(places, (list, tuple)) else [single]
    if not listed:
        raise InvalidArgument("there are no places to feed: the place list is empty.")
    for place in listed:
        check_source(place)
    return listed


def _names(feed_list: Sequence[Variable] | None, return_list: bool) -> list[str]:
    if feed_list is None:
        if not return_list:
            raise InvalidArgument(
                "return_list=False gives dicts: pass feed_list, which names their keys."
            )
        return []
    for variable in feed_list:
        if not isinstance(variable, Variable):
            raise InvalidType(f"feed_list holds variables, got {type(variable).__name__}.")
    return [variable.name for variable in feed_list]


def _sampling(
    dataset: Any, sampler: Any, batch_size: int | None, shuffle: bool, drop_last: bool
) -> tuple[Iterable[Any] | None, int | None]:
    """Return the sampler of batches (None: iterable data set), and the batch size of an iterable data set."""
    iterable = isinstance(dataset, IterableDataset)
    if iterable and shuffle:
        raise InvalidValue("an iterable data set comes in its own order; it cannot be shuffled.")
    if iterable and sampler is not None:
        raise InvalidValue("an iterable data set comes in its own order, without batch_sampler.")
    if sampler is not None:
        if batch_size != 1 or shuffle or drop_last:
            raise InvalidArgument("batch_sampler decides batch_size, shuffle and drop_last.")
        return sampler, None
    if batch_size is None:
        return None, None
    _check_number("batch_size", batch_size, 1)
    if iterable:
        return None, batch_size
    return BatchSampler(dataset, None, shuffle, batch_size, drop_last), batch_size
