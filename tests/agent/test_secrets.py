"""What jobs get of a host's secrets, and how they end without."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from stado.core.spec import Spec
from stado.core.states import Reason, Verdict
from stado.errors import Refused
from stado.host_options import host_options
from stado.jobs.changes import cancel
from stado.jobs.outputs import find_manifest
from stado_agent.secrets import (
    SecretRefused,
    Secrets,
    SecretSettings,
    SecretUnreachable,
    secret_settings,
)
from tests.agent.fakes import Script
from tests.agent.scene import Scene

VALUE = "s3cr3t-marker-value"
NAMED = Spec(command="", secrets={"TOKEN": "team/db#password"})


class Shelf(Secrets):
    """Secrets that a test puts there."""

    def __init__(self, **values: str) -> None:
        super().__init__(SecretSettings(allowed=("*",)))
        self.values = values
        self.failures: list[Exception] = []
        self.asked: list[str] = []

    def read(self, reference: str) -> str:
        self.asked.append(reference)
        if self.failures:
            raise self.failures[0] if len(self.failures) == 1 else self.failures.pop(0)
        return VALUE


def scene_of(folder: Path, secrets: Secrets, spec: Spec = NAMED) -> Scene:
    scene = Scene(folder, spec)
    scene.secrets = secrets
    return scene


def test_a_secret_is_in_the_commands_environment_and_masked_in_all_that_is_kept(
    tmp_path: Path,
) -> None:
    """R140, A81"""
    scene = scene_of(tmp_path, Shelf(), NAMED.evolve(verify="check"))
    scene.script(Script(log=b"it is " + VALUE.encode() + b"\n", last_log=VALUE.encode()[:9]))
    scene.script(Script(exit_code=1, log=VALUE.encode()[9:]), "check")
    scene.run(scene.claim())
    assert scene.environments[0]["TOKEN"] == VALUE
    assert scene.environments[1]["TOKEN"] == VALUE
    assert scene.log(1) == b"it is ***\n***" + VALUE.encode()[9:] + b"ended\n"
    manifest = find_manifest(scene.world.repo, scene.job, 1)
    assert manifest is None or manifest.log is not None


def test_a_log_with_secrets_is_accounted_for_as_it_is_kept(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, Shelf())
    scene.script(Script(log=VALUE.encode() * 3 + b"\n", files={"output/result": b"42"}))
    scene.run(scene.claim())
    manifest = find_manifest(scene.world.repo, scene.job, 1)
    assert manifest is not None
    assert manifest.log is not None
    assert manifest.log.written == manifest.log.kept == len(b"***\nended\n")


def test_a_job_without_secrets_asks_for_none_and_starts_with_its_first_beat(
    tmp_path: Path,
) -> None:
    shelf = Shelf()
    scene = scene_of(tmp_path, shelf, Spec(command=""))
    scene.run(scene.claim())
    assert shelf.asked == []
    assert "TOKEN" not in scene.environments[0]


def test_a_secret_that_cannot_be_had_fails_the_job_and_names_it(tmp_path: Path) -> None:
    """R140"""
    shelf = Shelf()
    shelf.failures = [SecretRefused("there is no such file")]
    scene = scene_of(tmp_path, shelf)
    scene.run(scene.claim())
    assert scene.commands == []
    ending = scene.ending
    assert (ending.verdict, ending.reason) == (Verdict.FAILED, Reason.INPUT_UNAVAILABLE)
    assert ending.detail == "secret team/db#password for TOKEN: there is no such file"
    assert scene.final.starts == 0


def test_a_service_that_does_not_answer_is_asked_again_and_that_is_told(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.failures = [SecretUnreachable("it sleeps")] * 4
    shelf.failures.append(SecretUnreachable("still"))
    scene = scene_of(tmp_path, shelf)
    told: list[str | None] = []
    scene.clock.at(45, lambda: told.append(scene.heartbeat().trouble))
    scene.clock.at(50, shelf.failures.clear)
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED
    assert told[0] is not None
    assert "secret team/db#password for TOKEN cannot be had after" in told[0]


def test_a_service_that_never_answers_ends_the_job_after_minutes(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.failures = [SecretUnreachable("it sleeps")]
    scene = scene_of(tmp_path, shelf)
    before = scene.clock.monotonic()
    scene.run(scene.claim())
    assert 300 <= scene.clock.monotonic() - before < 400
    assert scene.ending.reason is Reason.INPUT_UNAVAILABLE
    assert len(shelf.asked) < 30


def test_a_cancel_ends_the_asking(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.failures = [SecretUnreachable("it sleeps")]
    scene = scene_of(tmp_path, shelf)
    scene.clock.at(20, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.CANCELLED
    assert scene.commands == []


def test_a_later_epoch_asks_again(tmp_path: Path) -> None:
    shelf = Shelf()
    scene = scene_of(tmp_path, shelf)
    scene.lose_epoch_one()
    scene.run(scene.claim())
    assert shelf.asked == ["team/db#password"]
    assert scene.environments[0]["TOKEN"] == VALUE


def test_a_secret_in_the_name_of_a_file_is_masked_before_a_warning_is_cut(tmp_path: Path) -> None:
    """R140: a detail has 1,024 characters, and half a value is one that nobody would know."""
    scene = scene_of(tmp_path, Shelf())
    claimed = scene.claim()
    deep = scene.folder.workspace(scene.job, 1).output.joinpath(*["d" * 200] * 5)

    def leave_a_link() -> None:
        deep.mkdir(parents=True)
        (deep / f"dddddddd{VALUE}").symlink_to("x")

    scene.clock.at(10, leave_a_link)
    scene.run(claimed)
    (warning,) = scene.ending.warnings
    assert warning.detail.startswith("ddd")
    assert VALUE[:6] not in warning.detail


def test_a_secret_in_the_name_of_a_sourced_file_is_masked_before_the_name_is_cut(
    tmp_path: Path,
) -> None:
    """R140"""
    scene = scene_of(tmp_path, Shelf(), NAMED.evolve(strict_shell=True))
    failed = f"3 {'d' * 190}{VALUE}\n".encode()
    scene.script(Script(seconds=5, exit_code=1, files={"strict/failed-line": failed}))
    scene.run(scene.claim())
    detail = scene.ending.detail or ""
    assert "in line 3 of ddd" in detail
    assert VALUE[:6] not in detail


# --- what a host allows ---------------------------------------------------------------------


def folder_with(root: Path, value: bytes = VALUE.encode()) -> Path:
    (root / "team" / "db").mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    (root / "team").chmod(0o700)
    (root / "team" / "db" / "password").write_bytes(value)
    (root / "team" / "db" / "password").chmod(0o600)
    return root


def test_nothing_is_allowed_unless_stated(tmp_path: Path) -> None:
    """R140: the refusal says what helps."""
    folder = folder_with(tmp_path / "s")
    with pytest.raises(SecretRefused, match=r"allows no job.*--allow-secret team/db of its agent"):
        Secrets(SecretSettings(folder=folder)).read("team/db#password")


@pytest.mark.parametrize(
    ("patterns", "allowed"),
    [(("team/*",), True), (("team/db",), True), (("*",), True), (("a", "team/d?"), True)]
    + [((pattern,), False) for pattern in ("team", "db", "TEAM/*", "team/db#password", "team/dbx")],
)
def test_an_item_is_allowed_by_a_pattern_as_a_whole(
    tmp_path: Path, patterns: tuple[str, ...], allowed: bool
) -> None:
    secrets = Secrets(SecretSettings(folder=folder_with(tmp_path / "s"), allowed=patterns))
    if allowed:
        assert secrets.read("team/db#password") == VALUE
    else:
        with pytest.raises(SecretRefused):
            secrets.read("team/db#password")


@pytest.mark.parametrize(
    ("value", "told"),
    [(b"short", "fewer than 8"), (b"x" * 70_000, "more than 65536"), (b"a\0" * 9, "NUL")],
)
def test_a_value_that_cannot_be_used_is_refused(tmp_path: Path, value: bytes, told: str) -> None:
    settings = SecretSettings(folder=folder_with(tmp_path / "s", value), allowed=("*",))
    with pytest.raises(SecretRefused, match=told):
        Secrets(settings).read("team/db#password")


def test_a_host_without_secrets_says_what_names_them() -> None:
    with pytest.raises(SecretRefused, match="--secrets-dir or --secrets-from"):
        Secrets(SecretSettings(allowed=("*",))).read("a#b")


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ({"folder": Path("/x"), "service": "aws"}, "secrets_ambiguous"),
        ({"service": "gcp", "endpoint": "http://example.org"}, "secrets_endpoint_unsafe"),
        ({"service": "gcp", "endpoint": "https://a:b@example.org"}, "secrets_endpoint_unsafe"),
    ],
)
def test_what_an_owner_cannot_mean_is_refused(stated: dict[str, object], code: str) -> None:
    none: dict[str, object] = {"folder": None, "service": None, "endpoint": None, "allowed": ()}
    with pytest.raises(Refused) as caught:
        secret_settings(**{**none, **stated})  # type: ignore[arg-type]
    assert caught.value.code == code


def test_an_endpoint_of_ones_own_is_encrypted_or_of_this_machine() -> None:
    for endpoint in ("https://a.example.org", "http://127.0.0.1:5000", "http://localhost/x"):
        settings = secret_settings(folder=None, service="aws", endpoint=endpoint, allowed=())
        assert settings.endpoint == endpoint


def test_an_owner_may_say_it_in_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STADO_SECRETS_DIR", "/srv/secrets")
    monkeypatch.setenv("STADO_ALLOW_SECRETS", "team/* other")
    stated: dict[str, object] = {}
    click.command()(host_options(lambda **options: stated.update(options))).main(
        [], standalone_mode=False
    )
    assert stated["secrets_dir"] == Path("/srv/secrets")
    assert stated["allow_secret"] == ("team/*", "other")
