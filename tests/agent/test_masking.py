"""Secrets in what a command prints, in any pieces and in the usual disguises."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
import threading
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado_agent.masking import MaskedSink, Masker, disguises, in_base64

SECRET = "mArKeR/7+x=&'q\"r secret"


class Kept:
    """What is left of what is printed."""

    def __init__(self, *values: str) -> None:
        self.data = b""
        self.sink = MaskedSink(Masker(values), self._keep, threading.Lock())

    def _keep(self, piece: memoryview) -> None:
        self.data += bytes(piece)

    def prints(self, *pieces: bytes) -> bytes:
        for piece in pieces:
            self.sink.append(memoryview(piece))
        return self.data

    def ends(self) -> bytes:
        self.sink.finish()
        return self.data


def masked(data: bytes, *values: str) -> bytes:
    kept = Kept(*values)
    kept.prints(data)
    return kept.ends()


def test_a_value_is_replaced_and_nothing_else() -> None:
    """R140"""
    printed = f"before {SECRET} between {SECRET}{SECRET} after\n".encode()
    assert masked(printed, SECRET) == b"before *** between *** after\n"


@pytest.mark.parametrize("at", range(1, len(SECRET)))
def test_a_value_that_comes_in_two_pieces_is_found(at: int) -> None:
    """R140"""
    data = SECRET.encode()
    kept = Kept(SECRET)
    assert kept.prints(b"x" + data[:at]) == b"x"
    assert kept.prints(data[at:] + b"y") == b"x***y"


def test_a_value_that_comes_byte_by_byte_is_found() -> None:
    kept = Kept(SECRET)
    kept.prints(*(bytes([byte]) for byte in f"a{SECRET}b".encode()))
    assert kept.ends() == b"a***b"


def test_nothing_is_held_back_that_does_not_begin_a_value() -> None:
    """A prompt without a line's end is there at once."""
    kept = Kept(SECRET)
    assert kept.prints(b"Password: ") == b"Password: "
    assert kept.prints(b"mark") == b"Password: mark"


def test_what_is_held_back_comes_as_soon_as_it_is_no_value() -> None:
    kept = Kept(SECRET)
    assert kept.prints(b"mArKe") == b""
    assert kept.prints(b"r") == b"mArKer"


def test_half_a_value_at_the_end_is_masked_and_a_few_bytes_are_not() -> None:
    kept = Kept(SECRET)
    kept.prints(b"so mArKeR/7")
    assert kept.ends() == b"so ***"
    assert masked(b"so mAr", SECRET) == b"so mAr"


