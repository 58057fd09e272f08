"""Trains a network to tell spirals apart, and may be killed at any moment: it goes on from its last
checkpoint, and ends with the very same model.

Usage: python train.py [--rounds 1500] [--hidden 192] [--checkpoint-every 25] [--pause 0]

Writes model.npz into the folder that STADO_OUTPUT_DIR names (or the present one), and prints its
SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads: sums by several threads differ in their bits

import numpy as np  # noqa: E402

import stado  # noqa: E402

Arrays = dict[str, Any]

SEED = 7
SPIRALS = 3
POINTS = 1500
BATCH = 64
LEARNING_RATE = 0.01
MOMENTUM = 0.9
STATE = "state.npz"


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    points, labels = spirals(seed=SEED)
    state, done = begin(options.hidden)
    if done > options.rounds:
        stado.refuse(
            f"it is trained for {done} rounds already, and {options.rounds} were asked for"
        )
    print(f"from round {done + 1} of {options.rounds}", flush=True)
    for number in range(done + 1, options.rounds + 1):
        loss = train_round(state, points, labels, number)
        time.sleep(options.pause)
        due = number % options.checkpoint_every == 0 or number == options.rounds
        report(state, number, loss, options.rounds, save=due)
    finish(state, options.rounds)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--rounds", type=int, default=1500, help="looks at all points")
    parser.add_argument("--hidden", type=int, default=192, help="units in each hidden layer")
    parser.add_argument("--checkpoint-every", type=int, default=25, metavar="ROUNDS")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each round")
    return parser.parse_args(arguments)


def begin(hidden: int) -> tuple[Arrays, int]:
    """Weights and their momentum, and how many rounds they have behind them."""
    found = stado.latest_checkpoint()
    if found is None:
        return fresh_state(hidden), 0
    with np.load(found.folder / STATE) as saved:
        return dict(saved), found.step


def fresh_state(hidden: int) -> Arrays:
    random = np.random.default_rng(SEED)
    sizes = [2, hidden, hidden, SPIRALS]
    state: Arrays = {}
    for layer, (before, after) in enumerate(pairwise(sizes)):
        weights = random.normal(0, np.sqrt(2 / before), (before, after))
        state |= {f"weights-{layer}": weights, f"bias-{layer}": np.zeros(after)}
    return state | {f"moved-{name}": np.zeros_like(values) for name, values in state.items()}


def spirals(*, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of interleaved arms, with some noise, and which arm each belongs to."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(SPIRALS), POINTS)
    radius = np.tile(np.linspace(0.05, 1, POINTS), SPIRALS)
    angle = radius * 20 + labels * 2 * np.pi / SPIRALS + random.normal(0, 0.2, len(labels))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), labels


def train_round(state: Arrays, points: np.ndarray, labels: np.ndarray, number: int) -> float:
    """One look at all points, in an order that the round's number alone decides, so that a round
    is the same whoever did those before. The mean loss."""
    order = np.random.default_rng([SEED, number]).permutation(len(labels))
    losses = []
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        losses.append(train_batch(state, points[chosen], labels[chosen]))
    return float(np.mean(losses))


def train_batch(state: Arrays, points: np.ndarray, labels: np.ndarray) -> float:
    activations = forward(state, points)
    shares = activations[-1]
    rows = np.arange(len(labels))
    loss = -np.log(shares[rows, labels] + 1e-12).mean()
    slope = shares.copy()
    slope[rows, labels] -= 1
    slope /= len(labels)
    for layer in (2, 1, 0):
        below = activations[layer]
        steps = {f"weights-{layer}": below.T @ slope, f"bias-{layer}": slope.sum(axis=0)}
        slope = (slope @ state[f"weights-{layer}"].T) * (below > 0)
        for name, step in steps.items():
            moved = MOMENTUM * state[f"moved-{name}"] - LEARNING_RATE * step
            state[f"moved-{name}"] = moved
            state[name] = state[name] + moved
    return float(loss)


def forward(state: Arrays, points: np.ndarray) -> list[np.ndarray]:
    """What each layer says, the input first; the last one are shares of the arms."""
    activations = [points]
    for layer in (0, 1, 2):
        sums = activations[-1] @ state[f"weights-{layer}"] + state[f"bias-{layer}"]
        activations.append(np.maximum(sums, 0) if layer < 2 else softmax(sums))
    return activations


def softmax(sums: np.ndarray) -> np.ndarray:
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def accuracy(state: Arrays) -> float:
    """Of points that the training has not seen."""
    points, labels = spirals(seed=SEED + 1)
    return float((forward(state, points)[-1].argmax(axis=1) == labels).mean())


def report(state: Arrays, number: int, loss: float, rounds: int, *, save: bool) -> None:
    stado.progress(number / rounds, f"round {number} of {rounds}")
    stado.metrics(number, loss=loss)
    if not save:
        return
    right = accuracy(state)
    with stado.checkpoint(step=number, metric="accuracy", value=right) as folder:
        np.savez(folder / STATE, **state)
    print(f"round {number}: loss {loss:.6f}, accuracy {right:.4f}", flush=True)


def finish(state: Arrays, rounds: int) -> None:
    model = Path(os.environ.get("STADO_OUTPUT_DIR", "."), "model.npz")
    np.savez(model, **{name: state[name] for name in state if not name.startswith("moved-")})
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    right = accuracy(state)
    stado.result({"rounds": rounds, "accuracy": right, "model_sha256": digest})
    print(f"model.npz: accuracy {right:.4f}, sha256 {digest}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
