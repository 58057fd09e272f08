"""The documentation as a site: `make docs`. Built without a network, and read without one.

Its sources are the pages as they lie in the repository, so that links hold in both places.
"""

from __future__ import annotations

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

myst_heading_anchors = 4
html_theme = "furo"
html_title = "stado"
html_copy_source = False
html_show_sphinx = False
