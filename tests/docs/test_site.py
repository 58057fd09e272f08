"""The documentation as a site."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click

from stado.cli.main import cli
from tests.docs.terminal import ROOT

_LOADED = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc="(?P<src>[^"]+)"|<link\b[^>]*\bhref="(?P<href>[^"]+)\""""
)


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    """Every page is in its table of contents, every link leads somewhere, and it can be read where
    there is no network."""
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "2", "-c", "docs"]
    done = subprocess.run(
        [*build, "-d", str(tmp_path / "work"), ".", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    pages = list((tmp_path / "site").rglob("*.html"))
    loaded = {
        found["src"] or found["href"]
        for page in pages
        for found in _LOADED.finditer(page.read_text())
    }
    assert len(pages) > 20
    assert any(name.endswith(".css") for name in map(_bare, loaded))
    assert [name for name in loaded if "//" in name] == []
    reference = re.sub(r"<[^>]+>", "", (tmp_path / "site/docs/commands.html").read_text())
    assert [name for name in _shown_commands() if f"stado {name}" not in reference] == []
    unread = [page.name for page in pages if re.search(r"<p>\.\. [a-z-]+::", page.read_text())]
    assert unread == []


def _shown_commands() -> set[str]:
    """By the names that they have themselves: `stop` is another one of `cancel`."""
    context = click.Context(cli)
    found = [cli.get_command(context, name) for name in cli.list_commands(context)]
    return {str(command.name) for command in found if command and not command.hidden}


def _bare(name: str) -> str:
    return name.partition("?")[0]
