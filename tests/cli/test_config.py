"""`stado config`: which settings count and why; changes that leave what people wrote."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.cli.config_changes import Change, changed_text
from stado.cli.context import read_settings
from stado.config_file import ConfigFile, read_config
from stado.target import Target
from tests.cli.conftest import Program, run_each


@pytest.fixture
def config(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config file of a user whose shell names no store."""
    monkeypatch.delenv("STADO_STORE")
    return Path(environment["HOME"], ".config/stado/config.toml")


def written(config: Path, text: str) -> None:
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text)


# Reading


def test_the_list_tells_each_setting_and_where_it_comes_from(
    stado: Program, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(config, '# mine\nstore = "s3://top"\nregion = "eu"\n')
    assert stado.ok("config", "list").splitlines() == [
        "SETTING   FROM                  VALUE",
        "store     config file, line 2   s3://top",
        "endpoint  -                     -",
        "region    config file, line 3   eu",
        "context   -                     -",
    ]
    monkeypatch.setenv("STADO_STORE", "s3://env")
    result = stado("config", "list", "--endpoint", "http://typed")
    assert result.stdout.splitlines()[1:3] == [
        "store     STADO_STORE           s3://env",
        "endpoint  --endpoint            http://typed",
    ]
    assert "does not count: region = eu (config file, line 3)" in result.stderr
    assert f"the config file is {config}" in result.stderr


def test_the_list_as_a_document(
    stado: Program, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(config, 'store = "s3://top"\n[contexts.lab]\nstore = "s3://lab"\n')
    monkeypatch.setenv("STADO_CONTEXT", "lab")
    listed = stado.json("config", "list", "--region", "eu")
    file = str(config)
    by_key = {one.pop("key"): one for one in listed["settings"]}
    assert by_key == {
        "store": {"value": "s3://lab", "source": "file", "where": file, "line": 3},
        "endpoint": {"value": None, "source": "default", "where": None, "line": None},
        "region": {"value": "eu", "source": "option", "where": "--region", "line": None},
        "context": {
            "value": "lab",
            "source": "environment",
            "where": "STADO_CONTEXT",
            "line": None,
        },
    }
    assert [one["value"] for one in listed["unused"]] == ["s3://top"]


def test_the_server_of_a_bucket_that_is_named_elsewhere_is_noted_to_be_idle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Requests would go to another server without a word."""
    monkeypatch.setenv("STADO_CONFIG", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("STADO_STORE", raising=False)
    monkeypatch.setenv("STADO_ENDPOINT", "http://127.0.0.1:9")
    assert read_settings(Target("s3://lab", None, None)).endpoint is None
    assert "note: STADO_ENDPOINT is not used: the store s3://lab" in capsys.readouterr().err
    for quiet in (Target("s3://lab", "http://typed", None), Target(str(tmp_path), None, None)):
        read_settings(quiet)
    monkeypatch.setenv("STADO_STORE", "s3://lab")
    assert read_settings(Target("s3://lab", None, None)).endpoint == "http://127.0.0.1:9"
    assert capsys.readouterr().err == ""


def test_one_value_is_printed_alone(stado: Program, config: Path) -> None:
    written(config, 'store = "s3://top"\n')
    assert stado.ok("config", "get", "store") == "s3://top"
    result = stado("config", "get", "region")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "stado: region is not set\n")


def test_the_path_is_told_whether_or_not_the_file_is_there(
    stado: Program, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stado.ok("config", "path") == str(config)
    monkeypatch.setenv("STADO_CONFIG", str(tmp_path / "mine.toml"))
    assert stado.json("config", "path") == {
        "schema": 1,
        "path": str(tmp_path / "mine.toml"),
        "exists": False,
    }


# Writing


def test_the_first_setting_makes_the_file_and_its_folders(stado: Program, config: Path) -> None:
    stado.ok("config", "set", "store", "s3://jobs/stado")
    assert config.read_text() == 'store = "s3://jobs/stado"\n'
    assert stado.ok("config", "get", "store") == "s3://jobs/stado"


def test_what_is_unset_is_gone_and_unsetting_it_again_is_no_mistake(
    stado: Program, config: Path
) -> None:
    written(config, '# mine\nstore = "s3://jobs"  # the bucket\nregion = "eu"\n')
    assert stado("config", "unset", "store").stderr == f"{config}: store is removed\n"
    assert config.read_text() == '# mine\nregion = "eu"\n'
    assert stado("config", "unset", "store").stderr == f"{config}: store is not set\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("set", "stor", "x"), "there is no setting 'stor'; did you mean 'store'?"),
        (("unset", "qqq"), "there is no setting 'qqq': the keys are store, endpoint"),
        (("get", "regoin"), "did you mean 'region'?"),
        (("set", "contexts.lab.store", "x"), "`stado context add NAME --replace …` changes"),
        (("set", "store", "s3:/x"), "did you mean s3://x?"),
        (("set", "store", ""), "store needs a value: `stado config unset store`"),
        (("set", "endpoint", "x:1"), "an endpoint is a URL"),
        (("set", "context", "lab"), "there is no context 'lab', nor any other"),
        (("set", "region", "\udcff"), "is not valid UTF-8"),
    ],
)
def test_what_cannot_be_a_setting_is_refused_and_nothing_is_written(
    stado: Program, config: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in stado.refused("config", *arguments)
    assert not config.exists()


def test_a_folder_is_written_with_its_whole_path(
    stado: Program, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stado.ok("config", "set", "store", "queue")
    assert stado.ok("config", "get", "store") == str(tmp_path / "queue")


def test_a_setting_that_does_not_count_is_told(
    stado: Program, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stado.ok("context", "add", "lab", "--store", "s3://lab", "--use")
    assert "but here the context lab" in stado("config", "set", "store", "s3://other").stderr
    stado.ok("config", "unset", "context")
    assert "counts first" not in stado("config", "set", "store", "s3://other").stderr
    stado.ok("config", "unset", "store")
    assert "does not count before a store is named" in stado("config", "set", "region", "eu").stderr


def test_a_file_that_is_a_link_stays_one_and_keeps_its_mode(
    stado: Program, config: Path, tmp_path: Path
) -> None:
    real = tmp_path / "dotfiles/stado.toml"
    written(real, 'region = "eu"\n')
    real.chmod(0o640)
    config.parent.mkdir(parents=True)
    config.symlink_to(real)
    stado.ok("config", "set", "store", "s3://jobs")
    assert config.is_symlink()
    assert real.read_text() == 'region = "eu"\nstore = "s3://jobs"\n'
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_readers_find_the_old_file_or_the_new_one(stado: Program, config: Path) -> None:
    """A new file takes the name of the old one, which stays as it was for who has it open."""
    written(config, 'store = "s3://old"\n')
    with config.open() as opened:
        stado.ok("config", "set", "store", "s3://new")
        assert opened.read() == 'store = "s3://old"\n'
    assert sorted(os.listdir(config.parent)) == [".config.toml.lock", "config.toml"]


def test_what_a_killed_writer_left_is_in_nobodys_way(stado: Program, config: Path) -> None:
    written(config, 'store = "s3://old"\n')
    (config.parent / ".config.toml.new").write_text("half of")
    stado.ok("config", "set", "store", "s3://new")
    assert config.read_text() == 'store = "s3://new"\n'
    assert not (config.parent / ".config.toml.new").exists()


def test_writers_at_once_lose_nothing(config: Path, environment: dict[str, str]) -> None:
    written(config, "# mine\n")
    code = (
        "import sys\n"
        "from stado.cli.contexts import add_context\n"
        "from stado.settings import Settings\n"
        "for number in range(25):\n"
        "    store = Settings(f's3://{sys.argv[1]}-{number}')\n"
        "    add_context(f'{sys.argv[1]}-{number}', store, use=True, replace=False)\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        for name in ("a", "b", "c")
    ]
    assert [ended[0] for ended in run_each(writers)] == [0, 0, 0]
    file = read_config(config.read_bytes(), "c")
    assert set(file.contexts) == {f"{name}-{number}" for name in "abc" for number in range(25)}
    assert file.text.startswith("# mine\n")


def test_a_file_that_cannot_be_written_is_named(
    stado: Program, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STADO_CONFIG", str(tmp_path / "file/config.toml"))
    assert stado.refused("config", "set", "store", "s3://other") == (
        f"{tmp_path}/file/config.toml cannot be changed: File exists ({tmp_path}/file)"
    )


def test_a_folder_in_place_of_the_file_is_named(stado: Program, config: Path) -> None:
    config.mkdir(parents=True)
    assert stado.refused("config", "set", "store", "s3://other").startswith(f"{config} cannot be ")


def test_a_broken_file_is_not_overwritten(stado: Program, config: Path) -> None:
    written(config, "store = \n")
    assert f"{config}, line 1: Invalid value" in stado.refused("config", "set", "region", "eu")
    assert config.read_text() == "store = \n"


# What people wrote stays

WRITTEN = """\
# Where my jobs are.
store = 'a'   # the old one
newer_key = { of = "a newer stado" }

# The lab's.
[contexts.lab]  # ask Bo
store = "x"
# its server
endpoint = "http://x"

# The office's.
[contexts.office]
store = "y"

[console]
port = 1
# the end"""


def after(text: str, *changes: Change) -> str:
    return changed_text(read_config(text.encode(), "c", unknown_keys=True), changes)


def test_a_changed_value_changes_nothing_else() -> None:
    assert after(WRITTEN, Change(("store",), "b")) == WRITTEN.replace("'a'   #", '"b"   #')
    lab = Change(("contexts", "lab", "endpoint"), "http://z")
    assert after(WRITTEN, lab) == WRITTEN.replace("http://x", "http://z")


def test_a_new_setting_comes_after_the_others_and_before_the_comment_of_the_first_table() -> None:
    region = Change(("region",), "eu")
    newer = 'newer_key = { of = "a newer stado" }\n'
    assert after(WRITTEN, region) == WRITTEN.replace(newer, f'{newer}region = "eu"\n')
    assert after('# mine\n\n# lab\n[contexts.lab]\nstore = "x"', region) == (
        '# mine\n\nregion = "eu"\n\n# lab\n[contexts.lab]\nstore = "x"'
    )
    assert after("# only this", region) == '# only this\nregion = "eu"\n'


def test_a_new_key_of_a_context_comes_after_its_others() -> None:
    change = Change(("contexts", "office", "region"), "eu")
    assert after(WRITTEN, change) == WRITTEN.replace(
        'store = "y"\n', 'store = "y"\nregion = "eu"\n'
    )


def test_a_new_context_comes_last() -> None:
    change = Change(("contexts", "new", "store"), "n")
    assert after(WRITTEN, change) == f'{WRITTEN}\n\n[contexts.new]\nstore = "n"\n'


def test_a_removed_context_takes_no_comment_of_another_with_it() -> None:
    begin = WRITTEN.index("[contexts.lab]")
    end = WRITTEN.index("# The office's.")
    assert after(WRITTEN, Change(("contexts", "lab"), None)) == WRITTEN[:begin] + WRITTEN[end:]
    last = 'store = "a"\n\n[contexts.lab]\nstore = "x"\n'
    assert after(last, Change(("contexts", "lab"), None)) == 'store = "a"\n'


@pytest.mark.parametrize(
    "text",
    [
        'contexts = { lab = { store = "x" } }\n',
        'contexts.lab.store = "x"\n',
        '[contexts]\nlab.store = "x"\n',
        '[contexts]\nlab = { store = "x" }\n',
        '[contexts."lab"]\n"store" = "x"\n',
        '[contexts.lab]\nstore = """\nx\n[contexts.b]\nstore = "y" """\n',
        '[contexts.lab]\nstore = "x"\n[other]\na = [\n  1,\n]\n[contexts.c]\nstore = "z"\n',
        'note = """\nstore = 1\n"""\r\n[contexts.lab]\r\nstore = "x"\r\n',
        '[contexts.lab]\nstore = "x"',
        '[other]\n[contexts.lab]\nstore = "x"\n',
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        Change(("store",), 'a "quoted" \\ path'),
        Change(("contexts", "lab", "store"), "n"),
        Change(("contexts", "lab", "region"), "n"),
        Change(("contexts", "new", "store"), "n"),
        Change(("contexts", "lab"), None),
        Change(("store",), None),
    ],
)
def test_however_a_file_is_written_a_change_means_what_it_should(text: str, change: Change) -> None:
    """And all else means what it meant."""
    meant = tomllib.loads(text)
    *parents, key = change.path
    table = meant
    for parent in parents:
        table = table.setdefault(parent, {})
    if change.value is None:
        table.pop(key, None)
    else:
        table[key] = change.value
    changed = tomllib.loads(after(text, change))
    changed.setdefault("contexts", {})
    meant.setdefault("contexts", {})
    assert changed == meant


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_text_can_be_a_value(value: str) -> None:
    text = changed_text(ConfigFile(), [Change(("region",), value)])
    assert tomllib.loads(text) == {"region": value}


def test_without_a_home_nothing_is_written_into_a_folder_of_that_sign(
    stado: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> NoReturn:
        raise KeyError(uid)

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert "HOME" in stado.refused("config", "set", "region", "eu-central-1")
    assert not (tmp_path / "~").exists()
