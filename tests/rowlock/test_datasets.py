"""Public data sets, read from files of their formats as Paddle 1.8.5 reads them."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import importlib
import inspect
import io
import json
import os
import pickle
import struct
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.dataset as datasets
from rowlock.dataset import cifar, common, image, mnist, mq2007, sentiment, voc2012
from rowlock.strategies.errors import DamagedFile, MissingFile

from ..reference import dataset_files

REFERENCE = json.loads((Path(dataset_files.__file__).parent / "datasets.json").read_text())


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return what all readers yield; the files are synthetic, so their sums are not looked at."""
    home = tmp_path_factory.mktemp("home")
    dataset_files.write(str(home))

    def present(url: str, module: str, md5sum: str, save_name: str | None = None) -> str:
        return str(home / module / (save_name or url.rsplit("/", 1)[-1]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "DATA_HOME", str(home))
        patch.setattr(common, "download", present)
        patch.setattr(image, "resize_short", image.resize_short)  # the readers replace it
        return dataset_files.outcomes(datasets)


@pytest.mark.parametrize("reader", REFERENCE)
def test_readers_yield_what_paddles_do(reader: str, samples: dict[str, list[Any]]) -> None:
    summary = json.loads(json.dumps(dataset_files.summary(samples[reader])))
    assert summary[2] == REFERENCE[reader][2]
    assert summary == REFERENCE[reader]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class Answers(http.server.BaseHTTPRequestHandler):
    """Breaks off the first answer, then gives the whole file."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/missing":
            return self.send_error(404)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"half" if len(self.asked) == 1 else b"half whole")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Answers.asked = []
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_file_is_downloaded_once_and_only_if_it_is_whole(home: Path, server: str) -> None:
    md5 = hashlib.md5(b"half whole").hexdigest()
    for _ in range(2):
        path = common.download(f"{server}/a/data.gz", "some", md5, "kept.gz")
        assert path == str(home / "some" / "kept.gz")
        assert common.md5file(path) == md5
    assert Answers.asked == ["/a/data.gz"] * 2, "broken off, whole, then not asked for again"

    (home / "some" / "kept.gz").write_bytes(b"wrong")
    for url, why in (
        (f"{server}/missing", "Not Found"),
        ("http://127.0.0.1:9/closed", "refused"),
        (f"{server}/other", f"what came has MD5 {md5}"),
    ):
        with pytest.raises(MissingFile) as failure:
            common.download(url, "some", "0" * 32, "kept.gz")
        text = str(failure.value)
        assert why in text
        assert str(home / "some" / "kept.gz") in text and "0" * 32 in text
        assert f"the one that is there has MD5 {hashlib.md5(b'wrong').hexdigest()}" in text
    assert os.listdir(home / "some") == ["kept.gz"], "nothing half done lies about"
    assert (home / "some" / "kept.gz").read_bytes() == b"wrong", "what was there stays"


def test_samples_in_files(tmp_path: Path) -> None:
    pattern = str(tmp_path / "part-%05d")
    everything = [(np.arange(3, dtype="float32") + i, [i, "word"]) for i in range(7)]
    common.split(lambda: iter(everything), 3, pattern)
    assert sorted(os.listdir(tmp_path)) == [f"part-0000{i}" for i in range(3)]
    shares = [list(common.cluster_files_reader(f"{tmp_path}/part*", 2, i)()) for i in range(2)]
    assert [len(share) for share in shares] == [4, 3]
    for (array, rest), (expected, expected_rest) in zip(
        shares[0], everything[:3] + everything[6:], strict=True
    ):
        np.testing.assert_array_equal(array, expected, strict=True)
        assert rest == expected_rest

    common.split(lambda: iter([1, 2]), 2, str(tmp_path / "text%d"), json.dump)
    reader = common.cluster_files_reader(f"{tmp_path}/text*", 1, 0, json.load)
    assert list(reader()) == [1, 2]

    (tmp_path / "hostile").write_bytes(pickle.dumps([os.getcwd], 4))
    with pytest.raises(DamagedFile, match="never calls functions that a file names"):
        list(common.cluster_files_reader(f"{tmp_path}/hostile", 1, 0)())
    with pytest.raises(TypeError, match="loader must be callable"):
        list(common.cluster_files_reader("x", 1, 0, 3)())  # type: ignore[arg-type]


def test_damaged_and_hostile_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    monkeypatch.setattr(common, "download", lambda *_: str(path))
    with tarfile.open(path, "w") as archive:
        for name, value in (("data_batch_1", [os.system]), ("test_batch", {"data": 3})):
            data = pickle.dumps(value, 2)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    for reader, problem in (
        (cifar.train10, r"data_batch_1 of .*never calls functions that a file names"),
        (cifar.test10, "test_batch of .* holds no images with labels"),
        (cifar.train100, "holds no images under train"),
    ):
        with pytest.raises(DamagedFile, match=problem):
            next(iter(reader()()))
    path.write_bytes(b"no archive")
    with pytest.raises(DamagedFile, match="no whole tar file"):
        next(iter(cifar.train10()()))
    path.write_bytes(gzip.compress(bytes(30)))
    with pytest.raises(DamagedFile, match="does not hold the 3 sizes"):
        next(iter(mnist.train()()))


def test_segmented_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pillow = pytest.importorskip("PIL.Image")
    draws = np.random.RandomState(0)
    photograph = pillow.fromarray(draws.randint(0, 256, (6, 5, 3)).astype("uint8"))
    classes = pillow.fromarray(draws.randint(0, 21, (6, 5)).astype("uint8")).convert("P")
    files = {voc2012.SET_FILE.format("val"): b"2007_1\n"}
    for pattern, picture, kind in (
        (voc2012.DATA_FILE, photograph, "JPEG"),
        (voc2012.LABEL_FILE, classes, "PNG"),
    ):
        written = io.BytesIO()
        picture.save(written, kind)
        files[pattern.format("2007_1")] = written.getvalue()
    with tarfile.open(tmp_path / "voc.tar", "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    monkeypatch.setattr(common, "download", lambda *_: str(tmp_path / "voc.tar"))
    ((pixels, labels),) = voc2012.val()()
    jpeg = pillow.open(io.BytesIO(files[voc2012.DATA_FILE.format("2007_1")]))
    np.testing.assert_array_equal(pixels, np.array(jpeg), strict=True)
    np.testing.assert_array_equal(labels, np.array(classes), strict=True)
    with pytest.raises(DamagedFile, match=r"holds no file .*trainval.txt"):
        next(iter(voc2012.train()()))


def _parameters(module: str) -> list[str]:
    creator = importlib.import_module(f"rowlock.dataset.{module}").reader_creator
    return list(inspect.signature(creator).parameters)


def test_readers_of_files_of_ones_own(tmp_path: Path) -> None:
    pixels, digits = np.arange(5 * 4, dtype="u1").reshape(5, 2, 2), np.arange(5, dtype="u1")
    for name, kind, array in (("images", 2051, pixels), ("labels", 2049, digits)):
        head = struct.pack(f">{1 + array.ndim}I", kind, *array.shape)
        (tmp_path / name).write_bytes(gzip.compress(head + array.tobytes()))
    files = str(tmp_path / "images"), str(tmp_path / "labels")
    for at_once in (2, 100):  # how many are scaled together changes nothing
        samples = list(mnist.reader_creator(*files, at_once)())
        np.testing.assert_allclose(
            [image for image, _ in samples], pixels.reshape(5, 4) / 127.5 - 1, 1e-6
        )
        assert [label for _, label in samples] == [0, 1, 2, 3, 4]
    assert list(sentiment.reader_creator([([1], 0), ([2], 1)])) == [([1], 0), ([2], 1)]
    # as in Paddle 1.8.5
    assert _parameters("mnist") == ["image_filename", "label_filename", "buffer_size"]
    assert _parameters("cifar") == ["filename", "sub_name", "cycle"]
    assert _parameters("conll05") == ["corpus_reader", "word_dict", "predicate_dict", "label_dict"]
    assert _parameters("flowers") == [
        *("data_file", "label_file", "setid_file", "dataset_name"),
        *("mapper", "buffered_size", "use_xmap", "cycle"),
    ]  # fmt: skip
    assert _parameters("imdb") == ["pos_pattern", "neg_pattern", "word_idx"]
    assert _parameters("imikolov") == ["filename", "word_idx", "n", "data_type"]
    assert _parameters("sentiment") == ["data"]
    assert _parameters("voc2012") == ["filename", "sub_name"]
    assert _parameters("wmt14") == ["tar_file", "file_name", "dict_size"]
    assert _parameters("wmt16") == [
        *("tar_file", "file_name", "src_dict_size", "trg_dict_size", "src_lang")
    ]  # fmt: skip


def test_what_is_not_installed_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingFile, match=r"needs cv2, .*pip install opencv-python-headless"):
        image.load_image_bytes(b"")
    monkeypatch.setitem(sys.modules, "rarfile", None)
    monkeypatch.setattr(mq2007, "fetch", lambda: "MQ2007.rar")
    with pytest.raises(MissingFile, match=r"needs rarfile, .*pip install rarfile"):
        list(mq2007.train())
