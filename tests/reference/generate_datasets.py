"""Make datasets.json with Paddle 1.8.5: what its readers yield for the files of dataset_files.py.

Run with a Python that has paddlepaddle==1.8.5, nltk, rarfile, scipy and opencv-python:  python generate_datasets.py

{reader: [number of samples, sum over them, the first two]}, as ``dataset_files.summary`` tells them.
"""

import os
import tempfile

import compact_json
import dataset_files
import paddle
import paddle.dataset as datasets
import rarfile
from paddle.dataset import common

HERE = os.path.dirname(os.path.abspath(__file__))


class Unpacked:
    """A RAR archive that lies unpacked beside itself: packing one needs a program that is not free."""

    def __init__(self, path):
        pass

    def extractall(self, path):
        """Do nothing."""


def present(url, module_name, md5sum, save_name=None):
    """Return where a file is, whatever its MD5 sum: it is synthetic."""
    return os.path.join(common.DATA_HOME, module_name, save_name or url.split("/")[-1])


assert paddle.__version__.startswith("1.8")
rarfile.RarFile = Unpacked
with tempfile.TemporaryDirectory() as home:
    dataset_files.write(home)
    os.chdir(home)  # uci_housing draws a picture where it is
    common.DATA_HOME = home
    for module in (common, datasets.mq2007, datasets.flowers):
        module.download = present
    samples = dataset_files.outcomes(datasets)
summaries = {name: dataset_files.summary(each) for name, each in samples.items()}
compact_json.write(os.path.join(HERE, "datasets.json"), summaries, 1)
