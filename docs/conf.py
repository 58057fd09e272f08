"""The documentation as a site: `make docs`. Built without a network, and read without one.

Its sources are the pages as they lie in the repository, so that links hold in both places.
"""

from __future__ import annotations

import re
from typing import Any

project = "stado"
author = "The stado authors"

extensions = ["myst_parser", "sphinx_click"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "tests/README.md",
    "examples/**/README.md",
]
exclude_patterns = [".venv", "site"]
highlight_language = "none"  # Of what states none: it is of a terminal.
smartquotes = False  # Of `--store` it makes one long dash.

myst_heading_anchors = 4

html_theme = "furo"
html_title = "stado"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

_HELP = ("description", "options", "epilog")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def setup(app: Any) -> None:
    for part in _HELP:
        app.connect(f"sphinx-click-process-{part}", _as_restructured_text)


def _as_restructured_text(_app: Any, _context: Any, lines: list[str]) -> None:
    """Help texts are written for terminals: stars are stars, and what stands between backquotes is
    to be typed."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(".. "):
            lines[number] = _CODE.sub(r"``\1``", line.replace("*", r"\*"))
