"""Uses of ``paddle.io`` in static mode, under Paddle 3.3.1 and here: each returns what JSON can tell."""

import numpy as np


def told(value):
    """Return a batch as JSON: a tensor is its dtype, shape and elements."""
    if isinstance(value, dict):
        return {key: told(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [told(item) for item in value]
    if isinstance(value, (str, bytes, int, float, type(None))):
        return value if not isinstance(value, bytes) else "bytes " + value.decode()
    array = np.array(value)
    return [str(array.dtype), list(array.shape), array.ravel().tolist()]


def outcomes(io, places, variables):
    """Return outcomes by name. ``places(n)`` are n CPU places, ``variables()`` an image [-1, 2] and a label [-1]."""

    class Pairs(io.Dataset):
        def __init__(self, count):
            self.count = count

        def __getitem__(self, index):
            return np.array([index, -index], "float32"), index

        def __len__(self):
            return self.count

    class Named(Pairs):
        def __getitem__(self, index):
            return {
                "image": np.full((2, 1), index),
                "name": "n%d" % index,
                "more": (index / 2, [np.float32(index)]),
            }

    class Counting(io.IterableDataset):
        def __init__(self, first, last):
            self.first, self.last = first, last

        def __iter__(self):
            info = io.get_worker_info()
            step, own = (info.num_workers, info.id) if info else (1, 0)
            for number in range(self.first + own, self.last, step):
                yield np.array([number, number * number])

    def batches(*args, **kwargs):
        return told(list(iter(io.DataLoader(*args, **kwargs))))

    def seeded(sampler):
        np.random.seed(5)
        return list(iter(sampler))

    told_of = {
        "sequence": list(io.SequenceSampler(Pairs(4))),
        "random": seeded(io.RandomSampler(Pairs(9))),
        "some": seeded(io.RandomSampler(Pairs(9), num_samples=4)),
        "replaced": seeded(io.RandomSampler(Pairs(5), True, 8)),
        "generated": list(io.RandomSampler(Pairs(9), generator=iter([3, 1, 2]))),
        "weighted": seeded(io.WeightedRandomSampler([0.1, 0.5, 0.0, 3], 6)),
        "weighted once": seeded(io.WeightedRandomSampler(np.array([[1.0, 2, 0, 4]]), 3, False)),
        "weighted lengths": [
            len(io.WeightedRandomSampler(np.ones(shape), 3)) for shape in ([4], [1, 4])
        ],
        "batches": list(io.BatchSampler(Pairs(7), batch_size=3)),
        "shuffled batches": seeded(
            io.BatchSampler(Pairs(7), shuffle=True, batch_size=3, drop_last=True)
        ),
        "batches of a sampler": list(io.BatchSampler(sampler=[5, 2, 8], batch_size=2)),
        "numbers of batches": [
            len(io.BatchSampler(Pairs(n), batch_size=3, drop_last=drop))
            for n in (6, 7)
            for drop in (True, False)
        ],
        "compose": told(list(io.ComposeDataset([Pairs(2), Pairs(2)])[1])),
        "concat": [told(io.ConcatDataset([Pairs(2), Pairs(3)])[i]) for i in (0, 1, 2, 4, -1, -5)],
        "chain": told([sample for sample in io.ChainDataset([Counting(0, 2), Counting(5, 7)])]),
        "subset": told([io.Subset(Pairs(9), [4, 2])[i] for i in range(2)]),
    }
    for count, replicas, size, shuffle, drop in (
        (10, 3, 2, False, False),
        (11, 2, 3, True, True),
        (2, 5, 2, False, False),
        (12, 2, 3, True, False),
    ):
        samplers = [
            io.DistributedBatchSampler(Pairs(count), size, replicas, rank, shuffle, drop)
            for rank in range(replicas)
        ]
        name = "distributed %d %d" % (count, replicas)
        told_of[name] = [[list(sampler), list(sampler), len(sampler)] for sampler in samplers]
    for workers in (0, 2):
        names = {"num_workers": workers}
        image, label = variables()
        told_of["pairs %d" % workers] = batches(Pairs(7), batch_size=2, **names)
        told_of["dropped %d" % workers] = batches(Pairs(7), batch_size=2, drop_last=True, **names)
        told_of["named %d" % workers] = batches(Named(3), batch_size=2, **names)
        told_of["not joined %d" % workers] = batches(Pairs(2), batch_size=None, **names)
        told_of["sampled %d" % workers] = batches(
            Pairs(9), batch_sampler=[[1, 8], [3], [0, 2, 4]], **names
        )
        told_of["joined otherwise %d" % workers] = batches(
            Pairs(5),
            batch_size=2,
            collate_fn=lambda samples: [np.array([s[1] for s in samples]) + 100],
            **names,
        )
        told_of["two places %d" % workers] = batches(
            Pairs(7), places=places(2), batch_size=2, **names
        )
        told_of["by name %d" % workers] = batches(
            Pairs(5), [image, label], places(1), return_list=False, batch_size=2, **names
        )
        told_of["by name on two places %d" % workers] = batches(
            Pairs(9), [image, label], places(2), return_list=False, batch_size=2, **names
        )
        told_of["counting %d" % workers] = batches(Counting(0, 11), batch_size=2, **names)
        told_of["counting, dropped %d" % workers] = batches(
            Counting(0, 11), batch_size=2, drop_last=True, **names
        )
        told_of["counting alone %d" % workers] = batches(Counting(0, 3), batch_size=None, **names)
        told_of["private memory %d" % workers] = batches(
            Pairs(4), batch_size=3, use_shared_memory=False, **names
        )
        told_of["unbuffered %d" % workers] = batches(
            Pairs(4), batch_size=3, use_buffer_reader=False, **names
        )
        np.random.seed(9)
        told_of["shuffled %d" % workers] = (
            batches(Pairs(6), batch_size=4, shuffle=True, **names) if not workers else None
        )
    told_of["lengths"] = [
        len(io.DataLoader(Pairs(7), batch_size=2)),
        len(io.DataLoader(Pairs(7), batch_size=2, drop_last=True)),
        len(io.DataLoader(Pairs(7), batch_size=None)),
        len(io.DataLoader(Pairs(7), batch_sampler=[[1], [2, 3]])),
    ]
    return told_of


def refused(io):
    """Return the names of the errors that wrong uses raise, by a name for the use."""

    class Three(io.Dataset):
        def __getitem__(self, index):
            return index

        def __len__(self):
            return 3

    class Endless(io.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    uses = {
        "shuffle an iterable": lambda: io.DataLoader(Endless(), shuffle=True),
        "sample an iterable": lambda: io.DataLoader(Endless(), batch_sampler=[[1]]),
        "length of an iterable": lambda: io.DataLoader(Endless()).__len__(),
        "no feed_list": lambda: io.DataLoader(Three(), return_list=False),
        "sampler and size": lambda: io.DataLoader(Three(), batch_sampler=[[1]], batch_size=2),
        "no size": lambda: io.DataLoader(Three(), batch_size=0),
        "workers below 0": lambda: io.DataLoader(Three(), num_workers=-1),
        "timeout below 0": lambda: io.DataLoader(Three(), timeout=-1),
        "both sources": lambda: io.BatchSampler(Three(), [1]),
        "no source": lambda: io.BatchSampler(),
        "iterable source": lambda: io.BatchSampler(Endless()),
        "drop_last": lambda: io.BatchSampler(Three(), drop_last=1),
        "too many": lambda: io.RandomSampler(Three(), num_samples=4),
        "replacement": lambda: io.RandomSampler(Three(), replacement=1),
        "negative weights": lambda: list(iter(io.WeightedRandomSampler([1.0, -1], 2))),
        "no weights": lambda: io.WeightedRandomSampler([1.0], 0),
        "no indices": lambda: io.SubsetRandomSampler([]),
        "compose nothing": lambda: io.ComposeDataset([]),
        "compose iterables": lambda: io.ComposeDataset([Endless()]),
        "chain others": lambda: io.ChainDataset([Three()]),
        "concat iterables": lambda: io.ConcatDataset([Endless()]),
        "concat beyond": lambda: io.ConcatDataset([Three()])[-4],
        "split into too many": lambda: io.random_split(Three(), [2, 2]),
        "number of an iterable": lambda: Endless()[0],
        "no length": lambda: io.Dataset().__len__(),
        "no item": lambda: io.Dataset()[0],
    }
    kinds = {}
    for name, use in uses.items():
        try:
            use()
            kinds[name] = None
        except Exception as error:
            builtins = [
                kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"
            ]
            kinds[name] = builtins[0] if type(error).__module__ == "builtins" else builtins
    return kinds
