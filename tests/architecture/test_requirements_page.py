"""Promises, tests and the pages that name them belong together: none stands alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source import REPOSITORY

_NUMBER = re.compile(r"\b(?:R\d{1,3}|A\d{2}|T\d{1,2})\b")
_ROW = re.compile(r"^\| (R\d{1,3}|A\d{2}|T\d{1,2}) \|(.*)\|$", re.MULTILINE)
_FILE = re.compile(r"`(tests/[\w/]+\.py)`")
_TEST = re.compile(r"(tests/[\w/]+\.py::\w+)")


def page(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def rows_of(name: str) -> dict[str, list[str]]:
    """Number to the other cells of its row."""
    return {
        found[1]: [cell.strip() for cell in found[2].split("|")]
        for found in _ROW.finditer(page(name))
    }


PROMISES = rows_of("docs/requirements.md")
SHOWN = rows_of("tests/README.md")


@cache
def known() -> dict[str, frozenset[str]]:
    """Each test as `path::name`, and the numbers that its docstring names."""
    return {
        f"{path.relative_to(REPOSITORY).as_posix()}::{test.name}": numbers_of(test)
        for path in sorted((REPOSITORY / "tests").rglob("test_*.py"))
        for test in functions_in(path)
    }


def functions_in(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def numbers_of(test: ast.FunctionDef) -> frozenset[str]:
    return frozenset(_NUMBER.findall(ast.get_docstring(test) or ""))


@pytest.mark.parametrize("number", PROMISES)
def test_each_promise_is_named_by_a_test(number: str) -> None:
    assert any(number in numbers for numbers in known().values()), f"no test shows {number}"


def test_each_number_that_a_test_names_is_explained() -> None:
    unexplained = {
        test: sorted(numbers - PROMISES.keys())
        for test, numbers in known().items()
        if numbers - PROMISES.keys()
    }
    assert not unexplained, "docs/requirements.md does not explain these"


def test_no_promise_has_two_rows() -> None:
    for name in ("docs/requirements.md", "tests/README.md"):
        numbers = [found[1] for found in _ROW.finditer(page(name))]
        assert len(numbers) == len(set(numbers)), name


def test_both_pages_have_the_same_numbers() -> None:
    assert SHOWN.keys() == PROMISES.keys()


def test_each_test_that_the_page_of_tests_names_exists() -> None:
    named = set(_TEST.findall(page("tests/README.md")))
    assert not named - known().keys()


@pytest.mark.parametrize("number", SHOWN)
def test_each_test_of_a_row_names_the_number_of_the_row(number: str) -> None:
    silent = [test for test in _TEST.findall(SHOWN[number][-1]) if number not in known()[test]]
    assert not silent


@pytest.mark.parametrize("number", PROMISES)
def test_each_file_of_a_promise_holds_a_test_that_names_it(number: str) -> None:
    for file in _FILE.findall(PROMISES[number][-1]):
        assert any(
            number in numbers for test, numbers in known().items() if test.startswith(f"{file}::")
        ), f"{file} shows nothing of {number}"


@pytest.mark.parametrize("number", PROMISES)
def test_each_promise_is_told_and_says_where_it_is_shown(number: str) -> None:
    told, shown = PROMISES[number]
    assert told
    assert _FILE.search(shown), f"docs/requirements.md names no test of {number}"
    assert _TEST.search(SHOWN[number][-1]), f"tests/README.md names no test of {number}"
