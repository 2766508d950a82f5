"""Train a small conv net on handwritten digits, on two replicas, and test it while it trains.

Run ``rowlock demo``, or ``python examples/digits.py``. The pictures and graphs go to ``runs/demo``.
"""

from __future__ import annotations

from rowlock.demo import main

if __name__ == "__main__":
    main()
