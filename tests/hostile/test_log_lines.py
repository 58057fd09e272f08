"""What an agent or a coordinator logs about a bucket is one printable line an event."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.cli.conftest import PYTHON_PATH

PROGRAM = """
import logging
from stado.composition import log_to_stderr
log_to_stderr()
log = logging.getLogger("stado.jobs.upkeep")
log.info("event=forgotten consumer=%s", "a\\x1b[2J\\nb\\u202ec\\udcff\\x9b d")
try:
    raise ValueError("why")
except ValueError:
    log.exception("event=failed")
"""


def test_control_characters_are_shown_as_what_they_are() -> None:
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "PYTHONIOENCODING": "utf-8"}
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True
    ).stderr.decode()
    first, *traceback = told.splitlines()
    assert first.endswith(r"INFO event=forgotten consumer=a\x1b[2J\nb\u202ec\udcff\x9b d")
    assert traceback[1] == "Traceback (most recent call last):"
    assert told.replace("\n", "").isprintable()
