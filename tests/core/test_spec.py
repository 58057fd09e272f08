from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from stado.core.documents import from_plain
from stado.core.spec import (
    BATCH_COUNT_MAX,
    PRIORITY_MAX,
    Request,
    Spec,
    check_run_id,
    differing_fields,
    make_request,
    parse_batch,
)
from stado.errors import Refused

SHARED = Spec(command="")


def refusal(code: str, *commands: str, **spec: object) -> str:
    with pytest.raises(Refused) as caught:
        make_request(list(commands) or ["true"], SHARED.evolve(**spec), batch=len(commands) > 1)
    assert caught.value.code == code
    return caught.value.text


def test_a_batch_has_a_command_a_line_without_blanks_and_comments() -> None:
    """R168"""
    data = b"# first\n\necho 1\r\n   echo 2  \n  # more\n\t\necho '#3'"
    assert parse_batch(data, "jobs.txt") == ["echo 1", "echo 2", "echo '#3'"]


def test_a_nul_byte_is_named_with_its_line() -> None:
    """R168"""
    with pytest.raises(Refused, match=r"line 7 of jobs\.txt holds a NUL byte"):
        parse_batch(b"true\n" * 6 + b"echo \0\n" + b"true\n", "jobs.txt")


def test_a_line_that_is_not_utf_8_is_named() -> None:
    """R168"""
    with pytest.raises(Refused, match=r"line 2 of jobs\.txt is not UTF-8"):
        parse_batch(b"true\necho \xff\n", "jobs.txt")


@pytest.mark.parametrize("data", [b"", b"\n\n", b"# nothing\n\n  \n"])
def test_a_batch_without_a_command_is_refused(data: bytes) -> None:
    """R168"""
    with pytest.raises(Refused, match=r"jobs\.txt holds no command") as caught:
        parse_batch(data, "jobs.txt")
    assert caught.value.code == "batch_empty"


def test_a_command_of_two_megabytes_is_refused_with_the_remedy() -> None:
    text = refusal("command_too_long", "x" * 2_000_000)
    assert "has 2000000 bytes" in text
    assert "put it into a script" in text
    with pytest.raises(Refused, match=r"line 1 of jobs\.txt has 2000000 bytes"):
        parse_batch(b"x" * 2_000_000, "jobs.txt")


def test_a_batch_of_more_than_the_largest_size_is_refused() -> None:
    assert "100001 commands" in refusal("batch_too_large", *["true"] * (BATCH_COUNT_MAX + 1))
    assert "33600000 bytes" in refusal("batch_too_large", *["x" * 120_000] * 280)


def test_no_command_at_all_is_refused() -> None:
    with pytest.raises(Refused, match="the batch holds no command"):
        make_request([], SHARED, batch=True)


def test_a_negative_priority_is_refused() -> None:
    assert refusal("priority_negative", priority=-1) == "priority -1 must be nonnegative"


def test_the_priority_ends_where_its_19_digits_end() -> None:
    """R141"""
    make_request(["true"], SHARED.evolve(priority=PRIORITY_MAX), batch=False)
    refusal("priority_too_large", priority=PRIORITY_MAX + 1)


