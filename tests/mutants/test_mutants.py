"""Each scenario bites: it passes with the rule that it is about, and fails without it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from stado.jobs import endings, finding, reaping
from tests.agent.test_agent import Host
from tests.jobs.world import World
from tests.mutants.mutant import Mutant, replaced, replaced_everywhere
from tests.mutants.registry import MUTANTS


def scenario_of(mutant: Mutant) -> Callable[..., None]:
    path, _, name = mutant.scenario.partition("::")
    module = import_module(path.removesuffix(".py").replace("/", "."))
    scenario: Callable[..., None] = getattr(module, name)
    return scenario


def play(mutant: Mutant, folder: Path) -> None:
    folder.mkdir()
    fixtures: dict[str, Callable[[], object]] = {
        "world": World,
        "tmp_path": lambda: folder,
        "host": lambda: Host(folder),
    }
    scenario = scenario_of(mutant)
    wanted = inspect.signature(scenario).parameters.keys() - mutant.arguments.keys()
    scenario(**mutant.arguments, **{name: fixtures[name]() for name in wanted})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_scenario_fails_without_the_rule_that_it_is_about(
    mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(mutant, tmp_path / "with")
    with monkeypatch.context() as patches:
        mutant.switch_off(patches)
        with pytest.raises(mutant.fails_with):
            play(mutant, tmp_path / "without")
    play(mutant, tmp_path / "again")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_called_as_what_it_replaces(mutant: Mutant) -> None:
    """Else its scenario may fail for the call alone, whatever becomes of the rule."""

    class Bound:
        @staticmethod
        def setattr(owner: object, name: str, by: object, raising: bool) -> None:
            original = getattr(owner, name)
            if inspect.isfunction(by) and inspect.isfunction(original):
                bind_as(inspect.signature(original), by)

    mutant.switch_off(cast(pytest.MonkeyPatch, Bound))


def bind_as(called: inspect.Signature, by: Callable[..., object]) -> None:
    """Raises `TypeError` where `by` does not take all that such calls may give it."""
    parameters = called.parameters.values()
    named = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    inspect.signature(by).bind(*(None for one in parameters if one.kind in kinds), **named)


def test_a_mutant_that_takes_less_is_told() -> None:
    def rule(repo: str, *, saved_at: int = 0) -> None:
        """What the product does."""

    def less(repo: str) -> None:
        """What takes its place."""

    with pytest.raises(TypeError, match="saved_at"):
        bind_as(inspect.signature(rule), less)


def test_names_of_mutants_are_their_own() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))


def test_a_mutant_whose_target_is_gone_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for switch in (
        replaced(SimpleNamespace(), "gone", None),
        replaced_everywhere(ModuleType("empty"), "gone", None),
    ):
        with pytest.raises(AttributeError):
            switch(monkeypatch)


def test_a_function_is_replaced_wherever_it_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def bindings() -> set[object]:
        return {vars(module)["settle"] for module in (endings, finding, reaping)}

    before = bindings()
    with monkeypatch.context() as patches:
        replaced_everywhere(endings, "settle", max)(patches)
        assert bindings() == {max}
    assert bindings() == before == {endings.settle}
