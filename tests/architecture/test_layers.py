"""The product keeps the rules, and each rule catches what breaks it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from textwrap import dedent

import pytest

from tests.architecture.rules import (
    ENTRY_POINTS,
    FOREIGN_PACKAGES,
    bare_excepts,
    environment_reads_outside_entry_points,
    foreign_imports_in_a_wrong_place,
    imports_against_the_layers,
    impure_imports_in_the_core,
    key_literals_outside_keys,
    machine_access_outside_system,
)
from tests.architecture.source import Module, Place, parse, product_modules

Rule = Callable[[Module], Iterator[Place]]


def assert_kept(rule: Rule) -> None:
    broken = [str(place) for module in product_modules() for place in rule(module)]
    assert not broken, "\n" + "\n".join(broken)


def count_broken(rule: Rule, name: str, text: str) -> int:
    return len({place.line for place in rule(parse(name, dedent(text)))})


def assert_each_line_breaks(rule: Rule, name: str, text: str) -> None:
    lines = dedent(text).strip().splitlines()
    assert count_broken(rule, name, "\n".join(lines)) == len(lines)


# The product


def test_all_of_the_product_is_looked_at() -> None:
    names = {module.name for module in product_modules()}
    assert {"stado.errors", "stado.system", "stado_agent", "stado_coordinator"} <= names


def test_imports_point_inwards() -> None:
    assert_kept(imports_against_the_layers)


def test_each_foreign_package_is_imported_in_its_place_only() -> None:
    assert_kept(foreign_imports_in_a_wrong_place)


def test_the_core_is_pure() -> None:
    assert_kept(impure_imports_in_the_core)


def test_keys_are_spelled_in_one_module() -> None:
    assert_kept(key_literals_outside_keys)


def test_only_the_system_layer_touches_the_machine() -> None:
    assert_kept(machine_access_outside_system)


def test_only_entry_points_read_the_environment() -> None:
    assert_kept(environment_reads_outside_entry_points)


def test_no_except_is_bare() -> None:
    assert_kept(bare_excepts)


@pytest.mark.parametrize("package", ["boto3", "google.cloud.storage", "rich", "psutil"])
def test_the_command_line_starts_without_heavy_packages(package: str) -> None:
    code = f"import sys, stado.cli.main; sys.exit({package!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# The rules


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stado.errors", "from stado import ports"),
        ("stado.ports", "from stado.core.keys import record"),
        ("stado.core.verdicts", "from stado.ports import Clock"),
        ("stado.core.verdicts", "import stado.jobs.claim"),
        ("stado.core.verdicts", "from .keys import record"),
        ("stado.storage.retry", "from stado.core import keys"),
        ("stado.storage.retry", "from stado.system.clock import LiveClock"),
        ("stado.system.clock", "from stado.storage.port import Store"),
        ("stado.jobs.claim", "from stado.storage.s3 import S3Store"),
        ("stado.jobs.claim", "from stado.storage import open"),
        ("stado.jobs.claim", "from stado.cli import context"),
        ("stado.cli.jobs", "import stado_agent.agent"),
        ("stado.cli.jobs", "from stado.system.clock import LiveClock"),
        ("stado_agent.agent", "from stado.cli import render"),
        ("stado_agent.agent", "from stado_coordinator.reaper import Reaper"),
        ("stado_agent.agent", "from stado.system.tasks import LiveTasks"),
        ("stado_agent.main", "from stado.storage.s3 import S3Store"),
        ("stado_coordinator.reaper", "from stado.storage.open import open_store"),
        ("stado_coordinator.reaper", "from stado_agent.agent import Agent"),
        ("stado_coordinator.rental", "from stado.providers.aws import Aws"),
        ("stado_agent.agent", "from stado.composition import open_repository"),
        ("stado.jobs.claim", "from stado.composition import live_machine"),
        ("stado.composition", "from stado.storage.s3 import S3Store"),
        ("stado.composition", "from stado.cli import context"),
        ("stado.anything", "from stado.core import keys"),
        ("stado.anything", "from stado.api import submit"),
        ("stado", "from stado.core import keys"),
        ("stado.in_job", "from stado.core import keys"),
        ("stado.in_job", "from stado.errors import Refused"),
        ("stado.api", "from stado.cli import render"),
    ],
)
def test_an_import_that_points_outwards_is_caught(name: str, text: str) -> None:
    assert count_broken(imports_against_the_layers, name, text) == 1


def test_an_import_inside_a_function_or_for_types_is_caught_too() -> None:
    text = """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from stado.jobs.claim import Claim
        def late():
            import stado.cli.main
    """
    assert count_broken(imports_against_the_layers, "stado.core.moves", text) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stado.core.verdicts", "from stado.core import keys"),
        ("stado", "from stado.in_job import progress"),
        ("stado.in_job", "from stado.reports import PROGRESS_NAME"),
        ("stado.api", "from stado.jobs.submit import submit"),
        ("stado.core.verdicts", "from stado import errors"),
        ("stado.jobs.claim", "from stado.storage.port import Store"),
        ("stado.cli.jobs", "from stado.cli.render import table"),
        ("stado.cli.context", "from stado.system.clock import LiveClock"),
        ("stado_agent.main", "from stado.storage.open import open_store"),
        ("stado_agent.main", "from stado_agent.agent import Agent"),
        ("stado_agent.main", "from stado.composition import open_repository"),
        ("stado_coordinator.rental", "from stado.providers.port import Provider"),
    ],
)
def test_an_import_that_points_inwards_is_allowed(name: str, text: str) -> None:
    assert count_broken(imports_against_the_layers, name, text) == 0


@pytest.mark.parametrize("package", sorted(FOREIGN_PACKAGES))
def test_a_foreign_package_in_the_core_use_cases_is_caught(package: str) -> None:
    text = f"import {package}.anything"
    assert count_broken(foreign_imports_in_a_wrong_place, "stado.jobs.claim", text) == 1
    home = FOREIGN_PACKAGES[package][0]
    assert count_broken(foreign_imports_in_a_wrong_place, home, text) == 0


def test_a_foreign_package_that_nobody_listed_is_caught() -> None:
    text = "import numpy as np"
    assert count_broken(foreign_imports_in_a_wrong_place, "stado.core.costs", text) == 1


def test_an_sdk_of_another_adapter_is_caught() -> None:
    text = "from google.cloud.storage import Client"
    assert count_broken(foreign_imports_in_a_wrong_place, "stado.storage.s3", text) == 1


def test_an_impure_import_in_the_core_is_caught() -> None:
    text = """
        import os
        import os.path
        from time import monotonic
        import threading
        import logging
    """
    assert_each_line_breaks(impure_imports_in_the_core, "stado.core.cron", text)
    assert count_broken(impure_imports_in_the_core, "stado.core.cron", "import re, json") == 0


def test_a_key_that_is_spelled_elsewhere_is_caught() -> None:
    text = """
        PREFIX = "queue/"
        key = f"running/{job}.json"
        data = b"timed_out/x"
        listing = store.list("index/ready/")
    """
    assert_each_line_breaks(key_literals_outside_keys, "stado.jobs.claim", text)
    assert count_broken(key_literals_outside_keys, "stado.core.keys", text) == 0


def test_a_key_in_a_docstring_or_a_sentence_is_none() -> None:
    text = '''
        """queue/"""
        def read():
            """status/<id>/heartbeat"""
            return "paused/resumed jobs", "the queue/ folder", "queued"
    '''
    assert count_broken(key_literals_outside_keys, "stado.jobs.claim", text) == 0


def test_touching_the_machine_is_caught() -> None:
    text = """
        import time
        from time import sleep
        import random, re
        from uuid import uuid4
        import secrets
        import threading
        from subprocess import run
        from concurrent.futures import ThreadPoolExecutor
        now = datetime.now(UTC)
        now = datetime.datetime.utcnow()
        today = date.today()
        token = os.urandom(8)
        pid = os.fork()
        from os import fork
    """
    assert_each_line_breaks(machine_access_outside_system, "stado.jobs.claim", text)
    assert_each_line_breaks(machine_access_outside_system, "stado_agent.main", text)
    assert count_broken(machine_access_outside_system, "stado.system.clock", text) == 0


def test_a_port_that_is_used_instead_of_the_machine_is_allowed() -> None:
    text = "now = clock.now(); clock.sleep(1); at = datetime.fromisoformat(text)"
    assert count_broken(machine_access_outside_system, "stado.jobs.claim", text) == 0


def test_reading_the_environment_is_caught() -> None:
    text = """
        user = os.environ["USER"]
        home = os.environ.get("HOME")
        path = os.getenv("PATH")
        from os import environ
    """
    assert_each_line_breaks(environment_reads_outside_entry_points, "stado.cli.jobs", text)
    for name in ENTRY_POINTS:
        assert count_broken(environment_reads_outside_entry_points, name, text) == 0


def test_a_bare_except_is_caught() -> None:
    text = """
        try:
            act()
        except:
            pass
    """
    assert count_broken(bare_excepts, "stado.jobs.claim", text) == 1
    assert count_broken(bare_excepts, "stado.system.tasks", text) == 1
    assert (
        count_broken(
            bare_excepts, "stado.jobs.claim", text.replace(":\n            pass", " OSError: pass")
        )
        == 0
    )
