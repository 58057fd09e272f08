"""What a path or a pattern of outputs names."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core.output_paths import OutputPattern, check_pattern
from stado.errors import Refused

PARTS = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6
)
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("pattern", "named", "others"),
    [
        ("model.npz", ["model.npz", "model.npz/part"], ["a/model.npz", "model_npz", "model.npz2"]),
        ("models/", ["models/a", "models/b/c"], ["models", "a/models/b"]),
        ("*.npz", ["a.npz", ".npz", "x.npz/y"], ["a/b.npz", "a.npzz"]),
        ("models/*.npz", ["models/a.npz"], ["models/a/b.npz", "models", "a.npz"]),
        ("**/*.npz", ["a.npz", "a/b.npz", "a/b/c.npz"], ["a/b", "npz"]),
        ("models/**", ["models/a", "models/a/b"], ["models", "model/a"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["a/b", "z", "a/zz"]),
        ("seed-[0-9]?", ["seed-1a", "seed-22/x"], ["seed-1", "seed-aa"]),
        ("what[is", ["what[is"], ["whati"]),
        ("a[b]", ["a[b]", "ab"], ["a[c]"]),
        ("line\nend", ["line\nend"], ["line"]),
    ],
)
def test_a_pattern_names_files_and_what_is_in_folders(
    pattern: str, named: list[str], others: list[str]
) -> None:
    asked = OutputPattern(pattern)
    assert [path for path in [*named, *others] if asked.matches(path)] == named


@given(PATHS)
def test_a_path_names_itself_whatever_is_in_it(path: str) -> None:
    assert OutputPattern(path).matches(path)
    assert OutputPattern(path).matches(f"{path}/deeper")
    assert OutputPattern("**").matches(path)


def test_no_pattern_takes_long() -> None:
    """Patterns come from the bucket."""
    began = time.process_time()
    for pattern in ("**/" * 340 + "z", "*a" * 500 + "b", "*" * 1000 + "b"):
        assert not OutputPattern(pattern).matches("/".join(["a" * 200] * 20))
    assert time.process_time() - began < 2


@pytest.mark.parametrize("pattern", ["", "/abs", "../up", "a/../b", "..", "a\0b", "x" * 1025])
def test_what_names_nothing_below_the_folder_is_refused(pattern: str) -> None:
    with pytest.raises(Refused) as refused:
        check_pattern(pattern, "--only")
    assert refused.value.code == "output_pattern_invalid"
