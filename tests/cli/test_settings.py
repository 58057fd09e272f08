"""Which store counts: the strongest that names one, with what belongs to it and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.choice import choose
from stado.config_file import ConfigFile, read_config
from stado.errors import Refused
from stado.settings import Settings, config_path, from_environment, store_of
from tests.cli.conftest import Program, World

FILE = b"""\
# what I work on
store = "s3://top"
endpoint = "http://top"
region = "top"
context = "lab"

[contexts.lab]
store = "s3://lab"
endpoint = "http://lab"

[contexts.office]
store = "s3://office"
region = "office"
"""
CONFIG = read_config(FILE, "c.toml")
NO_FILE = ConfigFile()
NOTHING = Settings()


def chosen(
    options: Settings = NOTHING, environment: Settings = NOTHING, file: ConfigFile = CONFIG
) -> Settings:
    return choose(options, environment, file).settings


# The order


def test_each_place_is_asked_after_the_stronger_ones() -> None:
    """Options, --context, STADO_STORE, STADO_CONTEXT, the file's context, the file's store."""
    weakest = read_config(b'store = "s3://top"\n[contexts.lab]\nstore = "s3://lab"\n', "c")
    office = Settings(context="office")
    env = Settings("s3://env", context="office")
    assert chosen(Settings("s3://typed"), env).store == "s3://typed"
    assert chosen(office, Settings("s3://env", context="lab")).store == "s3://office"
    assert chosen(environment=env).store == "s3://env"
    assert chosen(environment=office).store == "s3://office"
    assert chosen().store == "s3://lab"
    assert chosen(file=weakest).store == "s3://top"
    assert chosen(file=NO_FILE).store is None


def test_the_context_is_told_only_when_it_is_what_was_chosen() -> None:
    assert chosen().context == "lab"
    assert chosen(environment=Settings("s3://env", context="office")).context is None
    assert chosen(Settings("s3://typed")).context is None


# What belongs to a store


def test_endpoint_and_region_come_from_where_the_address_comes_from() -> None:
    env = Settings("s3://env", "http://env", "env", context="office")
    assert chosen(Settings("s3://typed"), env) == Settings("s3://typed")
    assert chosen(Settings(context="office"), env) == Settings(
        "s3://office", None, "office", "office"
    )
    assert chosen(environment=env) == Settings("s3://env", "http://env", "env")
    assert chosen(environment=Settings(context="office")) == Settings(
        "s3://office", None, "office", "office"
    )
    assert chosen() == Settings("s3://lab", "http://lab", None, "lab")


def test_a_variable_left_over_without_its_store_reaches_no_other_store() -> None:
    left = Settings(endpoint="http://old", region="old")
    assert chosen(environment=left) == Settings("s3://lab", "http://lab", None, "lab")
    assert chosen(Settings("s3://typed"), left, NO_FILE) == Settings("s3://typed")


def test_an_option_replaces_what_belongs_to_the_store() -> None:
    typed = Settings(endpoint="http://typed")
    assert chosen(typed, Settings("s3://env", "http://env", "env")) == Settings(
        "s3://env", "http://typed", "env"
    )
    assert chosen(typed) == Settings("s3://lab", "http://typed", None, "lab")


def test_an_address_that_is_typed_again_means_the_store_that_has_it() -> None:
    """`stado init "$STADO_STORE"` beside STADO_ENDPOINT, for example."""
    env = Settings("s3://env", "http://env")
    assert chosen(Settings("s3://env"), env) == env
    assert chosen(Settings("s3://lab"), env) == Settings("s3://lab", "http://lab", None, "lab")
    assert chosen(Settings("s3://office"), env) == Settings("s3://office")  # it is not current


def test_two_stores_of_one_name_on_two_servers_are_not_mixed() -> None:
    file = read_config(b'[contexts.cloud]\nstore = "s3://jobs"\n', "c")
    here = Settings("s3://jobs", "http://here")
    assert chosen(Settings(context="cloud"), here, file) == Settings("s3://jobs", context="cloud")


def test_a_store_and_a_context_on_one_command_line_are_refused() -> None:
    with pytest.raises(Refused, match="a store and --context are both given"):
        chosen(Settings("s3://typed", context="lab"))


def test_a_context_that_does_not_exist_is_refused_where_it_counts() -> None:
    with pytest.raises(Refused, match=r"^--context: there is no context 'lap'; did you mean 'lab'"):
        chosen(Settings(context="lap"))
    with pytest.raises(Refused, match=r"^STADO_CONTEXT: there is no context 'x'; `stado context"):
        chosen(environment=Settings(context="x"))
    with pytest.raises(Refused, match=r"^c, line 2: there is no context 'lab', nor any other"):
        chosen(file=read_config(b'\ncontext = "lab"\n', "c"))
    assert chosen(Settings("s3://typed"), Settings(context="x")).store == "s3://typed"
    assert chosen(environment=Settings("s3://env", context="x")).store == "s3://env"


# Where each setting stands


def test_each_setting_tells_where_it_stands() -> None:
    choice = choose(Settings(region="typed"), Settings(), CONFIG)
    assert {key: str(one.origin) for key, one in choice.statements.items()} == {
        "store": "c.toml, line 8",
        "endpoint": "c.toml, line 9",
        "region": "--region",
        "context": "c.toml, line 5",
    }
    assert [(one.key, str(one.origin)) for one in choice.unused] == [
        ("store", "c.toml, line 2"),
        ("endpoint", "c.toml, line 3"),
        ("region", "c.toml, line 4"),
    ]


def test_what_the_environment_states_in_vain_is_told() -> None:
    choice = choose(Settings("s3://typed"), Settings(endpoint="http://old"), NO_FILE)
    ((key, value, origin),) = choice.unused
    assert (key, value, str(origin)) == ("endpoint", "http://old", "STADO_ENDPOINT")


# The environment


def test_an_empty_variable_counts_as_unset() -> None:
    assert from_environment({"STADO_STORE": "", "STADO_CONTEXT": ""}) == Settings()


@pytest.mark.parametrize(
    "settings",
    [
        Settings("s3://bucket", "http://localhost:1", None),
        Settings("s3://bucket"),
        Settings("s3://office", None, "office", "office"),
    ],
)
def test_a_child_is_told_the_same_store_whatever_else_stands_in_its_environment(
    settings: Settings,
) -> None:
    left = {"STADO_ENDPOINT": "http://old", "STADO_REGION": "old", "STADO_CONTEXT": "lab"}
    of_child = from_environment({**left, **settings.environment()})
    assert chosen(environment=of_child) == Settings(
        settings.store, settings.endpoint, settings.region
    )


# The file


def test_the_config_file_is_where_the_variable_says() -> None:
    assert config_path({}, Path("/home/ada")) == Path("/home/ada/.config/stado/config.toml")
    assert config_path({"STADO_CONFIG": "/etc/stado"}, Path("/home/ada")) == Path("/etc/stado")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'store = "a"\nregion = \n', "c.toml, line 2: Invalid value"),
        (
            b'store = "a"\nstroe = "b"\n',
            "c.toml, line 2: unknown key 'stroe'; did you mean 'store'?",
        ),
        (b'contxt = "b"\n', "c.toml, line 1: unknown key 'contxt'; did you mean 'context"),
        (b"\n\nstore = 3\n", "c.toml, line 3: store must be text"),
        (b'store = ""\n', "c.toml, line 1: store must be text"),
        (b'\nstore = "\xff"\n', "c.toml, line 2: not UTF-8"),
        (b"[store]\n", "c.toml, line 1: store must be text"),
        (b"contexts = 3\n", "c.toml, line 1: contexts must be a table: [contexts.NAME]"),
        (b'[contexts]\nlab = "x"\n', "c.toml, line 2: contexts.lab must be a table"),
        (
            b'store = "a"\n\n[contexts.lab]\nregion = "b"\n',
            "c.toml, line 3: the context lab names no store",
        ),
        (
            b'store = "a"\n[contexts.lab]\nstore = "a"\n[contexts.b]\nstore = 1\n',
            "c.toml, line 5: store must be text",
        ),
        (
            b'[contexts.lab]\nstore = "a"\ncontext = "b"\n',
            "c.toml, line 3: unknown key 'context': use endpoint, region, store",
        ),
        (b'[contexts."my lab"]\nstore = "a"\n', "c.toml, line 1: 'my lab' cannot name a context"),
    ],
)
def test_a_broken_file_is_named_with_its_line(data: bytes, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        read_config(data, "c.toml")
    assert refused.value.text.startswith(sentence)


def test_no_store_at_all_is_refused_with_every_way_to_name_one() -> None:
    with pytest.raises(Refused, match=r"--store.*STADO_STORE.*context add.*config\.toml.*init"):
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
    assert stado.refused("status", "--store", "s3://jobs").startswith(f"{config}, line 1: ")


def test_a_broken_config_file_is_not_in_the_way_of_a_folder_that_is_named(
    stado: Program, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "broken.toml"
    config.write_text("store = \n")
    monkeypatch.setenv("STADO_CONFIG", str(config))
    stado.ok("status", "--store", str(world.path))
    stado.ok("init", str(tmp_path / "other"))


def test_a_config_file_that_is_named_must_be_there(
    stado: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STADO_CONFIG", str(tmp_path / "nowhere"))
    assert "STADO_CONFIG names no file" in stado.refused("status")


def test_a_state_that_is_none_is_answered_with_the_near_one(stado: Program, world: World) -> None:
    sentence = stado.refused("status", "--state", "fail")
    assert "'fail' is no state; did you mean 'failed'? queued, running" in sentence
