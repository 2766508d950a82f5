"""Mutated models, tensors and pickles: each is read or refused, and nothing else happens."""

from __future__ import annotations

import io
import os
import pickle
import random
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rowlock.graph.program.formats.inference import feed_and_fetch_names
from rowlock.graph.program.formats.program import parse
from rowlock.graph.program.formats.state_reader import read_arrays
from rowlock.graph.program.formats.tensors import TensorFile
from rowlock.graph.program.program import Program
from rowlock.strategies.errors import DamagedFile

FILES = Path(__file__).parents[1] / "reference" / "formats"
COUNT = 10_000
MEASURED = 25  # every so many files, the memory that reading takes
FLOOR = 1 << 16  # bytes that any file may take, and a program's objects for each of its bytes:
OBJECTS = 64
FORBIDDEN = (
    "exec",
    "compile",
    "import",
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "shutil.",
)
_watching: list[str] = []
_active = False


def _watch(event: str, arguments: object) -> None:
    if _active and event.startswith(FORBIDDEN):
        _watching.append(event)


sys.addaudithook(_watch)


def read_model(data: bytes) -> None:
    program = parse(data, Program(), "'model'")
    feed_and_fetch_names(program, "'model'")


def read_tensors(data: bytes) -> None:
    stored = TensorFile(io.BytesIO(data), "'tensors'")
    for entry in stored.scan([str(number) for number in range(9)]):
        stored.read(entry, np.empty(entry.shape, entry.dtype))


def read_pickle(data: bytes) -> None:
    read_arrays(io.BytesIO(data), "'state'")


READERS: list[tuple[Callable[[bytes], None], list[str], int]] = [
    (
        read_model,
        ["paddle185/dense/__model__", "paddle331/dense.pdmodel", "paddle185/words/__model__"],
        5,
    ),
    (read_tensors, ["paddle185/tensors"], 8),
    (
        read_pickle,
        ["paddle185/state.pdparams", "paddle331/state.pdparams", "paddle185/state.pdopt"],
        7,
    ),
]
NUMBERS = [
    0,
    1,
    127,
    128,
    255,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
]


def mutated(draw: random.Random, data: bytes) -> bytes:
    """Return the bytes with one to four faults: flipped, replaced, cut, doubled, moved, a wild number."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(out) + 1)
        kind = draw.randrange(7)
        length = draw.choice((1, 2, 4, 8, 64))
        if kind == 0 and at < len(out):
            out[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            out[at : at + length] = draw.randbytes(length)
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            del out[at : at + length]
        elif kind == 4:
            out[at:at] = out[at : at + length] * draw.randint(1, 20)
        elif kind == 5:
            size = draw.choice((1, 2, 4, 8))
            out[at : at + size] = (draw.choice(NUMBERS) & (1 << 8 * size) - 1).to_bytes(
                size, "little"
            )
        else:
            other = draw.randrange(len(out) + 1)
            out[at:at] = out[other : other + length]
    return bytes(out)


def peak_of(read: Callable[[bytes], None], data: bytes) -> int:
    tracemalloc.start()
    try:
        attempt(read, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def attempt(read: Callable[[bytes], None], data: bytes) -> bool:
    try:
        read(data)
    except DamagedFile as error:
        assert "byte" in str(error) or "'" in str(error)
        return False
    return True


@pytest.mark.parametrize(("read", "names", "share"), READERS, ids=["model", "tensors", "pickle"])
def test_mutated_files_are_read_or_refused(
    read: Callable[[bytes], None], names: list[str], share: int
) -> None:
    global _active
    seed = int(os.environ.get("ROWLOCK_FUZZ_SEED", random.getrandbits(32)))
    print(f"ROWLOCK_FUZZ_SEED={seed}")
    draw = random.Random(seed)
    files = [(FILES / name).read_bytes() for name in names]
    for data in files:
        assert attempt(read, data)
    times = OBJECTS if read is read_model else 2
    refused, count = 0, COUNT * share // 20
    _watching.clear()
    _active = True
    try:
        for number in range(count):
            data = mutated(draw, draw.choice(files))
            if number % MEASURED == 0:
                assert peak_of(read, data) <= times * len(data) + FLOOR
            else:
                refused += not attempt(read, data)
    finally:
        _active = False
    assert not _watching
    assert refused > count // 10


@pytest.mark.parametrize("column", [[0], "0", 1, True])
def test_a_column_that_does_not_count_is_refused(column: object) -> None:
    program = parse((FILES / "paddle185/dense/__model__").read_bytes(), Program(), "'model'")
    op = next(op for op in program.global_block().ops if op.type == "fetch")
    op.attrs["col"] = column
    with pytest.raises(DamagedFile, match="fetch ops do not count from 0"):
        feed_and_fetch_names(program, "'model'")


def test_hostile_pickles_are_refused() -> None:
    class Hostile:
        def __reduce__(self) -> object:
            return os.system, ("exit 1",)

    hostile = {
        "code": pickle.dumps({"a": Hostile()}, 2),
        "eval": b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.",
        "a huge string": b"\x80\x04\x8e" + (1 << 62).to_bytes(8, "little") + b".",
        "tuples in tuples as a key": b"\x80\x02}N" + b"\x85" * 200_000 + b"Ns.",
        "lists in lists": b"\x80\x02" + b"]" * 500_000 + b".",
        "a codec": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.",
    }
    for name, data in hostile.items():
        assert not attempt(read_pickle, data), name
    read_pickle(b"\x80\x02}r\xff\xff\xff\xff.")  # kept under a large number: no table of that size


def test_hostile_tensors_take_no_memory() -> None:
    huge = (
        bytes(4 + 8 + 4)
        + b"\x10\x00\x00\x00"
        + b"\x08\x05"
        + b"\x10\xff\xff\xff\xff\x07" * 2
        + b"\x10\x01"
    )
    tracemalloc.start()
    with pytest.raises(DamagedFile, match="bytes, 0 are left"):
        TensorFile(io.BytesIO(huge), "'huge'").scan(["w"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < FLOOR


OTHER_FILES = {
    "an empty one": (b"", "empty"),
    "one of zeros": (bytes(64), "zeros"),
    "text": (b"garbage: this is none of the files\n" * 3, "text"),
    "short text": (b"{}", "text"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a", "git lfs pull"),
    "an archive": (b"PK\x03\x04" + bytes(range(60)), "ZIP archive"),
    "an array": (b"\x93NUMPY\x01\0v\0{'descr'" + bytes(60), "numpy.load reads it"),
    "a program": ((FILES / "paddle185/dense/__model__").read_bytes(), "load_inference_model"),
    "tensors": ((FILES / "paddle185/tensors").read_bytes(), "load_vars reads it"),
    "state": ((FILES / "paddle185/state.pdparams").read_bytes(), "fluid.load and paddle.load"),
}
OWN_KINDS = {read_model: "a program", read_tensors: "tensors", read_pickle: "state"}


@pytest.mark.parametrize("other", OTHER_FILES)
@pytest.mark.parametrize("read", OWN_KINDS)
def test_a_file_of_another_kind_is_told_with_what_reads_it(
    read: Callable[[bytes], None], other: str
) -> None:
    data, kind = OTHER_FILES[other]
    if OWN_KINDS[read] == other:
        with pytest.raises(DamagedFile, match=r"is damaged at byte \d+: .*Copy it again"):
            read(data[: len(data) // 2])
    elif read is read_tensors and not data:
        with pytest.raises(DamagedFile, match=r"ends at byte 0 .* or is cut off"):
            read(data)
    else:
        with pytest.raises(DamagedFile, match=f"is not .* but .*{kind}"):
            read(data)