@pytest.mark.parametrize(
    ("code", "changes", "named"),
    [
        ("cpu_not_positive", {"cpu": 0.0}, "cpu 0.0"),
        ("cpu_not_positive", {"cpu": float("nan")}, "cpu nan"),
        ("memory-gb_not_positive", {"memory_gb": -1.0}, "memory-gb -1.0"),
        ("vram-gb_not_positive", {"vram_gb": 0.0}, "vram-gb 0.0"),
        ("disk-gb_not_positive", {"disk_gb": -3.0}, "disk-gb -3.0"),
        ("boot-disk-gb_not_positive", {"boot_disk_gb": 0.0}, "boot-disk-gb 0.0"),
        ("gpus_invalid", {"gpus": 0}, "gpus 0"),
        ("gpus_invalid", {"gpus": 65}, "gpus 65"),
        ("gpu_type_invalid", {"gpu_type": "NVIDIA"}, "'NVIDIA'"),
        ("label_invalid", {"labels": ["zone"]}, "'zone'"),
        ("labels_too_many", {"labels": [f"a=b{n}" for n in range(5)]}, "5 labels"),
        ("pinned_host_invalid", {"pinned_host": "a b"}, "'a b'"),
        ("provider_missing", {"pin_provider": True}, "--provider NAME"),
        ("yieldable_missing", {"max_yields": 1}, "state --yieldable"),
        ("model_invalid", {"model": ""}, "model ''"),
        ("max-cost-per-hour_not_positive", {"max_cost_per_hour": 0.0}, "max-cost-per-hour 0.0"),
        (
            "runtime_seconds_estimate_invalid",
            {"runtime_seconds_estimate": 0},
            "runtime-seconds-estimate 0",
        ),
        ("terminates_agent_checked", {"terminates_agent": True, "verify": "true"}, "--verify"),
        ("host_dir_not_absolute", {"host_dir": "data"}, "'data'"),
        ("max_lease_losses_invalid", {"max_lease_losses": -2}, "-2"),
        ("command_empty", {"verify": " "}, "the verify command is empty"),
        ("environment_name_invalid", {"environment": {"2A": "x"}}, "'2A'"),
        ("environment_name_reserved", {"environment": {"STADO_X": "x"}}, "STADO_X"),
        (
            "environment_name_reserved",
            {"environment": {"CUDA_VISIBLE_DEVICES": "0"}},
            "CUDA_VISIBLE_DEVICES is reserved",
        ),
        ("not_text", {"environment": {"A": "\0"}}, "the value of A"),
        ("command_empty", {"pre_command": ""}, "the pre-command is empty"),
        ("secret_name_taken", {"secrets": {"A": "a#b"}, "environment": {"A": "x"}}, "A is to be"),
        ("environment_name_reserved", {"secrets": {"STADO_X": "a#b"}}, "STADO_X"),
        ("environment_name_invalid", {"secrets": {"2A": "a#b"}}, "'2A'"),
        ("secret_reference_invalid", {"secrets": {"A": "a/../b#c"}}, "'a/../b#c' for A"),
        ("secret_reference_invalid", {"secrets": {"A": "/a#c"}}, "'/a#c' for A"),
        (
            "secret_reference_invalid",
            {"secrets": {"A": "a b#c"}},
            "the secret for A is named by item and field",
        ),
        ("secrets_too_many", {"secrets": {f"A{n}": "a#b" for n in range(65)}}, "65 secrets"),
        ("environment_too_large", {"environment": {"A": "x" * 140_000}}, "largest: A with 140,003"),
    ],
)
def test_what_no_host_can_do_is_refused_and_named(
    code: str, changes: dict[str, object], named: str
) -> None:
    """R158, R159, R163: also what a machine that may be rented would have, and a run time."""
    assert named in refusal(code, **changes)


def test_an_environment_that_no_host_can_pass_on_is_refused_with_its_largest_values() -> None:
    """A73"""
    values = {"SMALL": "1", "B": "x" * 200_000, "A": "y" * 2_500_000, "C": "z" * 300_000, "D": "1"}
    text = refusal("environment_too_large", environment=values)
    assert "at most 131000 are taken" in text
    assert "A with 2,500,003 bytes, C with 300,003, B with 200,003)" in text
    assert "SMALL" not in text
    assert "xxx" not in text


def test_a_strict_shell_leaves_room_for_what_names_the_line() -> None:
    long = "x" * 130_500
    make_request([long], SHARED, batch=False)
    assert "at most 130000" in refusal("command_too_long", long, strict_shell=True)


@pytest.mark.parametrize("command", ["", "  ", "a\0b", "a\udc80b"])
def test_what_is_no_command_is_refused(command: str) -> None:
    with pytest.raises(Refused):
        make_request([command], SHARED, batch=False)


