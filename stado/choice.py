"""Which of the stores that are named counts.

The endpoint and the region of a store come from where its address comes from: a request that is
meant for one store never reaches the server of another. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from stado.config_file import CONTEXTS, ConfigFile
from stado.errors import Refused
from stado.settings import Origin, OriginKind, Settings, variable_of

_BUCKETS = ("s3://", "gs://")


class Statement(NamedTuple):
    """A setting, and where it stands."""

    key: str
    value: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings that count, and what is stated besides. `settings.context` is the context that
    was chosen; None when the store was named in another way."""

    settings: Settings
    statements: Mapping[str, Statement]
    """By key, of what counts."""

    unused: list[Statement]


class _Place(NamedTuple):
    """What is stated together. A context that does not exist has a name, and no store."""

    settings: Settings
    origins: Mapping[str, Origin]

    def statements(self) -> dict[str, Statement]:
        return {
            key: Statement(key, value, self.origins[key]) for key, value in self.settings.stated()
        }


_NOWHERE = _Place(Settings(), {})


def choose(options: Settings, environment: Settings, file: ConfigFile) -> Choice:
    """The first of these that names a store decides: `--store`, `--context`, `STADO_STORE`,
    `STADO_CONTEXT`, the file's `context`, the file's `store`.

    Endpoint and region come from the same place; `--endpoint` and `--region` replace them. An
    address that is typed means the first of the others that is named by this very address, if one
    is. Raises `Refused` when both `--store` and `--context` are given, and when a context decides
    that does not exist."""
    if options.store is not None and options.context is not None:
        raise Refused(
            "store_named_twice", "a store and --context are both given: leave out one of them"
        )
    places = list(_places(options, environment, file))
    typed, naming = places[0], _first_that_names(places)
    if naming.settings.context is not None and naming.settings.store is None:
        _refuse_context(naming, file)
    whole = _same_store(places) if naming is typed else naming
    statements = whole.statements() | typed.statements()
    return Choice(
        Settings(**{key: statement.value for key, statement in statements.items()}),
        statements,
        [
            statement
            for place in places
            if place is not whole and place is not typed
            for statement in place.statements().values()
        ],
    )


def idle_endpoint_text(choice: Choice) -> str | None:
    """Of the server of a bucket that the environment states, and that is not the one of the bucket
    that was chosen: requests go to another server, and people have to know. None: all is well."""
    store = choice.settings.store or ""
    if not store.startswith(_BUCKETS) or choice.settings.endpoint is not None:
        return None
    for one in choice.unused:
        if one.key == "endpoint" and one.origin.kind is OriginKind.ENVIRONMENT:
            return (
                f"{one.origin} is not used: the store {store} is not named by "
                f"{variable_of('store')}, and only that goes with it; --endpoint says it for this "
                "one"
            )
    return None


def _places(options: Settings, environment: Settings, file: ConfigFile) -> Iterator[_Place]:
    """The strongest first, which is what was typed but for a context."""
    for settings, kind in ((options, OriginKind.OPTION), (environment, OriginKind.ENVIRONMENT)):
        origins = {key: _origin(kind, key) for key, _ in settings.stated()}
        yield _Place(replace(settings, context=None), origins)
        if settings.context is not None:
            yield _context(file, settings.context, chosen_by=origins["context"])
    if file.top.context is not None:
        yield _context(file, file.top.context, chosen_by=file.origin("context"))
    origins = {key: file.origin(key) for key, _ in file.top.stated()}
    yield _Place(replace(file.top, context=None), origins)


def _origin(kind: OriginKind, key: str) -> Origin:
    return Origin(kind, f"--{key}" if kind is OriginKind.OPTION else variable_of(key))


def _context(file: ConfigFile, name: str, *, chosen_by: Origin) -> _Place:
    settings = file.contexts.get(name, Settings())
    origins = {key: file.origin(CONTEXTS, name, key) for key, _ in settings.stated()}
    return _Place(replace(settings, context=name), {**origins, "context": chosen_by})


def _first_that_names(places: list[_Place]) -> _Place:
    for place in places:
        if place.settings.store is not None or place.settings.context is not None:
            return place
    return _NOWHERE


def _same_store(places: list[_Place]) -> _Place:
    typed = places[0].settings.store
    return next((place for place in places[1:] if place.settings.store == typed), _NOWHERE)


def _refuse_context(place: _Place, file: ConfigFile) -> None:
    try:
        file.context(place.settings.context or "")
    except Refused as error:
        raise Refused(error.code, f"{place.origins['context']}: {error.text}") from None
