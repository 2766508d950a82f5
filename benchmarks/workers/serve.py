"""What every contender does: read commands from stdin, one JSON line each, and answer in one on stdout.

``{"do": "build", "model": name}`` makes a model ready and answers with how many weights it trains, where the
step's ``weights`` tells, ``{"do": "run", "steps": k}`` answers with the seconds
that each of k steps took from its call to its own loss, ``{"do": "about"}`` with versions, and
``{"do": "end"}`` ends. Python 3.7 runs this, too.
"""

import json
import os
import sys
import time
import traceback


class Answers:
    """Where answers go; whatever else the process prints goes to stderr."""

    def __init__(self):
        self.file = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def __call__(self, **answer):
        """Send one answer."""
        self.file.write(json.dumps(answer) + "\n")
        self.file.flush()


def timed(step, count):
    """Return the seconds that each of ``count`` calls took, and what the last one returned."""
    seconds, loss = [], float("nan")
    for _ in range(count):
        started = time.perf_counter()
        loss = float(step())
        seconds.append(time.perf_counter() - started)
    return seconds, loss


def serve(about, build, run=timed):
    """Do as told until the end: ``build(model)`` returns a step, ``run(step, count)`` its seconds and loss.

    ``run`` may also return a dict, which is the answer.
    """
    answer, step = Answers(), None
    for line in sys.stdin:
        told = json.loads(line)
        try:
            if told["do"] == "end":
                break
            if told["do"] == "about":
                answer(about=about())
            elif told["do"] == "build":
                step = None  # let go of the model before
                step = build(told["model"])
                answer(built=told["model"], weights=getattr(step, "weights", None))
            else:
                found = run(step, told["steps"])
                answer(
                    **(
                        found
                        if isinstance(found, dict)
                        else {"seconds": found[0], "loss": found[1]}
                    )
                )
        except Exception as error:
            traceback.print_exc()
            answer(error="{}: {}".format(type(error).__name__, error))
