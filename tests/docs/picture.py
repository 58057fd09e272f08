"""A screen as an SVG, which loads nothing: no font, no style, no script.

It is light or dark as its reader's surroundings are, or as `theme` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from tests.docs.screen import Cell, Look

_CELL_WIDTH, _LINE_HEIGHT, _FONT_SIZE = 8.4, 19, 14
_MARGIN, _BAR = 14, 30

_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Theme(NamedTuple):
    """`palette`: the first eight colours of a terminal, then its bright ones."""

    ground: str
    text: str
    bar: str
    palette: tuple[str, ...]


_DARK = Theme(
    ground="#171a21",
    text="#d6dae2",
    bar="#262b36",
    palette=(
        *("#2b303b", "#f2777a", "#7fc97f", "#e6c06a", "#7aa6f0", "#d39be6", "#5cc6cf", "#d6dae2"),
        *("#8790a0", "#ff9a9c", "#a2e0a2", "#f4d58c", "#9dc0ff", "#e3bcf0", "#86dde4", "#ffffff"),
    ),
)
_LIGHT = Theme(
    ground="#fbfbf9",
    text="#22262e",
    bar="#e6e7e3",
    palette=(
        *("#22262e", "#b3261e", "#1d7a35", "#8a6100", "#1f55b5", "#8a2fa8", "#0b7285", "#6b7280"),
        *("#6b7280", "#c9372c", "#27903f", "#a37200", "#2f6bd6", "#a040c0", "#1590a5", "#22262e"),
    ),
)
THEMES = {"dark": _DARK, "light": _LIGHT}


def svg(lines: Sequence[Sequence[Cell]], *, columns: int, title: str, theme: str = "") -> str:
    """`theme`: a name of `THEMES`; none: as its reader has it."""
    width = columns * _CELL_WIDTH + 2 * _MARGIN
    height = _BAR + len(lines) * _LINE_HEIGHT + 2 * _MARGIN
    body = "\n".join(
        text for number, line in enumerate(lines) for text in _texts(line, _baseline(number))
    )
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" {size} \
role="img" aria-label="{escape(title, quote=True)}">
<style>
{_styles(theme)}
</style>
<rect class="ground" width="{width:g}" height="{height:g}" rx="8"/>
<path class="bar" d="M0 {_BAR}V8a8 8 0 0 1 8-8H{width - 8:g}a8 8 0 0 1 8 8V{_BAR}z"/>
<text class="t" x="{width / 2:g}" y="20" text-anchor="middle">{escape(title)}</text>
{body}
</svg>
"""


def _styles(theme: str) -> str:
    text = f"text {{ font: {_FONT_SIZE}px {_FONTS}; white-space: pre }}\n.b {{ font-weight: 700 }}"
    text += "\n.d { opacity: .65 }"
    if theme:
        return f"{text}\n{_colours(THEMES[theme])}"
    dark = _colours(_DARK).replace("\n", "\n  ")
    return f"{text}\n{_colours(_LIGHT)}\n@media (prefers-color-scheme: dark) {{\n  {dark}\n}}"


def _colours(theme: Theme) -> str:
    rules = [
        f".ground {{ fill: {theme.ground} }}",
        f".bar {{ fill: {theme.bar} }}",
        f".t {{ fill: {theme.text} }}",
        *(f".c{number} {{ fill: {colour} }}" for number, colour in enumerate(theme.palette)),
    ]
    return "\n".join(rules)


def _baseline(number: int) -> float:
    return _BAR + _MARGIN + number * _LINE_HEIGHT + _FONT_SIZE


def _texts(line: Sequence[Cell], baseline: float) -> Iterator[str]:
    """A piece for each stretch of one look. Its length is stated, so that columns stand below each
    other in whatever font there is."""
    column = 0
    for look, cells in groupby(line, key=lambda cell: cell.look):
        text = "".join(cell.character for cell in cells)
        begin = column + len(text) - len(text.lstrip())
        column += len(text)
        text = text.strip()
        if text:
            x, length = _MARGIN + begin * _CELL_WIDTH, len(text) * _CELL_WIDTH
            yield (
                f'<text {_attributes(look)} x="{x:g}" y="{baseline:g}" '
                f'textLength="{length:g}">{escape(text)}</text>'
            )


def _attributes(look: Look) -> str:
    if isinstance(look.colour, str):
        return f'style="fill: {look.colour}"'
    names = ["t" if look.colour is None else f"c{look.colour}"]
    names += ["b"] if look.bold else []
    names += ["d"] if look.dim else []
    return f'class="{" ".join(names)}"'
