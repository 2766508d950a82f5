"""Make sequence_programs.json with Paddle 1.8.5: the numbers that programs over sequences print.

Run with a Python 3.7 that has paddlepaddle==1.8.5 and protobuf<3.20:  python generate_sequence_programs.py

sequence_programs.json  {command: [numbers]}; commands are names in examples/programs, with arguments.
"""

import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "..", "..", "examples", "programs")
NAMES = (
    "sentiment_lstm",
    "sentiment_rnn",
    "crf_tagger",
    "session_gru",
    "session_gru --loss bpr",
    "text_recogniser",
    "transformer",
    "translator_cells",
)
COMMANDS = [name + places for name in NAMES for places in ("", " --places 2")]
COMMANDS.append("sentiment_rnn --lazy")


def main():
    record = {}
    for command in COMMANDS:
        name, *arguments = command.split()
        script = os.path.join(PROGRAMS, name + ".py")
        printed = subprocess.check_output([sys.executable, script, *arguments]).decode()
        record[command] = [float(number) for number in re.findall(r"-?\d+\.?\d*", printed)]
        print(command, record[command][-9:])
    with open(os.path.join(HERE, "sequence_programs.json"), "w") as stream:
        lines = ['"%s": %s' % (command, numbers) for command, numbers in record.items()]
        stream.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
