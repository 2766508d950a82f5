"""Which gang a contract test runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rowlock


@pytest.fixture(params=["threads", "ray"])
def gang(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each kind of gang in turn."""
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    with rowlock.cluster(launcher=request.param):
        yield request.param


@pytest.fixture
def threads() -> Iterator[None]:
    """A gang of threads, for what does not depend on the kind."""
    with rowlock.cluster(launcher="threads"):
        yield
