"""Programs that train from files, and generators of such files, for Paddle 1.8.5 and Rowlock alike."""

import os

import numpy as np

KINDS = ("QueueDataset", "InMemoryDataset")
COMMANDS = {"cat": "cat", "awk": "awk '{$NF = 1 - $NF; print}'"}


def write_files(folder):
    """Write two small files of the slots ids (a sequence), x and y (dense); return their paths."""
    lines = [f"2 {i + 1} {i + 2} 1 0.{i} 1 {i % 2}" for i in range(5)]
    more = [f"1 {i + 10} 1 1.{i} 1 {i % 2}" for i in range(4)]
    paths = []
    for name, text in (("a.txt", lines), ("b.txt", more)):
        paths.append(os.path.join(folder, name))
        with open(paths[-1], "w") as out:
            out.write("\n".join(text) + "\n")
    return paths


def net(fluid):
    """Return programs, the slots' variables and the loss."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        x = fluid.layers.data("x", [1], dtype="float32")
        y = fluid.layers.data("y", [1], dtype="int64")
        start = fluid.initializer.Constant(0.1)
        table = fluid.ParamAttr(name="table", initializer=start)
        rows = fluid.layers.embedding(ids, [50, 3], param_attr=table)
        hidden = fluid.layers.concat([fluid.layers.sequence_pool(rows, "sum"), x], axis=1)
        start = np.arange(8).reshape(4, 2).astype("float32") / 10
        weight = fluid.ParamAttr(
            name="w", initializer=fluid.initializer.NumpyArrayInitializer(start)
        )
        chance = fluid.layers.fc(hidden, 2, act="softmax", param_attr=weight, bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.cross_entropy(chance, y))
        fluid.optimizer.SGD(0.5).minimize(loss)
    return main, startup, [ids, x, y], loss


def dataset_of(fluid, kind, variables, files, command="cat"):
    """Return a dataset of batches of two."""
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_use_var(variables)
    dataset.set_batch_size(2)
    dataset.set_thread(1)
    dataset.set_filelist(files)
    dataset.set_pipe_command(command)
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
    return dataset


def train(fluid, kind, command, folder):
    """Train two passes, printing; return the description of the dataset and the parameters."""
    main, startup, variables, loss = net(fluid)
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        dataset = dataset_of(fluid, kind, variables, write_files(folder), COMMANDS[command])
        exe.train_from_dataset(
            main,
            dataset,
            fetch_list=[loss, variables[0]],
            fetch_info=["loss", "ids"],
            print_period=1,
        )
        # Paddle's counter of batches is never set: make it again if it printed batches 2 and 4, not 1, 3, 5
        exe.train_from_dataset(
            main, dataset, fetch_list=[loss], fetch_info=["again"], print_period=2
        )
        values = {name: np.array(scope.find_var(name).get_tensor()) for name in ("w", "table")}
    return {"desc": dataset.desc(), "values": {name: v.tolist() for name, v in values.items()}}


LINES = "1 2 3\n\n4 5.5\n7 8 9 10\n"


def generators(module):
    """Return the generators that write ``LINES``, by name."""

    def numbers(line):
        def samples():
            words = (line or "6 7").split()
            if not words:
                yield None
                return
            yield [
                ("all", [int(float(w)) for w in words]),
                ("last", [float(words[-1])]),
                ("n", [len(words)]),
            ]

        return samples

    def doubled(samples):
        def batch():
            for sample in samples:
                yield sample
                yield sample

        return batch

    def words(line):
        return lambda: iter([(("words", (line or "a b").split()), ("label", ["1"]))])

    class Numbers(module.MultiSlotDataGenerator):
        def generate_sample(self, line):
            return numbers(line)

    class Doubled(Numbers):
        def generate_batch(self, samples):
            return doubled(samples)

    class Words(module.MultiSlotStringDataGenerator):
        def generate_sample(self, line):
            return words(line)

    return {"Numbers": Numbers, "Doubled": Doubled, "Words": Words}
