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
        start = time.perf_counter()
        loss = float(step())
        seconds.append(time.perf_counter() - start)
    return seconds, loss


def serve(about, build, run=timed):
    """Do as told until the end: ``build(model)`` returns a step, ``run(step, count)`` its seconds and loss.

    ``run`` may also return a dict, which is the answer.
    """
    answer, step = Answers(), None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "end":
                break
            if request["do"] == "about":
                answer(about=about())
            elif request["do"] == "build":
                step = None  # let go of the model before
                step = build(request["model"])
                answer(built=request["model"], weights=getattr(step, "weights", None))
            else:
                result = run(step, request["steps"])
                answer(
                    **(
                        result
                        if isinstance(result, dict)
                        else {"seconds": result[0], "loss": result[1]}
                    )
                )
        except Exception as error:
            traceback.print_exc()
            answer(error="{}: {}".format(type(error).__name__, error))
