"""Trains one classifier on the handwritten digits that scikit-learn ships, and scores it.

Usage: python train.py --model svc --C 10 --gamma 0.001

Writes metrics.json and model.joblib into the folder that STADO_OUTPUT_DIR names.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 20240229
HELD_OUT = 0.3


def _depth(text: str) -> int | None:
    return None if text == "none" else int(text)


@dataclass(frozen=True, slots=True)
class Model:
    """A classifier of scikit-learn, and the hyperparameters that the command line may set."""

    module: str
    name: str
    parameters: Mapping[str, Callable[[str], Any]]
    fixed: Mapping[str, Any]
    scaled: bool = False

    def build(self, values: Mapping[str, Any]) -> Any:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        make = getattr(importlib.import_module(f"sklearn.{self.module}"), self.name)
        classifier = make(**self.fixed, **values)
        return make_pipeline(StandardScaler(), classifier) if self.scaled else classifier


SEEDED: Mapping[str, Any] = {"random_state": SEED}
TREES: Mapping[str, Callable[[str], Any]] = {
    "n_estimators": int,
    "max_depth": _depth,
    "max_features": str,
    "min_samples_leaf": int,
}

MODELS: Mapping[str, Model] = {
    "svc": Model("svm", "SVC", {"C": float, "gamma": float, "kernel": str}, SEEDED),
    "random_forest": Model("ensemble", "RandomForestClassifier", TREES, SEEDED),
    "extra_trees": Model("ensemble", "ExtraTreesClassifier", TREES, SEEDED),
    "gradient_boosting": Model(
        "ensemble",
        "GradientBoostingClassifier",
        {"n_estimators": int, "learning_rate": float, "max_depth": int, "subsample": float},
        SEEDED,
    ),
    "knn": Model(
        "neighbors", "KNeighborsClassifier", {"n_neighbors": int, "weights": str, "p": int}, {}
    ),
    "logistic": Model(
        "linear_model", "LogisticRegression", {"C": float, "max_iter": int}, SEEDED, scaled=True
    ),
    "ridge": Model("linear_model", "RidgeClassifier", {"alpha": float}, SEEDED, scaled=True),
    "mlp": Model(
        "neural_network",
        "MLPClassifier",
        {"hidden": int, "alpha": float, "learning_rate_init": float, "max_iter": int},
        SEEDED,
        scaled=True,
    ),
    "gaussian_nb": Model("naive_bayes", "GaussianNB", {"var_smoothing": float}, {}),
}


def main(arguments: Sequence[str]) -> int:
    name, values = parse(arguments)
    folder = os.environ.get("STADO_OUTPUT_DIR")
    if not folder:
        print(
            "train.py: STADO_OUTPUT_DIR is not set: stado sets it for its jobs; by hand, name a "
            "folder: STADO_OUTPUT_DIR=out python train.py ...",
            file=sys.stderr,
        )
        return 2
    use_one_thread()
    classifier, scores = train(name, values)
    write(Path(folder), classifier, {**scores, "model": name, "params": values})
    print(f"{name} {values}: accuracy {scores['accuracy']:.4f}, f1 {scores['f1_macro']:.4f}")
    return 0


def use_one_thread() -> None:
    """Before numpy loads: the queue runs one training a core, and each would start a thread a
    core."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"


def parse(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The model's name, and those of its hyperparameters that were given."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--model", choices=MODELS, required=True)
    name, rest = first.parse_known_args(arguments)
    parser = argparse.ArgumentParser(
        prog=f"train.py --model {name.model}",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for parameter, kind in MODELS[name.model].parameters.items():
        parser.add_argument(f"--{parameter}", type=kind)
    return name.model, vars(parser.parse_args(rest))


def train(name: str, values: Mapping[str, Any]) -> tuple[Any, dict[str, float]]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import accuracy_score, f1_score

    # A classifier that was given few iterations on purpose need not say so.
    warnings.simplefilter("ignore", ConvergenceWarning)
    train_images, test_images, train_digits, test_digits = split_digits()
    classifier = MODELS[name].build(_as_classifier_wants(values))
    began = time.perf_counter()
    classifier.fit(train_images, train_digits)
    seconds = time.perf_counter() - began
    found = classifier.predict(test_images)
    return classifier, {
        "accuracy": float(accuracy_score(test_digits, found)),
        "f1_macro": float(f1_score(test_digits, found, average="macro")),
        "fit_seconds": round(seconds, 4),
    }


def held_out_digits() -> tuple[Any, Any]:
    """Images that no training sees, and which digits they show."""
    _, images, _, digits = split_digits()
    return images, digits


def split_digits() -> Any:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, digits = load_digits(return_X_y=True)
    return train_test_split(images, digits, test_size=HELD_OUT, random_state=SEED, stratify=digits)


def write(folder: Path, classifier: Any, metrics: Mapping[str, Any]) -> None:
    import joblib

    folder.mkdir(parents=True, exist_ok=True)
    joblib.dump(classifier, folder / "model.joblib", compress=3)
    text = json.dumps(metrics, indent=2, sort_keys=True)
    (folder / "metrics.json").write_text(text + "\n", encoding="utf-8")


def _as_classifier_wants(values: Mapping[str, Any]) -> dict[str, Any]:
    renamed = dict(values)
    if "hidden" in renamed:
        renamed["hidden_layer_sizes"] = (renamed.pop("hidden"),)
    return renamed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
