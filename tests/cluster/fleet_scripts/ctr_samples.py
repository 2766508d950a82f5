"""Turns lines of clicks (label, numbers, ids; with tabs) into slots: a pipe command."""

import paddle.fluid.incubate.data_generator as data_generator


class Clicks(data_generator.MultiSlotDataGenerator):
    """A sample a line."""

    def generate_sample(self, line):
        """Return a function that yields the sample of a line."""

        def samples():
            label, numbers, ids = line.rstrip("\n").split("\t")
            slots = [(f"c{i}", [int(word)]) for i, word in enumerate(ids.split(","))]
            dense = [float(number) for number in numbers.split(",")]
            yield [("dense", dense), *slots, ("label", [int(label)])]

        return samples


Clicks().run_from_stdin()
