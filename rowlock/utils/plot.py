"""``paddle.utils.plot``: curves of a training."""

from __future__ import annotations

import os

from ..names import publish_listed
from ..strategies.errors import NotFound, nearest


class Ploter:
    """Draws a curve for each title; ``DISABLE_PLOT=True`` in the environment draws nothing."""

    def __init__(self, *titles: str) -> None:
        self._curves: dict[str, tuple[list[float], list[float]]] = {
            title: ([], []) for title in titles
        }

    def append(self, title: str, step: float, value: float) -> None:
        """Add a point to a curve.

        Raises:
            NotFound: no curve has this title.
        """
        if title not in self._curves:
            raise NotFound(
                f"Ploter has no curve {title!r}, but {', '.join(self._curves)}.{nearest(title, self._curves)}"
            )
        steps, values = self._curves[title]
        steps.append(step)
        values.append(float(value))

    def plot(self, path: str | None = None) -> None:
        """Draw the curves into a file, or (without ``path``) into a notebook or window.

        Raises:
            ImportError: matplotlib is not installed.
        """
        if os.environ.get("DISABLE_PLOT") == "True":
            return
        try:
            from matplotlib import pyplot
        except ImportError:
            raise ImportError(
                "Ploter draws with matplotlib: pip install matplotlib, or set DISABLE_PLOT=True."
            ) from None
        pyplot.clf()
        titles = [title for title, (steps, _) in self._curves.items() if steps]
        for title in titles:
            pyplot.plot(*self._curves[title])
        pyplot.legend(titles, loc="upper left")
        if path is None:
            pyplot.show()
        else:
            pyplot.savefig(path)

    def reset(self) -> None:
        """Forget all points."""
        for steps, values in self._curves.values():
            steps.clear()
            values.clear()


__all__ = ["Ploter"]

publish_listed(__name__)