@pytest.mark.parametrize("before", [b"", b"x", b"xy"])
@pytest.mark.parametrize("behind", [b"", b"\n", b"more"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_value_in_base64_is_found_wherever_it_begins(
    before: bytes, behind: bytes, encode: object
) -> None:
    """R140: what is left of it are fewer bits than one byte has at each end."""
    assert callable(encode)
    printed = encode(before + SECRET.encode() + behind)
    shown = masked(printed, SECRET)
    assert b"***" in shown
    assert len(shown.replace(b"***", b"")) <= 4 * len(before + behind) // 3 + 6


@pytest.mark.parametrize(
    "disguised",
    [
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        re.sub("%..", lambda found: found[0].lower(), quote(SECRET, safe="")),
        json.dumps(SECRET)[1:-1],
    ],
)
def test_a_value_that_is_quoted_is_found(disguised: str) -> None:
    assert masked(f"a {disguised} b".encode(), SECRET) == b"a *** b"


SHELLED = "'tis \"a\" $b\\c`d #e!f'' & x=~g'"
"""What shells write with signs of their own, at both ends and in between."""

_SHOWN_BY_SHELLS = """
set -x
: "$SECRET"
: "before $SECRET behind" && also=$SECRET
set +x
export -p
set
"""
_SHOWN_BY_BASH = (
    _SHOWN_BY_SHELLS
    + """
declare -p SECRET
printf '%q %q %q\n' "$SECRET" "before $SECRET" "x=$SECRET behind"
multiline=$(printf '\t%s\n.' "$SECRET")
printf '%q' "$multiline"
declare -p multiline
echo "${SECRET@Q} ${SECRET@A}"
"""
)


@pytest.mark.parametrize(("shell", "script"), [("bash", _SHOWN_BY_BASH), ("sh", _SHOWN_BY_SHELLS)])
def test_a_value_is_found_however_a_shell_shows_it(shell: str, script: str) -> None:
    """R140: `set -x`, `set`, `export -p`, `declare -p`, `printf %q`, `@Q`."""
    shown = _shown_by(shell, script, SHELLED)
    assert len(re.findall(rb"tis.{1,4}a", shown)) >= 5
    left = masked(shown, SHELLED)
    for part in (b"tis", b"#e", b"~g"):
        assert part not in left


def _shown_by(shell: str, script: str, secret: str) -> bytes:
    return subprocess.run(
        [shell, "-c", script],
        env={"PATH": "/usr/bin:/bin", "SECRET": secret, "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=20,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    "disguised",
    [
        shlex.quote(SHELLED),
        shlex.join(["a", f"x {SHELLED} y"]),
        repr(SHELLED),
        str([f"x {SHELLED}"]),
        repr(SHELLED.encode()),
        "'" + SHELLED.replace("'", "''") + "'",
        SHELLED.replace('"', '""'),
    ],
)
def test_a_value_between_quotes_of_a_language_is_found(disguised: str) -> None:
    """Of Python, and of those that double a quote: SQL, YAML, CSV."""
    left = masked(disguised.encode(), SHELLED)
    assert b"***" in left
    assert not any(part in left for part in (b"tis", b"#e", b"~g"))


CONTROLLED = "tis\ta'#e\"b\x1b\x01\\\v\f\b\a\x7f$~g"
"""With characters that are shown by others."""


@pytest.mark.parametrize("value", [CONTROLLED, CONTROLLED.replace('"', ""), "tis\tall of #e ~g"])
@pytest.mark.parametrize(
    "shows", [repr, lambda value: repr(value.encode()), lambda value: str([value])]
)
def test_a_value_with_control_characters_is_found_as_python_writes_it(
    value: str, shows: Callable[[str], str]
) -> None:
    left = masked(f"a {shows(value)} b".encode(), value)
    assert not any(part in left for part in (b"tis", b"#e", b"~g"))


@pytest.mark.parametrize("value", [CONTROLLED, "tis\tall of #e ~g"])
def test_a_value_with_control_characters_is_found_as_bash_writes_it(value: str) -> None:
    shown = _shown_by("bash", _SHOWN_BY_BASH, value)
    assert len(re.findall(rb"\$'(?:before |x=|\\t)?tis\\ta", shown)) >= 7
    left = masked(shown, value)
    assert not any(part in left for part in (b"tis", b"#e", b"~g"))


@pytest.mark.parametrize("value", ["aB3" * 11, "A-Za-z0-9._-", "x" * 5000])
def test_a_value_of_plain_characters_is_looked_for_as_it_is_and_in_base64_alone(value: str) -> None:
    """What has no form of its own costs nothing."""
    assert {bytes(one) for one in disguises(value.encode())} == {
        value.encode(),
        *in_base64(value.encode()),
    }


def test_a_value_of_several_lines_is_found_line_by_line_and_wrapped() -> None:
    key = "-----BEGIN KEY-----\n" + "\n".join(f"line{n}-" + "k" * 50 for n in range(5)) + "\nend\n"
    lines = key.splitlines()
    assert masked(f"> {lines[3]} <".encode(), key) == b"> *** <"
    assert masked(json.dumps(lines).encode(), key).count(b"k") == 0
    wrapped = base64.encodebytes(key.encode())
    shown = masked(wrapped, key)
    assert len(shown.replace(b"***", b"").replace(b"\n", b"")) < 8
    assert b"end" not in masked(key.encode(), key)


def test_values_that_overlap_or_hold_each_other_leave_nothing() -> None:
    first, second, inner = "AAAAbbbbCCCC", "CCCCddddEEEE", "bbbbCCCCdddd"
    printed = b"x AAAAbbbbCCCCddddEEEE y"
    for cut in range(len(printed)):
        kept = Kept(first, second, inner)
        kept.prints(printed[:cut], printed[cut:])
        assert re.sub(rb"(\*\*\*)+", b"***", kept.ends()) == b"x *** y"


def test_a_long_value_is_held_back_by_pieces() -> None:
    long = "".join(f"{n:04x}" for n in range(2000))
    kept = Kept(long)
    kept.prints(b"a" + long.encode()[:4000])
    assert kept.data == b"a***"
    kept.prints(b"behind")
    assert kept.ends() == b"a***" + kept.data[4:]
    assert len(kept.data) <= 4 + 130


def test_a_sentence_is_masked_too() -> None:
    assert Masker([SECRET]).text(f"it says {SECRET}: no") == "it says ***: no"


MANY = [
    "".join(chr(65 + (n * step) % 26) + str((n + step) % 10) for n in range(8 + step))
    for step in (1, 3, 5, 7, 9, 11)
] + ["pa ss!w-rd?x:y/z;", SECRET]
"""Most of them are runs of letters and digits in each form, some are in none."""


@given(
    st.lists(
        st.one_of(
            st.sampled_from([b" ", b"\n", b"loss=0.25 ", b"a" * 15, b"0f" * 20, b"/"]),
            st.sampled_from(MANY).map(str.encode),
            st.sampled_from(MANY).map(lambda value: base64.b64encode(b"x" + value.encode())),
            st.sampled_from(MANY).map(lambda value: quote_plus(value).encode()),
        ),
        max_size=12,
    )
)
def test_of_many_values_each_is_found_wherever_it_stands(parts: list[bytes]) -> None:
    data = b"".join(parts)
    whole = masked(data, *MANY)
    for value in MANY:
        assert value.encode() not in whole
        assert base64.b64encode(b"xx" + value.encode())[3:-4] not in whole
    for alone in (masked(part, *MANY) for part in parts):
        assert alone.count(b"***") <= 1
    hidden = Masker(MANY).spans(data)
    each = sorted(span for value in MANY for span in Masker([value]).spans(data))
    assert hidden == _joined(each)


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that touch as one."""
    joined: list[tuple[int, int]] = []
    for start, stop in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return joined


_LETTERS = st.text(alphabet="ab", min_size=8, max_size=12)


@given(
    st.lists(_LETTERS, min_size=1, max_size=3),
    st.text(alphabet="abc", max_size=80),
    st.lists(st.integers(0, 80), max_size=8),
)
def test_in_whatever_pieces_the_same_is_kept(
    values: list[str], printed: str, cuts: list[int]
) -> None:
    data = printed.encode()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    kept = Kept(*values)
    kept.prints(*(data[start:stop] for start, stop in pairwise(places)))
    shown = kept.ends()
    assert not any(value.encode() in shown for value in values)
    collapsed = re.sub(rb"(\*\*\*)+", b"***", shown)
    assert collapsed == re.sub(rb"(\*\*\*)+", b"***", masked(data, *values))
