"""The text of units, by what systemd itself says of it where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from stado.errors import Refused
from stado.services.environment_file import line_of, merged, names_in, without_values
from stado.services.files import wanted_unit
from stado.services.service import (
    SYSTEM_PLACES,
    Kind,
    Scope,
    Service,
    check_name,
    default_work_dir,
    unit_name,
    user_places,
)
from stado.services.unit import quoted, read_unit, unit_text

NEW, OLD = 257, 252
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def service(kind: Kind, scope: Scope = Scope.SYSTEM, **changes: object) -> Service:
    of_system = scope is Scope.SYSTEM
    places = (
        SYSTEM_PLACES
        if of_system
        else user_places(home="/home/ada", config_home=None, state_home=None)
    )
    of_agent = kind is Kind.AGENT
    made = Service(
        kind=kind,
        scope=scope,
        places=places,
        program=("/usr/bin/python3", "-P", "-m", "stado.cli.main"),
        store="s3://lab-jobs/stado",
        account="root" if of_system else None,
        work_dir=default_work_dir(scope, places, unit_name(kind, None)) if of_agent else None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


ALL = [(kind, scope) for kind in Kind for scope in Scope]


@needs_systemd
@pytest.mark.parametrize(("kind", "scope"), ALL)
def test_systemd_takes_each_unit_without_a_word(kind: Kind, scope: Scope, tmp_path: Path) -> None:
    """R240"""
    variables = tmp_path / "stado" / f"{kind}.env"
    variables.parent.mkdir()
    variables.touch()
    one = service(kind, scope)
    path = tmp_path / one.unit
    # As the systemd that is installed here would be written for.
    told = subprocess.run(
        ["systemd-analyze", "--version"], capture_output=True, text=True, check=True
    )
    version = int(told.stdout.split()[1])
    text = unit_text(one, manager_version=version)
    path.write_text(text.replace(str(one.environment_path), str(variables)))
    user = ["--user"] if scope is Scope.USER else []
    done = subprocess.run(
        ["systemd-analyze", *user, "verify", "--recursive-errors=no", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    about_it = [line for line in done.stderr.splitlines() if one.unit in line or str(path) in line]
    assert about_it == []
    assert done.returncode == 0, done.stderr


@needs_systemd
@pytest.mark.parametrize(("kind", "most"), [(Kind.AGENT, 7.0), (Kind.COORDINATOR, 3.0)])
def test_units_of_a_host_are_closed_as_far_as_their_work_allows(
    kind: Kind, most: float, tmp_path: Path
) -> None:
    """R240: from 0, all closed, to 10. What an agent's unit leaves open it gives reasons for."""
    path = tmp_path / unit_name(kind, None)
    path.write_text(unit_text(service(kind, account="nobody"), manager_version=OLD))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= most


def directives(one: Service, version: int = NEW) -> dict[str, str]:
    lines = unit_text(one, manager_version=version).splitlines()
    return dict(line.partition("=")[::2] for line in lines if not line.startswith(("#", "[")))


def test_jobs_outlive_what_systemd_does_to_their_agent() -> None:
    """R241: neither a stop nor a job's want of memory ends more than the agent; groups are its own
    to make; nothing is emptied under jobs that go on."""
    found = directives(service(Kind.AGENT))
    assert found["KillMode"] == "process"
    assert found["KillSignal"] == "SIGQUIT"
    assert found["OOMPolicy"] == "continue"
    assert (found["Delegate"], found["DelegateSubgroup"]) == ("yes", "stado-agent")
    assert not {"PrivateTmp", "RemoveIPC", "PrivateDevices", "ProtectControlGroups"} & set(found)


def test_an_older_systemd_is_told_nothing_that_it_does_not_know() -> None:
    found = directives(service(Kind.AGENT), OLD)
    assert not {"DelegateSubgroup", "RestartSteps", "RestartMaxDelaySec"} & set(found)
    assert found["Delegate"] == "yes"


def test_a_service_is_watched_and_never_given_up() -> None:
    """R242"""
    for kind, scope in ALL:
        found = directives(service(kind, scope))
        assert (found["Type"], found["NotifyAccess"], found["WatchdogSec"]) == (
            "notify",
            "main",
            "600",
        )
        assert (found["Restart"], found["StartLimitIntervalSec"]) == ("always", "0")


def test_the_services_of_a_user_name_no_account_and_wait_for_no_network() -> None:
    found = directives(service(Kind.AGENT, Scope.USER))
    assert not {"User", "StateDirectory", "After"} & set(found)
    assert found["WantedBy"] == "default.target"


def test_a_coordinator_may_write_to_a_store_that_is_a_directory() -> None:
    found = directives(service(Kind.COORDINATOR, store="/srv/a queue"))
    assert found["ReadWritePaths"] == '"/srv/a queue"'
    assert found["PrivateTmp"] == "yes"
    assert "PrivateTmp" not in directives(service(Kind.COORDINATOR, store="/tmp/queue"))


def test_what_systemd_would_replace_in_a_command_line_is_escaped() -> None:
    assert quoted("plain-1.0/x:y=z,@") == "plain-1.0/x:y=z,@"
    assert quoted("50% of $HOME") == '"50%% of $$HOME"'
    assert quoted('a "b" \\') == '"a \\"b\\" \\\\"'


