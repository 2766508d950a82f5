"""File systems of fleets, and what workers count together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.distributed.fs_wrapper import LocalFS
from rowlock.fluid.incubate.fleet.base import role_maker
from rowlock.fluid.incubate.fleet.collective import fleet
from rowlock.fluid.incubate.fleet.utils.fleet_util import FleetUtil
from rowlock.fluid.incubate.fleet.utils.hdfs import HDFSClient
from rowlock.strategies.errors import InvalidState, InvalidValue, MissingFile, NotInitialized

HADOOP = """#!/bin/sh
# a file system in the folder ROOT, of which Hadoop's options are known that are used here
shift; root=ROOT; option=$1; shift
case "$option" in -D*) option=$1; shift;; esac
case "$option" in
  -test) test $1 $root/$2;;
  -cat) cat $root/$1;;
  -ls) if [ "$1" = -R ]; then shift; else echo "Found items"; fi
    for f in $root/$1/*; do echo "-rw-r--r-- 1 u g 7 2020-01-01 10:00 $1/$(basename $f)"; done;;
  -mkdir) mkdir -p $root/$2;;
  -rm) rm -r $root/$2;;
  -mv) mv $root/$1 $root/$2;;
  -put) if [ "$1" = -f ]; then shift; fi; cp -r $1 $root/$2;;
  -get) cp -r $root/$1 $2 || exit 1;;
esac
"""


def test_a_local_file_system(tmp_path: Path) -> None:
    fs = LocalFS()
    folder = str(tmp_path / "a" / "b")
    fs.mkdir(folder)
    (tmp_path / "a" / "file").write_text("x")
    assert fs.stat(folder) and not fs.need_upload_download()
    assert fs.ls_dir(str(tmp_path / "a")) == ["b", "file"]
    assert fs.list_dirs(str(tmp_path / "a")) == ["b"]
    fs.upload(str(tmp_path / "a"), str(tmp_path / "copy"))
    fs.mv(str(tmp_path / "copy"), str(tmp_path / "moved"))
    fs.rm(str(tmp_path / "moved" / "file"))
    fs.rmr(str(tmp_path / "moved"))
    fs.delete(folder)
    fs.delete(folder)
    assert fs.ls_dir(str(tmp_path)) == ["a"] and fs.ls_dir(folder) == []
    for call in (lambda: fs.rm(folder), lambda: fs.mv(folder, "x"), lambda: fs.upload(folder, "x")):
        with pytest.raises(MissingFile, match="is not there"):
            call()
    with pytest.raises(InvalidValue, match="is a file"):
        fs.mkdir(str(tmp_path / "a" / "file"))


@pytest.fixture
def hdfs(tmp_path: Path) -> Any:
    command = tmp_path / "hadoop" / "bin" / "hadoop"
    command.parent.mkdir(parents=True)
    (tmp_path / "root").mkdir()
    command.write_text(HADOOP.replace("ROOT", str(tmp_path / "root")))
    command.chmod(0o755)
    return HDFSClient(str(tmp_path / "hadoop"), {"fs.default.name": "hdfs://10.0.0.1:9000"})


def test_hadoops_file_system(hdfs: Any, tmp_path: Path) -> None:
    hdfs.makedirs("model")
    (tmp_path / "w").write_text("weights")
    hdfs.upload("model/w", str(tmp_path / "w"))
    assert hdfs.is_exist("model/w") and hdfs.is_file("model/w") and hdfs.is_dir("model")
    assert hdfs.cat("model/w") == "weights"
    assert hdfs.ls("model") == ["model/w"] and hdfs.lsr("model") == ["model/w"]
    assert hdfs.lsr("model", excludes=["/w"]) == []
    hdfs.rename("model/w", "model/v")
    hdfs.download("model/v", str(tmp_path / "v"))
    assert (tmp_path / "v").read_text() == "weights"
    hdfs.delete("model")
    hdfs.delete("model")
    assert not hdfs.is_exist("model")
    with pytest.raises(InvalidState, match=r"hadoop fs -cat none ended with status 1: .*none"):
        hdfs.cat("none")
    with pytest.raises(MissingFile, match="is not there"):
        hdfs.upload("x", str(tmp_path / "none"))
    with pytest.raises(MissingFile, match="hadoop_home is the folder"):
        HDFSClient(str(tmp_path))
    assert HDFSClient.split_files(["a", "b", "c"], 1, 2) == ["b"]
    with pytest.raises(InvalidValue, match="from 0 to 1"):
        HDFSClient.split_files(["a"], 2, 2)


def test_workers_count_an_auc(capsys: pytest.CaptureFixture[str]) -> None:
    fleet.init(role_maker.UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:1"]))
    util, scope = FleetUtil("collective"), fluid.Scope()
    scope.var("positive").get_tensor().set(np.array([[0, 1, 3]]))
    scope.var("negative").get_tensor().set(np.array([[2, 1, 1]]))
    auc = util.get_global_auc(scope, "positive", "negative")
    pairs = [(p, n) for p in (1, 2, 2, 2) for n in (0, 0, 1, 2)]
    assert auc == pytest.approx(np.mean([(p > n) + 0.5 * (p == n) for p, n in pairs]))
    util.print_global_auc(scope, "positive", "negative", "day 1:")
    assert capsys.readouterr().out == f"day 1: global auc = {auc}\n"
    util.set_zero("positive", scope)
    assert util.get_global_auc(scope, "positive", "negative") == 0.5
    with pytest.raises(NotInitialized, match="holds no value"):
        util.set_zero("other", scope)
