"""Tags: which words are taken, and that they change nothing where none is stated."""

from __future__ import annotations

import pytest

from stado.core.spec import Spec, make_request
from stado.core.tags import TAGS_MAX, tag_list
from stado.errors import Refused


def test_each_is_kept_once_in_order_however_they_were_stated() -> None:
    assert tag_list(["v2", "nightly", "v2"]) == ["nightly", "v2"]
    assert tag_list([]) == []
    one, other = (
        make_request(["run"], Spec(command="", tags=tag_list(tags)), batch=False).digest()
        for tags in (["a", "b"], ["b", "a", "b"])
    )
    assert one == other
    assert one != make_request(["run"], Spec(command=""), batch=False).digest()


@pytest.mark.parametrize("word", ["", "A", "a b", "ä", "a\n", "x" * 65, 5, None])
def test_other_words_are_refused(word: object) -> None:
    with pytest.raises(Refused, match="must be 1 to 64 characters"):
        tag_list([word])


def test_there_are_so_many_at_most() -> None:
    words = [f"t{number}" for number in range(TAGS_MAX + 1)]
    assert len(tag_list(words[1:])) == TAGS_MAX
    with pytest.raises(Refused, match="17 tags are stated and at most 16"):
        tag_list(words)
    with pytest.raises(Refused, match="at most 16"):
        make_request(["run"], Spec(command="", tags=words), batch=False)