def test_a_unit_says_which_store_it_works_on() -> None:
    stated = read_unit(unit_text(service(Kind.AGENT, consumer="local@lab-7"), manager_version=NEW))
    assert stated is not None
    assert (stated.kind, stated.store, stated.consumer) == (
        "agent",
        "s3://lab-jobs/stado",
        "local@lab-7",
    )
    assert read_unit("[Unit]\nDescription=Kind=agent\n") is None


def test_a_unit_of_another_store_and_somebody_elses_are_refused() -> None:
    """R240"""
    text = unit_text(service(Kind.AGENT), manager_version=NEW)
    path = PurePosixPath("/etc/systemd/system/stado-agent.service")
    assert not wanted_unit(path, text, text, store="s3://lab-jobs/stado").differs
    with pytest.raises(
        Refused, match=r"works on s3://lab-jobs/stado here, not on s3://other/stado"
    ):
        wanted_unit(path, text, text, store="s3://other/stado")
    with pytest.raises(Refused, match="was not written by stado"):
        wanted_unit(path, text, "[Service]\nExecStart=/bin/true\n", store="s3://lab-jobs/stado")


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "-x", "x-", "x" * 33, "a@b"])
def test_a_name_that_no_unit_can_have_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="--name"):
        check_name(name)


# --- variables ------------------------------------------------------------------------------


def test_lines_that_people_wrote_stay_and_what_is_given_anew_replaces_its_line() -> None:
    """R243"""
    present = '# mine\nAWS_REGION=eu-central-1\n\nAWS_ACCESS_KEY_ID="old"\n'
    new = merged(present, {"AWS_ACCESS_KEY_ID": "new", "AWS_SESSION_TOKEN": 'a$b"c\\d`e'})
    assert new.text == (
        '# mine\nAWS_REGION=eu-central-1\n\nAWS_ACCESS_KEY_ID="new"\n'
        'AWS_SESSION_TOKEN="a\\$b\\"c\\\\d\\`e"\n'
    )
    assert (new.added, new.changed) == (("AWS_SESSION_TOKEN",), ("AWS_ACCESS_KEY_ID",))
    again = {"AWS_ACCESS_KEY_ID": "new", "AWS_SESSION_TOKEN": 'a$b"c\\d`e'}
    assert merged(new.text, again).text == new.text


def test_values_are_never_shown() -> None:
    """R243"""
    text = merged(None, {"AWS_SECRET_ACCESS_KEY": "hush"}).text
    assert "hush" in text
    assert "hush" not in without_values(text)
    assert "AWS_SECRET_ACCESS_KEY=…" in without_values(text)


@pytest.mark.parametrize(
    "text",
    [
        "# AWS_SECRET_ACCESS_KEY=hush\n",
        "; hush\n",
        "export AWS_SECRET_ACCESS_KEY=hush\n",
        'KEY="first\nhush=hush\nhush"\n',
        "KEY='first\nhush=hush\n'\n",
        "KEY=first\\\nhush=hush\n",
        "# a note\\\nhush=hush\n",
        'KEY="a \\" b\nhush=hush"\n',
        "hush\n",
    ],
)
def test_of_lines_that_are_no_plain_variable_nothing_is_shown(text: str) -> None:
    """R243"""
    shown = without_values(text)
    assert "hush" not in shown
    assert len(shown.splitlines()) == len(text.splitlines())
    assert "hush" not in names_in(text)


def test_a_value_of_several_lines_is_replaced_as_a_whole() -> None:
    """R243"""
    new = merged('A=1\nKEY="old\nB=old"\nC=3\n', {"KEY": "new"})
    assert new.text == 'A=1\nKEY="new"\nC=3\n'
    # A quote within a plain value opens nothing, and so the next line is another variable.
    assert merged("KEY=it's\nC=3\n", {"KEY": "new"}).text == 'KEY="new"\nC=3\n'


def test_a_variable_that_stands_twice_stands_once_when_it_is_given_anew() -> None:
    """R243: for systemd the last one counts."""
    new = merged("KEY=one\nA=1\nKEY=two\n", {"KEY": "new"})
    assert new.text == 'A=1\nKEY="new"\n'
    assert (new.added, new.changed) == ((), ("KEY",))


def test_keys_that_are_given_anew_take_the_token_of_those_before_along() -> None:
    """R243: with it the store would refuse them."""
    present = "AWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\nAWS_SESSION_TOKEN=c\nX=1\n"
    new = merged(present, {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"})
    assert new.text == 'AWS_ACCESS_KEY_ID="k"\nAWS_SECRET_ACCESS_KEY="s"\nX=1\n'
    assert new.removed == ("AWS_SESSION_TOKEN",)
    assert merged(present, {"AWS_REGION": "r"}).removed == ()


def test_a_value_that_no_line_holds_is_refused_by_the_variables_name() -> None:
    """R243"""
    with pytest.raises(Refused, match="KEY") as refused:
        line_of("KEY", "a\nsecret")
    assert "secret" not in str(refused.value)
