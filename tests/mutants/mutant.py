"""A rule of the protocol, and how to switch it off for as long as a test likes.

A mutant changes the shipped code where it is used: by name, so that one whose target is gone
fails instead of changing nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

_OURS = ("stado", "tests.")
_ITSELF = "tests.mutants"
"""Mutants keep the originals that they are made from."""


@dataclass(frozen=True)
class Mutant:
    """The product without one of its rules."""

    name: str
    rule: str
    """What holds as long as the mutant is not switched on, in one sentence."""

    scenario: str
    """A test that fails without the rule: `tests/…/test_….py::test_…`."""

    switch_off: Callable[[pytest.MonkeyPatch], None]
    arguments: Mapping[str, object] = field(default_factory=dict)
    """What the scenario takes besides fixtures."""

    fails_with: type[BaseException] = AssertionError
    """How the scenario ends without the rule."""


def replaced(owner: Any, name: str, by: object) -> Callable[[pytest.MonkeyPatch], None]:
    """A switch that replaces an attribute of one module or class, and nothing elsewhere."""

    def switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owner, name, by, raising=True)

    return switch_off


def replaced_everywhere(
    module: ModuleType, name: str, by: object
) -> Callable[[pytest.MonkeyPatch], None]:
    """A switch that replaces a function wherever a module of ours has imported it by name."""

    def switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(module, name)
        for user in _modules():
            for known, value in list(vars(user).items()):
                if value is original:
                    monkeypatch.setattr(user, known, by, raising=True)

    return switch_off


def _modules() -> list[ModuleType]:
    """Those that are loaded, of the product and of its tests."""
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith(_OURS) and not name.startswith(_ITSELF)
    ]


def all_of(*switches: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    def switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
        for switch in switches:
            switch(monkeypatch)

    return switch_off
