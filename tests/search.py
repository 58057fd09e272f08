"""How input is searched: where nothing else is asked for, by the same examples in each run.

Some are taken from the constants of the modules that are loaded, so other tests beside a test may
change its examples: one that fails is printed with what repeats it alone.

`HYPOTHESIS_PROFILE=search` looks at other ones each time, ten times as many, and begins with those
that failed last.
"""

from __future__ import annotations

import os

from hypothesis import settings

_CHECK = settings(max_examples=100, derandomize=True, database=None, deadline=None, print_blob=True)
_SEARCH = settings(max_examples=1_000, derandomize=False, deadline=None, print_blob=True)


def choose_profile() -> None:
    """Before any test is imported: a test takes what counts then."""
    settings.register_profile("check", _CHECK)
    settings.register_profile("search", _SEARCH)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))


def examples(count: int) -> settings:
    """The settings of a test that looks at so many examples in a check."""
    return settings(max_examples=count * settings().max_examples // _CHECK.max_examples)
