"""Scores what export.py wrote on the digits that the training has not seen.

Usage: python evaluate.py [--at-least 0.9]

A step after `export`: it finds weights.json in the folder `export` of STADO_INPUT_DIR. The accuracy
is its result; below --at-least it ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from train import held_out_digits


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="evaluate.py")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="ACCURACY")
    options = parser.parse_args(arguments)
    found = accuracy(Path(os.environ["STADO_INPUT_DIR"]) / "export" / "weights.json")
    result = Path(os.environ["STADO_OUTPUT_DIR"]) / "result.json"
    result.write_text(json.dumps({"accuracy": found}), encoding="utf-8")
    print(f"accuracy {found:.4f}")
    return 0 if found >= options.at_least else 1


def accuracy(weights: Path) -> float:
    import numpy as np

    numbers = json.loads(weights.read_text(encoding="utf-8"))
    images, digits = held_out_digits()
    scores = images @ np.array(numbers["weights"]).T + np.array(numbers["offsets"])
    return float(np.mean(scores.argmax(axis=1) == digits))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
