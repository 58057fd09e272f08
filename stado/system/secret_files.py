"""Which files look like secrets: by their names, and for some names by what is in them.

It is a net under people who forgot a file, no wall: a secret under any other name passes.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

_HEAD_BYTES = 64 * 1024

_NAMES = frozenset(
    {
        *(".env", ".envrc", ".netrc", "_netrc", ".pgpass", ".pypirc", ".git-credentials"),
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk"),
        *(".htpasswd", ".vault_pass", ".vault-token", ".boto", ".s3cfg"),
    }
)
_ENDINGS = (".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk")
_PLACES = (".aws/credentials", ".docker/config.json", ".kube/config")
_HARMLESS_ENV = re.compile(r"\.env\.(example|sample|template|dist|defaults?)", re.IGNORECASE)
_OTHER_ENV = re.compile(r"\.env\..+")

_KEY_ENDINGS = (".pem", ".key", ".p8", ".crt", ".cer")
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----")
_PRIVATE_KEY_IN_JSON = re.compile(rb'"(private_key|client_secret|refresh_token)"\s*:\s*"[^"]')
_TOKEN = re.compile(rb"_authToken\s*=\s*[^$\s]|_password\s*=\s*\S")


def why_secret(folder: Path, path: str) -> str | None:
    """Why a file looks like a secret, in a few words; None when it does not. Raises `OSError` when
    it cannot be read."""
    name = PurePosixPath(path).name
    lower = name.lower()
    if name in _NAMES or lower.endswith(_ENDINGS) or f"/{path}".endswith(_PLACES):
        return "by its name"
    if _OTHER_ENV.fullmatch(name) and not _HARMLESS_ENV.fullmatch(name):
        return "by its name"
    if lower.endswith(_KEY_ENDINGS):
        return "it holds a private key" if _holds(folder / path, _PRIVATE_KEY) else None
    if lower.endswith(".json"):
        return "it holds a key or a token" if _is_key_in_json(folder / path) else None
    if name == ".npmrc":
        return "it holds a token" if _holds(folder / path, _TOKEN) else None
    return None


def _is_key_in_json(path: Path) -> bool:
    if not _holds(path, _PRIVATE_KEY_IN_JSON):
        return False
    return "credential" in path.name.lower() or _holds(path, _PRIVATE_KEY)


def _holds(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """In its beginning: files of keys are small."""
    with path.open("rb") as file:
        return pattern.search(file.read(_HEAD_BYTES)) is not None
