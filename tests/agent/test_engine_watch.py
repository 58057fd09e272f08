"""What an agent says of its container engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from stado.errors import EngineFailed
from stado.ports import Engine
from stado_agent.engine_watch import EngineWatch
from tests.jobs.world import World


class Answers:
    """An engine that gives these answers, one each time: a name, or why there is none."""

    def __init__(self, *answers: tuple[str | None, str]) -> None:
        self._answers = iter(answers)

    def facts(self) -> SimpleNamespace:
        name, why = next(self._answers)
        if name is None:
            raise EngineFailed(why)
        return SimpleNamespace(name=name)


def levels(caplog: pytest.LogCaptureFixture, *answers: tuple[str | None, str]) -> list[str]:
    caplog.set_level("INFO")
    watch = EngineWatch(World().clock, cast(Engine, Answers(*answers)))
    for _ in answers:
        watch.look_again()
    return [record.levelname for record in caplog.records]


def test_an_engine_that_never_answered_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Most hosts have none, and are to run no images."""
    assert levels(caplog, (None, "no daemon"), (None, "no daemon")) == ["INFO"]
    assert "event=no_engine" in caplog.text


def test_one_that_fell_silent_is_whatever_it_says_then(caplog: pytest.LogCaptureFixture) -> None:
    silent = (None, "no daemon"), (None, "no answer in time")
    assert levels(caplog, ("docker 27", ""), *silent) == ["WARNING", "WARNING"]
