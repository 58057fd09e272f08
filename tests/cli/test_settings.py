"""Options beat the environment, which beats the config file; what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.errors import Refused
from stado.settings import Settings, config_path, from_config, from_environment, store_of
from tests.cli.conftest import Program, World


def test_options_beat_the_environment_which_beats_the_file() -> None:
    file = from_config(b'store = "file"\nendpoint = "http://file"\nregion = "file"\n', "c")
    environment = from_environment({"STADO_STORE": "env", "STADO_ENDPOINT": "http://env"})
    assert Settings(store="option").over(environment).over(file) == Settings(
        "option", "http://env", "file"
    )


def test_an_empty_variable_counts_as_unset() -> None:
    assert from_environment({"STADO_STORE": ""}) == Settings()


def test_a_child_is_told_the_same_by_its_environment() -> None:
    settings = Settings("s3://bucket", "http://localhost:1", None)
    assert from_environment(settings.environment()) == settings


def test_the_config_file_is_where_the_variable_says() -> None:
    assert config_path({}, Path("/home/ada")) == Path("/home/ada/.config/stado/config.toml")
    assert config_path({"STADO_CONFIG": "/etc/stado"}, Path("/home/ada")) == Path("/etc/stado")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'store = "a"\nregion = \n', "c.toml, line 2: Invalid value"),
        (b'store = "a"\nstroe = "b"\n', "c.toml, line 2: unknown key 'stroe'"),
        (b"\n\nstore = 3\n", "c.toml, line 3: store must be text"),
        (b'store = ""\n', "c.toml, line 1: store must be text"),
        (b'\nstore = "\xff"\n', "c.toml, line 2: not UTF-8"),
        (b"[store]\n", "c.toml, line 1: store must be text"),
    ],
)
def test_a_broken_file_is_named_with_its_line(data: bytes, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        from_config(data, "c.toml")
    assert refused.value.text.startswith(sentence)


def test_no_store_at_all_is_refused_with_every_way_to_name_one() -> None:
    with pytest.raises(Refused, match=r"--store.*STADO_STORE.*config\.toml.*stado init"):
        store_of(Settings())


def test_a_command_takes_the_store_from_the_config_file(
    stado: Program, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "home/.config/stado/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'store = "{world.path}"\n')
    monkeypatch.delenv("STADO_STORE")
    assert stado.json("status")["jobs"] == []


def test_a_broken_config_file_stops_a_command(
    stado: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "broken.toml"
    config.write_text("store = \n")
    monkeypatch.setenv("STADO_CONFIG", str(config))
    assert stado.refused("status").startswith(f"{config}, line 1: ")


def test_a_config_file_that_is_named_must_be_there(
    stado: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STADO_CONFIG", str(tmp_path / "nowhere"))
    assert "STADO_CONFIG names no file" in stado.refused("status")
