"""Writes what a linear training found as plain numbers, which nobody needs scikit-learn to use.

Usage: python export.py [--to FOLDER]

A step after `train.py --model logistic` or `ridge`: it finds model.joblib in the folder `root` of
STADO_INPUT_DIR, and writes weights.json into the folder that STADO_OUTPUT_DIR names. With --to it
is copied into a folder of the host too, which has to be there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="export.py")
    parser.add_argument("--to", type=Path, default=None, help="a folder that is there")
    options = parser.parse_args(arguments)
    if options.to is not None and not options.to.is_dir():
        print(f"export.py: there is no folder {options.to}", file=sys.stderr)
        return 1
    model = Path(os.environ["STADO_INPUT_DIR"]) / "root" / "model.joblib"
    weights = Path(os.environ["STADO_OUTPUT_DIR"]) / "weights.json"
    weights.write_text(json.dumps(numbers_of(model)), encoding="utf-8")
    if options.to is not None:
        shutil.copy2(weights, options.to)
    print(f"weights.json: {weights.stat().st_size} bytes")
    return 0


def numbers_of(model: Path) -> dict[str, Any]:
    """The digit of an image x is the row in which `weights @ x + offsets` is largest. The scaling
    of the pixels, which the training did first, is part of these numbers."""
    import joblib

    scaler, linear = (step for _, step in joblib.load(model).steps)
    weights = linear.coef_ / scaler.scale_
    offsets = linear.intercept_ - weights @ scaler.mean_
    return {"weights": weights.tolist(), "offsets": offsets.tolist()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
