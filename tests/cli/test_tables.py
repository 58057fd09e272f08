"""Tables: aligned by the cells of a terminal, cropped to its width."""

from __future__ import annotations

import pytest

from stado.cli.render import clean, duration, short_duration
from stado.cli.tables import Column, cell_width, crop, table_lines
from stado.cli.views import LIST_COLUMNS

COLUMNS = (
    Column("ID"),
    Column("STATE", styles={"failed": "red"}),
    Column("AGE", right=True, expendable=1),
    Column("RUN", width_max=20),
    Column("COMMAND"),
)
ROWS = [
    ["abc", "failed", "3m12s", "a-rather-long-run-name-indeed", "python train.py " + "x" * 200],
    ["defghi", "queued", "4s", "b", "echo 漢字"],
]


def lines(width: int | None, *, colour: bool = False) -> list[str]:
    return table_lines(COLUMNS, ROWS, width=width, colour=colour)


def test_elsewhere_than_on_a_terminal_nothing_is_cropped() -> None:
    title, first, second = lines(None)
    assert title.split() == ["ID", "STATE", "AGE", "RUN", "COMMAND"]
    assert first.endswith("x" * 200)
    assert "a-rather-long-run-name-indeed" in first
    assert second.index("queued") == first.index("failed")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(cell_width, lines(width))) <= width


def test_a_narrow_terminal_does_without_what_is_expendable() -> None:
    assert "AGE" in lines(140)[0]
    assert "AGE" not in lines(60)[0]
    assert "4s" not in lines(60)[2]


@pytest.mark.parametrize("width", [45, 50, 60, 80])
def test_a_list_of_jobs_keeps_a_row_a_line_on_a_narrow_terminal(width: int) -> None:
    columns = [
        *(Column("JOB"), Column("STATUS"), Column("AGE", expendable=1), Column("TIME")),
        *(Column("RUN", width_max=20), Column("REASON", width_max=26), Column("COMMAND")),
    ]
    row = ["zrkkdinkwecgqhno", "cancelled", "3m12s", "2m", "digits-1", "job_failed 1", "x" * 90]
    shown = table_lines(columns, [row], width=width, colour=False)
    assert max(map(cell_width, shown)) <= width
    assert shown[1].startswith("zrkkdinkwecgqhno  cancelled")
    assert "REASON" in shown[0] or width < 60


@pytest.mark.parametrize(("width", "gone"), [(140, ""), (110, "POLICY"), (80, "POLICY TYPE")])
def test_a_list_of_trainings_does_without_what_matters_least(width: int, gone: str) -> None:
    """What people name their submissions by stays."""
    told = {"TYPE": "train", "JOB": "zrkkdinkwecgqhno", "STATUS": "completed", "AGE": "4m30s"}
    told |= {"TIME": "3m50s", "RUN": "spirals-longer", "POLICY": "made policy_zrkkdinkwecgqhno"}
    told |= {"COMMAND": "python train.py --rounds 550"}
    columns = [column for column in LIST_COLUMNS if column.title in told]
    shown = table_lines(columns, [list(told.values())], width=width, colour=False)
    assert max(map(cell_width, shown)) <= width
    assert shown[0].split() == [title for title in told if title not in gone.split()]


def test_what_a_job_does_and_why_it_waits_share_a_column_where_there_is_little_room() -> None:
    titles = ("JOB", "STATUS", "STEPS", "TIME", "RUN", "PROGRESS", "REASON", "COMMAND")
    columns = [column for column in LIST_COLUMNS if column.title in titles]
    rows = [
        ["zrkkdinkwecgqhno", "running", "0/1", "25s", "a", "29%: round 116 of 400", "", "x" * 30],
        ["zrkkbkztyhgqqnwr", "queued", "", "17s", "b", "", "no_eligible_worker", "y" * 30],
        ["zrkkbkztcvbvseqf", "running", "", "99s", "c", "45%", "silent 40s", "z" * 30],
    ]
    assert "PROGRESS" in table_lines(columns, rows, width=140, colour=False)[0]
    title, *shown = table_lines(columns, rows, width=80, colour=False)
    assert title.split() == [name for name in titles if name != "PROGRESS"]
    assert ["29%: roun" in shown[0], "no_eligibl" in shown[1], "silent 40s" in shown[2]] == [
        True
    ] * 3
    assert max(map(cell_width, [title, *shown])) <= 80


@pytest.mark.parametrize(("width", "cells"), [(82, [20, 20]), (60, [12, 12]), (50, [9, 9])])
def test_of_two_columns_none_has_to_give_more_than_the_other(width: int, cells: list[int]) -> None:
    columns = [Column("ID"), Column("RUN", width_max=20), Column("WHY", width_max=26), Column("X")]
    row = ["i" * 16, "r" * 30, "w" * 20, "x" * 90]
    _, shown = table_lines(columns, [row], width=width, colour=False)
    _, run, why, last = shown.split()
    assert [len(run), len(why)] == cells
    assert len(shown) == width
    assert len(last) >= len(why)


def test_wide_and_combining_characters_stay_aligned() -> None:
    """A character of two cells, and one of none."""
    rows = [["漢字", "x"], ["e\u0301te\u0301", "x"], ["abcd", "x"]]
    _, *shown = table_lines([Column("NAME"), Column("Y")], rows, width=80, colour=False)
    assert {cell_width(line[: line.index("x")]) for line in shown} == {6}


def test_cropping_counts_cells() -> None:
    assert crop("漢字漢字", 8) == "漢字漢字"
    assert crop("漢字漢字", 7) == "漢字漢…"
    assert crop("漢字漢字", 6) == "漢字…"
    assert crop("abc", 2) == "a…"
    assert crop("abc", 0) == ""


def test_colour_takes_no_room() -> None:
    plain, coloured = lines(80), lines(80, colour=True)
    assert "\x1b[31mfailed\x1b[0m" in coloured[1]
    assert coloured[2] == plain[2]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(0, "0s"), (-5, "0s"), (59.9, "59s"), (60, "1m"), (192, "3m 12s"), (3600, "1h")],
        *[(3661, "1h 1m"), (86_400, "1d"), (90_000, "1d 1h"), (1_000_000, "11d 13h")],
    ],
)
def test_ages_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text
    assert short_duration(seconds) == text.replace(" ", "")


@pytest.mark.parametrize(
    "text", ["\x1b[31mred", "a\x07b", "a\u202eb", "a\u200db", "a\x9bb", "a\x7f"]
)
def test_nothing_that_drives_a_terminal_is_printed(text: str) -> None:
    assert clean(text).isprintable()
    assert clean("one\ntwo\tthree") == "one two three"
