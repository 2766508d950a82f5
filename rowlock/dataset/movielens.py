"""``paddle.dataset.movielens``: a million ratings of films by users."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..names import publish_definitions
from ..strategies.errors import DamagedFile
from . import common

URL = "https://dataset.bj.bcebos.com/movielens%2Fml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"
age_table = [1, 18, 25, 35, 45, 50, 56]
_TITLE = re.compile(r"^(.*)\((\d+)\)$")  # and the year


class MovieInfo:
    """A film: ``index``, ``categories`` and ``title``."""

    def __init__(self, index: Any, categories: list[str], title: str) -> None:
        self.index = int(index)
        self.categories = categories
        self.title = title

    def value(self) -> list[Any]:
        """Return the film's part of a sample: its number, those of its categories, those of its words."""
        about = _about()
        return [
            self.index,
            [about.categories[name] for name in self.categories],
            [about.words[word.lower()] for word in self.title.split()],
        ]

    def __repr__(self) -> str:
        return f"<MovieInfo id({self.index}), title({self.title}), categories({self.categories})>"


class UserInfo:
    """A user: ``index``, ``is_male``, ``age`` (a position in ``age_table``) and ``job_id``."""

    def __init__(self, index: Any, gender: str, age: Any, job_id: Any) -> None:
        self.index = int(index)
        self.is_male = gender == "M"
        self.age = age_table.index(int(age))
        self.job_id = int(job_id)

    def value(self) -> list[int]:
        """Return the user's part of a sample: number, gender (0 is male), age, job."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]

    def __repr__(self) -> str:
        gender = "M" if self.is_male else "F"
        return (
            f"<UserInfo id({self.index}), gender({gender}), age({age_table[self.age]}), "
            f"job({self.job_id})>"
        )


class _About(NamedTuple):
    """Movies, users and categories, beside the ratings."""

    films: dict[int, MovieInfo]
    users: dict[int, UserInfo]
    words: dict[str, int]
    categories: dict[str, int]


def train(rand_seed: int = 0, test_ratio: float = 0.1) -> common.Samples:
    """Return a reader of user (4 values), film (3 values) and ``[rating]``, from -3 to 5."""
    return lambda: _ratings(rand_seed, test_ratio, False)


def test(rand_seed: int = 0, test_ratio: float = 0.1) -> common.Samples:
    """Return a reader of the ratings that :func:`train` leaves out, drawn by ``rand_seed``."""
    return lambda: _ratings(rand_seed, test_ratio, True)


def get_movie_title_dict() -> dict[str, int]:
    """Return the numbers of the words in titles, in alphabetical order."""
    return _about().words


def movie_categories() -> dict[str, int]:
    """Return the numbers of categories, in alphabetical order."""
    return _about().categories


def movie_info() -> dict[int, MovieInfo]:
    """Return films by number."""
    return _about().films


def user_info() -> dict[int, UserInfo]:
    """Return users by number."""
    return _about().users


def max_movie_id() -> int:
    """Return the highest number of a film."""
    return max(_about().films)


def max_user_id() -> int:
    """Return the highest number of a user."""
    return max(_about().users)


def max_job_id() -> int:
    """Return the highest number of a job."""
    return max(user.job_id for user in _about().users.values())


def fetch() -> None:
    """Download the data."""
    _path()


def _path() -> str:
    return common.download(URL, "movielens", MD5)


def _lines(path: str, name: str, fields: int) -> Iterator[list[str]]:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"ml-1m/{name}") as file:
            for line in file:
                parts = line.decode("latin1").strip().split("::")
                if len(parts) != fields:
                    raise DamagedFile(f"a line of ml-1m/{name} in {path} has {len(parts)} fields.")
                yield parts
    except (zipfile.BadZipFile, KeyError) as error:
        raise DamagedFile(f"{path} is no whole zip file with ml-1m/{name}: {error}.") from None


def _about() -> _About:
    return _read(_path())


@cache
def _read(path: str) -> _About:
    films = {}
    for number, titled, kinds in _lines(path, "movies.dat", 3):
        match = _TITLE.match(titled)
        title = match.group(1) if match else titled
        films[int(number)] = MovieInfo(number, kinds.split("|"), title)
    users = {
        int(number): UserInfo(number, gender, age, job)
        for number, gender, age, job, _ in _lines(path, "users.dat", 5)
    }
    words = {word.lower() for film in films.values() for word in film.title.split()}
    categories = {name for film in films.values() for name in film.categories}
    return _About(films, users, _numbered(words), _numbered(categories))


def _numbered(names: set[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}


def _ratings(seed: int, test_ratio: float, is_test: bool) -> Iterator[list[Any]]:
    about = _about()
    draws = np.random.RandomState(seed)
    for user, film, rating, _ in _lines(_path(), "ratings.dat", 4):
        if (draws.random_sample() < test_ratio) == is_test:
            score = float(rating) * 2 - 5.0
            yield about.users[int(user)].value() + about.films[int(film)].value() + [[score]]


publish_definitions(__name__, "age_table")
