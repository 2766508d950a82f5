"""File systems for checkpoints and data: this host's, and Hadoop's through its command."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from ...strategies.errors import InvalidState, InvalidType, InvalidValue, MissingFile

_SHOWN = 2000


class LocalFS:
    """Files that this host sees."""

    def list_dirs(self, fs_path: str) -> list[str]:
        """Return the names of the folders in a folder; none if it is not there."""
        return [n for n in self.ls_dir(fs_path) if os.path.isdir(os.path.join(fs_path, n))]

    def ls_dir(self, fs_path: str) -> list[str]:
        """Return the names in a folder, in order; none if it is not there."""
        return sorted(os.listdir(fs_path)) if os.path.isdir(fs_path) else []

    def stat(self, fs_path: str) -> bool:
        """Tell whether a path is there."""
        return os.path.exists(fs_path)

    def mkdir(self, fs_path: str) -> None:
        """Make a folder, and those around it, unless it is there."""
        if os.path.isfile(fs_path):
            raise InvalidValue(f"mkdir: {fs_path!r} is a file.")
        os.makedirs(fs_path, exist_ok=True)

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Give a path another name."""
        self._check(fs_src_path, "mv")
        os.rename(fs_src_path, fs_dst_path)

    def rmr(self, fs_path: str) -> None:
        """Delete a folder with all that is in it."""
        self._check(fs_path, "rmr")
        shutil.rmtree(fs_path)

    def rm(self, fs_path: str) -> None:
        """Delete a file."""
        self._check(fs_path, "rm")
        os.remove(fs_path)

    def delete(self, fs_path: str) -> None:
        """Delete a file or a folder, if it is there."""
        if os.path.isdir(fs_path):
            shutil.rmtree(fs_path)
        elif os.path.exists(fs_path):
            os.remove(fs_path)

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a file or folder to another path."""
        self._check(local_path, "upload")
        if os.path.isdir(local_path):
            shutil.copytree(local_path, fs_path)
        else:
            shutil.copy2(local_path, fs_path)

    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a file or folder to another path."""
        self.upload(fs_path, local_path)

    def need_upload_download(self) -> bool:
        """Return False: its paths are this host's."""
        return False

    @staticmethod
    def _check(path: str, what: str) -> None:
        if not os.path.exists(path):
            raise MissingFile(f"{what}: {path!r} is not there.")


class HDFSClient:
    """Hadoop's file system, through ``hadoop fs`` of ``hadoop_home``/bin.

    ``configs`` become ``-D`` options, such as ``{"fs.default.name": ..., "hadoop.job.ugi": ...}``.

    Raises:
        MissingFile: there is no such command.
    """

    def __init__(self, hadoop_home: str, configs: Mapping[str, str] | None = None) -> None:
        if not isinstance(hadoop_home, str):
            raise InvalidType(f"hadoop_home must be a path, got {hadoop_home!r}.")
        command = os.path.join(hadoop_home, "bin", "hadoop")
        if not os.path.isfile(command):
            raise MissingFile(
                f"HDFSClient runs {command!r}, which is not there: hadoop_home is the folder of a Hadoop "
                f"installation on this host."
            )
        options = [f"-D{name}={value}" for name, value in (configs or {}).items()]
        self._command = [command, "fs", *options]

    def is_exist(self, hdfs_path: str) -> bool:
        """Tell whether a path is there."""
        return self._asks("-e", hdfs_path)

    def is_dir(self, hdfs_path: str) -> bool:
        """Tell whether a path is a folder."""
        return self._asks("-d", hdfs_path)

    def is_file(self, hdfs_path: str) -> bool:
        """Tell whether a path is there, and no folder."""
        return self.is_exist(hdfs_path) and not self.is_dir(hdfs_path)

    def cat(self, hdfs_path: str) -> str:
        """Return a file's text."""
        return self._run("-cat", hdfs_path)

    def ls(self, hdfs_path: str) -> list[str]:
        """Return the paths in a folder."""
        return _paths(self._run("-ls", hdfs_path))

    def lsr(self, hdfs_path: str, excludes: Sequence[str] = ()) -> list[str]:
        """Return the paths of the files in a folder and below, but those that contain one of ``excludes``."""
        lines = self._run("-ls", "-R", hdfs_path).splitlines()
        files = _paths("\n".join(line for line in lines if not line.startswith("d")))
        return [file for file in files if not any(part in file for part in excludes)]

    def makedirs(self, hdfs_path: str) -> None:
        """Make a folder, and those around it."""
        self._run("-mkdir", "-p", hdfs_path)

    def delete(self, hdfs_path: str) -> None:
        """Delete a file or folder, if it is there."""
        if self.is_exist(hdfs_path):
            self._run("-rm", "-r", hdfs_path)

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> None:
        """Give a path another name; with ``overwrite`` also one that is taken."""
        if overwrite:
            self.delete(hdfs_dst_path)
        self._run("-mv", hdfs_src_path, hdfs_dst_path)

    def upload(self, hdfs_path: str, local_path: str, overwrite: bool = False) -> None:
        """Copy a file or folder of this host there."""
        if not os.path.exists(local_path):
            raise MissingFile(f"upload: {local_path!r} is not there.")
        self._run("-put", *["-f"] * overwrite, local_path, hdfs_path)

    def download(self, hdfs_path: str, local_path: str, overwrite: bool = False) -> None:
        """Copy a file or folder to this host."""
        if overwrite:
            LocalFS().delete(local_path)
        self._run("-get", hdfs_path, local_path)

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Make a folder of this host, and those around it."""
        LocalFS().mkdir(local_path)

    @staticmethod
    def split_files(files: Sequence[str], trainer_id: int, trainers: int) -> list[str]:
        """Return every ``trainers``-th file, from number ``trainer_id`` on."""
        if not 0 <= trainer_id < trainers:
            raise InvalidValue(f"trainer_id must be from 0 to {trainers - 1}, got {trainer_id}.")
        return list(files[trainer_id::trainers])

    def _asks(self, option: str, path: str) -> bool:
        return self._status("-test", option, path).returncode == 0

    def _status(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._command, *arguments], capture_output=True, text=True)

    def _run(self, *arguments: str) -> str:
        answer = self._status(*arguments)
        if answer.returncode:
            raise InvalidState(
                f"hadoop fs {' '.join(arguments)} ended with status {answer.returncode}: "
                f"{answer.stderr[-_SHOWN:].strip() or '(nothing on stderr)'}"
            )
        return answer.stdout


def _paths(listing: str) -> list[str]:
    """Return the paths of the lines of ``hadoop fs -ls``, whose first seven words tell about them."""
    lines = (line.split(None, 7) for line in listing.splitlines())
    return [words[7] for words in lines if len(words) == 8]
