"""What it means for a gang that its replicas have different libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...strategies.log import log
from ..kernels.back_ends import ALL_LIBRARIES
from ..kernels.capabilities import common

CURE = (
    "Install the same versions on all hosts, and let replicas run on processors of one kind "
    "(ClusterConfig.nodes, node_labels)."
)


def warn_of_differences(
    reports: Sequence[Mapping[str, str]], where: Sequence[Mapping[str, Any]]
) -> None:
    """Warn of libraries that go unused as versions differ, and of NumPy, whose last bits may differ.

    ``reports``: by rank, versions by library; ``where``: by rank, the replica's host, if it is another.
    """
    alike, texts = common(reports), []
    for name in sorted({name for report in reports for name in report} & {"numpy", *ALL_LIBRARIES}):
        if name in alike:
            continue
        places: dict[str, list[str]] = {}
        for rank, report in enumerate(reports):
            place = f"{rank} on {where[rank].get('host', 'this host')}"
            places.setdefault(report.get(name, "missing"), []).append(place)
        listed = "; ".join(f"{v} (replica {', '.join(ranks)})" for v, ranks in places.items())
        effect = "can differ in its last bits" if name == "numpy" else "is not used"
        texts.append(f"{name} {effect}: {listed}.")
    if texts:
        log.warning("Replicas differ in their libraries. %s %s", " ".join(texts), CURE)


def deviations(versions: Mapping[str, str], agreed: Mapping[str, str]) -> str:
    """Return how a replica's versions deviate from those that a gang agreed on; empty if they do not."""
    return "; ".join(
        f"{name} is {versions.get(name, 'missing')}, not {version}"
        for name, version in agreed.items()
        if versions.get(name) != version
    )
