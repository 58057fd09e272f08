"""PROTOCOL.md lists the holes of earlier protocols; each has its scenarios, and each scenario its
hole."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache

import pytest

from tests.architecture.source import REPOSITORY
from tests.architecture.test_protocol_page import rows, section
from tests.architecture.test_requirements_page import functions_in

_NUMBER = re.compile(r"\bH\d{2}\b")
_TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")

HOLES = {
    row[0]: set(_TEST.findall(row[3]))
    for row in rows(section("Holes that must stay closed"))
    if len(row) == 4
}
"""Number to scenarios."""


@cache
def staged() -> dict[str, set[str]]:
    """Number to the tests whose docstrings name it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (REPOSITORY / "tests").rglob("test_*.py"):
        for test in functions_in(path):
            name = f"{path.relative_to(REPOSITORY).as_posix()}::{test.name}"
            for number in _NUMBER.findall(ast.get_docstring(test) or ""):
                found[number].add(name)
    return found


def test_holes_are_numbered_from_1_on() -> None:
    assert list(HOLES) == [f"H{number:02}" for number in range(1, len(HOLES) + 1)]


def test_each_number_that_a_scenario_names_is_a_hole() -> None:
    assert staged().keys() == HOLES.keys()


@pytest.mark.parametrize("number", HOLES)
def test_a_hole_names_its_scenarios_and_they_name_it(number: str) -> None:
    assert HOLES[number] == staged()[number]


def test_each_test_of_the_folder_is_of_a_hole() -> None:
    of_holes = set().union(*HOLES.values())
    for path in sorted((REPOSITORY / "tests" / "holes").glob("test_*.py")):
        for test in functions_in(path):
            assert f"tests/holes/{path.name}::{test.name}" in of_holes
