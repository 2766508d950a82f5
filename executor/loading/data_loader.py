"""DataLoader, PyReader and py_reader: Paddle's ways to let a Python generator feed a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...graph.layers.io import data_variable
from ...graph.program.unique_name import generate
from ...graph.program.variable import Variable
from ...strategies.current import current_config
from ...strategies.errors import EOFException, InvalidArgument, InvalidType, InvalidValue
from ..feed.reader import Batch, Prefetch, Reader
from .data_feeder import Columns, DataFeeder
from .dataset_loader import DatasetLoader, checked_places
from .datasets import Dataset
from .sample_readers import Generator, batch


class GeneratorLoader:
    """Feeds variables from a Python generator; the user iterates over it, or each run takes a batch.

    :meth:`DataLoader.from_generator` returns one. Iterable: ``for feed in loader():`` gives, for each step, a
    list with a dict for each place (``return_list``: a list of arrays). Else: ``loader.start()``, then
    ``exe.run(program)`` until it raises EOFException, then ``loader.reset()``.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable] | None,
        capacity: int | None,
        iterable: bool,
        return_list: bool,
        drop_last: bool,
    ) -> None:
        if not feed_list:
            raise InvalidArgument("from_generator: feed_list names the variables to feed.")
        if not isinstance(capacity, (int, np.integer)) or capacity < 1:
            raise InvalidValue(f"capacity must be a whole number above 0, got {capacity!r}.")
        self.variables = DataFeeder(feed_list, None).variables
        self._columns = Columns(self.variables)
        self._iterable = iterable
        self._return_list = return_list
        self._drop_last = drop_last
        self._places = 1
        self._reader = Reader(self._columns.names, int(capacity), drop_last)
        if not iterable:
            self.variables[0].block.program.readers.append(self._reader)

    @property
    def iterable(self) -> bool:
        """Whether the user iterates over the loader; else runs take from it."""
        return self._iterable

    def set_sample_generator(
        self, reader: Generator, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> GeneratorLoader:
        """Read samples (a tuple of values, one per variable) and make batches of ``batch_size`` of them."""
        _check_generator(reader)
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(self, reader: Generator, places: Any = None) -> GeneratorLoader:
        """Read lists of samples; each list is a batch.

        Samples are converted to the dtypes of their variables, and to their shapes if the ranks differ.
        """
        _check_generator(reader)
        columns = self._columns
        return self._set(lambda: map(columns.of_samples, reader()), places)

    def set_batch_generator(self, reader: Generator, places: Any = None) -> GeneratorLoader:
        """Read batches: a tuple with one array (or Tensor) per variable, of its dtype and shape."""
        _check_generator(reader)
        columns = self._columns
        return self._set(lambda: map(columns.of_arrays, reader()), places)

    def _set(self, source: Callable[[], Iterator[Batch]], places: Any) -> GeneratorLoader:
        if self._iterable:
            if places is None:
                raise InvalidArgument("an iterable loader needs to know the places it feeds.")
            self._places = len(checked_places(places))
        self._reader.source = source
        return self

    def start(self) -> None:
        """Begin to read; see :meth:`Reader.start`."""
        self._refuse_iterable("start")
        self._reader.start()

    def reset(self) -> None:
        """Stop reading; see :meth:`Reader.reset`."""
        self._refuse_iterable("reset")
        self._reader.reset()

    def _refuse_iterable(self, method: str) -> None:
        if self._iterable:
            raise InvalidArgument(f"{method}() is for loaders with iterable=False.")

    def __call__(self) -> Iterator[Any]:
        return iter(self)

    def __iter__(self) -> Iterator[Any]:
        if not self._iterable:
            raise InvalidArgument(
                "this loader is not iterable: call start(), and run the program without a feed."
            )
        if self._reader.source is None:
            self._reader.start()  # raises the error that names the missing generator
        return self._groups()

    def _groups(self) -> Iterator[list[Any]]:
        source = self._reader.source
        assert source is not None
        ahead = Prefetch(source, self._reader.capacity)
        try:
            while group := list(islice(_until_eof(ahead), self._places)):
                if len(group) < self._places and self._drop_last:
                    return
                yield [self._as_fed(item) for item in group]
        finally:
            ahead.stop()

    def _as_fed(self, item: Batch) -> Any:
        return [item[name] for name in self._columns.names] if self._return_list else dict(item)


def _check_generator(reader: Any) -> None:
    if not callable(reader):
        raise InvalidType(
            f"a generator is set as a function that returns an iterator, got {type(reader).__name__}."
        )


def _until_eof(ahead: Prefetch) -> Iterator[Batch]:
    within = current_config().step_deadline_s
    while True:
        try:
            item = ahead.take(within)
        except EOFException:
            return
        yield item


class DataLoader(DatasetLoader):
    """A loader of a data set, with the defaults of Paddle 1.8.5; home of :meth:`from_generator`."""

    def __init__(
        self,
        dataset: Dataset,
        feed_list: Sequence[Variable] | None = None,
        places: Any = None,
        return_list: bool = False,
        batch_sampler: Iterable[Any] | None = None,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[Any], Any] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
    ) -> None:
        super().__init__(
            dataset,
            feed_list,
            places,
            return_list,
            batch_sampler,
            batch_size,
            shuffle,
            drop_last,
            collate_fn,
            num_workers,
            use_buffer_reader,
            use_shared_memory=use_shared_memory,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
        )

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """Return a loader that feeds ``feed_list`` from a Python generator, ``capacity`` batches ahead.

        ``drop_last``: batches left over that do not fill all places are dropped. Without it, and without
        ``iterable``, they go to the first places of a program without gradients, or of one that weighs
        samples (``SampleWeighted``); other programs never get them. The generator runs on a thread of the
        driver whatever ``use_double_buffer`` and ``use_multiprocess`` are.

        Raises:
            InvalidValue: ``capacity`` is no whole number above 0.
            InvalidArgument: ``feed_list`` is missing.
        """
        return GeneratorLoader(feed_list, capacity, iterable, return_list, drop_last)


