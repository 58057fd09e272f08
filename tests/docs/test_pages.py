"""The commands that pages of the documentation show do what these say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import Ids, Step, alike, differs, read_page
from tests.docs.terminal import ROOT, Terminal, run

PAGES = [
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if read_page(path).steps
]

_STEP_SECONDS = 90


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    home = tmp_path / "home"
    home.mkdir()
    terminal = Terminal(home)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_happens(terminal: Terminal, name: str) -> None:
    page = read_page(ROOT / name)
    assert any(step.shown for step in page.steps)
    for step in page.steps:
        _run(terminal, step, f"{name}:{step.line}")


def _run(terminal: Terminal, step: Step, place: str) -> None:
    said = run(terminal, step, seconds=_STEP_SECONDS)
    difference = step.difference(said, terminal.exit_code)
    assert difference is None, f"{place}: {step.command}\n{difference}\n\nall of it:\n{said}"


def test_a_page_that_says_something_else_is_found() -> None:
    said = (
        "zrkkdiojlsirjzje\nsubmitted job zrkkdiojlsirjzje (run a) in 1.3s; it starts in a moment\n"
    )
    shown = ["abcdefghijklmnop", "submitted job abcdefghijklmnop (run a) in 0.2s; it starts …"]
    assert differs(shown, said) is None
    assert differs([*shown, "and then"], said) is not None
    assert differs(["submitted … (run b)"], said) is not None
    assert differs(["abcdefghijklmnop"], said) is not None


def test_ids_numbers_and_times_may_be_others() -> None:
    assert alike("local@vm  23.5 GiB 3m 50s 2026-11-30 10:14:15Z") == "WORKER SIZE DURATION TIME"
    assert alike("4m30s") == alike("2s") == "DURATION"


def test_commands_name_the_jobs_of_this_run() -> None:
    ids = Ids()
    shown = ["submitted job abcdefghijklmnop (run a) in 0.2s; …", "abcdefghijklmnop", "made …"]
    ids.learn(shown, "submitted job qrstuvwxyzabcdef\nqrstuvwxyzabcdef\nmade it\n")
    command = "stado job retry abcdefghijklmnop-2; stado policy get policy_klmnop:best to"
    wanted = "stado job retry qrstuvwxyzabcdef-2; stado policy get policy_abcdef:best to"
    assert ids.put_into(command) == wanted
    assert ids.put_into("stado job why someotherjobsid1") == "stado job why someotherjobsid1"


def test_commands_of_several_lines_comments_and_reasons_are_read(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "<!-- run: mkdir a -->\n```\n$ cat > b <<'END'\none\nEND\n$ echo 'x\ny' \\\n  z\nx\n```\n"
        "<!-- not run: it needs a bucket -->\n```\n$ stado init s3://b\n```\n```\nno command\n```\n"
    )
    page = read_page(path)
    assert [(step.command, step.shown, step.hidden) for step in page.steps] == [
        ("mkdir a", [], True),
        ("cat > b <<'END'\none\nEND", [], False),
        ("echo 'x\ny' \\\n  z", ["x"], False),
    ]
    assert page.not_run == {12: "it needs a bucket"}


def test_an_id_is_learned_from_a_line_that_a_page_breaks() -> None:
    ids = Ids()
    said = "step 2 (export): job zrkjvochjncgzpfd failed: the command exited with 3 (job_failed)\n"
    ids.learn(
        ["step 2 (export): job abcdefghijklmnop failed:", "the command exited with 3 (job_failed)"],
        said,
    )
    assert ids.put_into("stado job retry abcdefghijklmnop") == "stado job retry zrkjvochjncgzpfd"