def test_zero_and_unlimited_lease_losses_are_values() -> None:
    for allowed in (0, -1):
        request = make_request(["true"], SHARED.evolve(max_lease_losses=allowed), batch=False)
        assert request.specs()[0].max_lease_losses == allowed


def test_a_run_id_is_refused_with_what_it_may_be() -> None:
    """R129"""
    with pytest.raises(Refused, match="'a b' cannot be used: 1 to 100 characters"):
        check_run_id("a b")


def request(*commands: str, **shared: object) -> Request:
    return make_request(list(commands), SHARED.evolve(**shared), batch=len(commands) > 1)


def test_equal_requests_have_equal_digests() -> None:
    """R130"""
    again = from_plain(Request, request("true", cpu=2.0).plain())
    assert again.digest() == request("true", cpu=2.0).digest()
    assert request("true").digest() != request("false").digest()
    assert request("true", cpu=1.0).digest() != request("true").digest()


def test_one_instant_in_two_time_zones_is_one_request() -> None:
    """R130"""
    instant = datetime(2026, 5, 1, 12, tzinfo=UTC)
    elsewhere = instant.astimezone(timezone(timedelta(hours=2)))
    assert request("true", deadline_at=instant).digest() == (
        request("true", deadline_at=elsewhere).digest()
    )


def test_a_field_that_is_new_in_a_later_version_does_not_change_the_digest_of_old_requests() -> (
    None
):
    """R130: what was submitted before an upgrade can be submitted again after it."""

    class LaterSpec(Spec):
        gpu: int | None = None

    class LaterRequest(Request):
        shared: LaterSpec

    later = LaterRequest(batch=False, commands=["true"], shared=LaterSpec(command=""))
    assert later.digest() == request("true").digest()
    stated = LaterRequest(batch=False, commands=["true"], shared=LaterSpec(command="", gpu=1))
    assert stated.digest() != later.digest()


def test_differing_fields_are_named_with_both_values() -> None:
    """R130"""
    sentences = differing_fields(request("a", cpu=2.0), request("b", priority=3))
    assert sentences == [
        "cpu: 2.0 was submitted, now nothing",
        "priority: 0 was submitted, now 3",
        "command: 'a' was submitted, now 'b'",
    ]


def test_environment_values_are_never_shown() -> None:
    """R130"""
    old = request("a", environment={"TOKEN": "hunter2", "SAME": "x", "OLD": "secret"})
    new = request("a", environment={"TOKEN": "hunter3", "SAME": "x"})
    assert differing_fields(old, new) == ["environment: OLD, TOKEN differ"]


def test_a_long_value_is_cut_in_the_sentence() -> None:
    (sentence,) = differing_fields(request("a" * 500), request("b" * 500))
    assert len(sentence) < 250


def test_a_differing_batch_says_which_command_differs() -> None:
    """R130"""
    old, new = request("a", "b", "c"), request("a", "x", "c")
    assert differing_fields(old, new) == ["command 2: 'b' was submitted, now 'x'"]
    longer = request("a", "b", "c", "d")
    assert differing_fields(old, longer) == ["command 4: nothing was submitted, now 'd'"]
    single = differing_fields(request("a"), make_request(["a"], SHARED, batch=True))
    assert single == [
        "command: 'a' was submitted, now nothing",
        "command 1: nothing was submitted, now 'a'",
    ]


def test_of_a_thousand_differences_the_first_are_named_and_the_rest_counted() -> None:
    """R130"""
    sentences = differing_fields(request(*["a"] * 1000), request(*["b"] * 1000))
    assert sentences[0] == "command 1: 'a' was submitted, now 'b'"
    assert sentences[-1] == "995 more differ"
    assert len(sentences) == 6


def test_a_value_that_is_no_text_is_not_repeated() -> None:
    """It may be a secret."""
    told = refusal("not_text", environment={"A": "hunter2\udcff"})
    assert "the value of A" in told
    assert "hunter2" not in told
