"""The command line in this process, as somebody with credentials of their own calls it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from click.testing import CliRunner, Result

from stado.cli.main import cli

_OTHERS = ("STADO_", "AWS_")


def stado(environment: Mapping[str, str], *arguments: str) -> Result:
    """With these variables, and none of ours that name a store or credentials."""
    ours = {name: None for name in os.environ if name.startswith(_OTHERS)}
    return CliRunner().invoke(cli, arguments, env={**ours, "COLUMNS": "200", **environment})
