"""`stado profiles …`: which submit profiles there are, what one states, and whether files are
profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, profile_folder
from stado.cli.options import plain_text
from stado.cli.profile_option import known_profiles

if TYPE_CHECKING:
    from stado.core.profiles import Profile
    from stado.profile_files import ProfileFolder


@click.command()
@click.argument(
    "name", metavar="[NAME]", required=False, callback=plain_text, shell_complete=known_profiles
)
@json_option
def show(*, name: str | None, as_json: bool) -> None:
    """List the submit profiles; with NAME: print that one, as JSON.

    They are the ones that come with stado, or those of the folder that WC_PROFILES_DIR names.
    """
    from stado.cli import render

    folder = profile_folder()
    if name is not None:
        print_stated(folder.read(name))
        return
    names, profiles = find_all(folder)
    if as_json:
        found = [profile_fields(name, one) for name, one in zip(names, profiles, strict=True)]
        render.print_json({"folder": str(folder.path), "profiles": found})
        return
    print_profiles(names, profiles)
    if not names:
        render.tell(f"there is no profile in {folder.path}: put NAME.json there")
    else:
        render.tell(f"of {folder.path}; `stado profiles NAME` shows one")


def print_profiles(names: list[str], profiles: list[Profile | str]) -> None:
    """A row each; of one that is refused, why."""
    from stado.cli import render
    from stado.cli.tables import Column

    rows = [
        (name, _sizes(one), one.description)
        if not isinstance(one, str)
        else (name, "-", f"refused: {one}")
        for name, one in zip(names, profiles, strict=True)
    ]
    if rows:
        render.print_table((Column("NAME"), Column("SIZE"), Column("WHAT")), rows)


def find_all(folder: ProfileFolder) -> tuple[list[str], list[Profile | str]]:
    """The names, and of each what it states, or why it is refused."""
    names = folder.names()
    return names, [_find(folder, name) for name in names]


def _find(folder: ProfileFolder, name: str) -> Profile | str:
    from stado.errors import Refused

    try:
        return folder.read(name)
    except Refused as error:
        return error.text


def profile_fields(name: str, found: Profile | str) -> dict[str, Any]:
    """Of a list."""
    if isinstance(found, str):
        return {"name": name, "refused": found, "description": None, "stated": None}
    return {
        "name": name,
        "refused": None,
        "description": found.description or None,
        "stated": dict(found.stated),
    }


def _sizes(profile: Profile) -> str:
    """`2 GPUs, 8 cores, 32 GiB`, as far as it says so."""
    options = profile.options
    words = []
    cards, memory = options.get("gpus"), options.get("vram_gb")
    if cards is not None:
        words.append(f"{cards} GPU{'' if cards == 1 else 's'}")
    if memory is not None:
        words.append(f"{memory:g} GiB of {'a GPU' if cards is None else 'each'}")
    if "cpu" in options:
        words.append(f"{options['cpu']:g} core{'' if options['cpu'] == 1 else 's'}")
    if "memory_gb" in options:
        words.append(f"{options['memory_gb']:g} GiB")
    return ", ".join(words) or "-"


def print_stated(profile: Profile) -> None:
    """As it may stand in a file."""
    import json

    click.echo(json.dumps(dict(profile.stated), indent=2))


@click.command()
@click.argument("what", metavar="[FILE|NAME]", required=False, callback=plain_text)
@json_option
def check(*, what: str | None, as_json: bool) -> int:
    """Say whether profiles can be used: a file, one by its name, or else all of the folder, kinds
    of workloads too.

    FILE is a path: with a / in it, or .json at its end. Exits with 2 when one is refused.
    """
    from stado.cli import exits, render

    checked = _checked(what)
    flaws = {where: flaw for where, flaw in checked.items() if flaw is not None}
    if as_json:
        files = [{"file": where, "refused": flaw} for where, flaw in checked.items()]
        render.print_json({"files": files})
    else:
        for where, flaw in checked.items():
            if flaw is None:
                render.print_line(f"{where}: it can be used")
    for flaw in flaws.values():
        render.tell(f"stado: {flaw}")
    if not checked:
        render.tell(f"there is no profile in {profile_folder().path}: put NAME.json there")
    return exits.REFUSED if flaws else exits.OK


def _checked(what: str | None) -> dict[str, str | None]:
    """What is wrong by file; None: nothing."""
    from stado.profile_files import KINDS_FOLDER

    if what is None:
        folder = profile_folder()
        found: dict[str, str | None] = {}
        for one in (folder, folder.kinds):
            for name, profile in zip(*find_all(one), strict=True):
                flaw = profile if isinstance(profile, str) else None
                found[str(one.path / f"{name}.json")] = flaw
        return found
    if "/" not in what and not what.endswith(".json"):
        profile = profile_folder().read(what)
        return {profile.where: None}
    path = Path(what)
    among_kinds = path.parent.name == KINDS_FOLDER and not _is_profile_folder(path.parent)
    return {what: _flaw_of_file(path, kind=among_kinds)}


def _is_profile_folder(folder: Path) -> bool:
    """One that is called as those of kinds are may be that of the profiles."""
    from stado.errors import Refused

    try:
        return folder.resolve() == profile_folder().path.resolve()
    except Refused:
        return False


def _flaw_of_file(path: Path, *, kind: bool) -> str | None:
    from stado.core.profiles import NAME_PATTERN, PROFILE_SUFFIX, check_kind
    from stado.errors import Refused
    from stado.profile_files import read_file

    try:
        profile = read_file(path)
        if kind:
            check_kind(profile)
    except Refused as error:
        return error.text
    if not path.name.endswith(PROFILE_SUFFIX) or not NAME_PATTERN.fullmatch(profile.name):
        return (
            f"{path}: nobody finds it under that name: call it NAME.json, of letters, digits and "
            ". _ -"
        )
    return None