class PyReader(GeneratorLoader):
    """Paddle 1.x's name of :meth:`DataLoader.from_generator`'s loaders."""

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        super().__init__(feed_list, capacity, iterable, return_list, drop_last=True)

    def decorate_sample_generator(
        self,
        sample_generator: Generator,
        batch_size: int,
        drop_last: bool = True,
        places: Any = None,
    ) -> GeneratorLoader:
        """Do what :meth:`set_sample_generator` does."""
        return self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    decorate_sample_list_generator = GeneratorLoader.set_sample_list_generator
    decorate_batch_generator = GeneratorLoader.set_batch_generator


class LayerReader(PyReader):
    """The reader of ``fluid.layers.py_reader``; ``read_file`` returns its variables."""

    def __init__(self, feed_list: Sequence[Variable], capacity: int) -> None:
        super().__init__(feed_list, capacity, iterable=False)

    decorate_paddle_reader = GeneratorLoader.set_sample_list_generator
    decorate_tensor_provider = GeneratorLoader.set_batch_generator


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> LayerReader:
    """Return a reader of new variables of these shapes (-1: unknown) and dtypes. ``name`` is not used.

    Raises:
        InvalidValue: as many dtypes and LoD levels as shapes are needed.
    """
    levels = [0] * len(shapes) if lod_levels is None else list(lod_levels)
    if not len(shapes) == len(dtypes) == len(levels):
        raise InvalidValue(
            f"py_reader: {len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} lod_levels differ."
        )
    prefix = generate("read_file")
    variables = [
        data_variable(generate(f"{prefix}.tmp"), list(shape), dtype, level, True, check=False)
        for shape, dtype, level in zip(shapes, dtypes, levels, strict=True)
    ]
    return LayerReader(variables, capacity)


def create_py_reader_by_data(
    capacity: int,
    feed_list: Sequence[Variable],
    name: str | None = None,
    use_double_buffer: bool = True,
) -> LayerReader:
    """Return a reader of these variables."""
    return LayerReader(feed_list, capacity)


def read_file(reader: LayerReader) -> Any:
    """Return the variables that a reader feeds: one alone, or a list.

    Raises:
        InvalidType: not a reader of ``py_reader`` or ``create_py_reader_by_data``.
    """
    if not isinstance(reader, LayerReader):
        raise InvalidType(f"read_file takes a reader, got {type(reader).__name__}.")
    return reader.variables[0] if len(reader.variables) == 1 else list(reader.variables)


def double_buffer(reader: LayerReader, place: Any = None, name: str | None = None) -> LayerReader:
    """Return the reader: batches are always read ahead."""
    return reader
