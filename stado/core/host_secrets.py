"""What the owner of a host may state of where its secrets are. Pure."""

from __future__ import annotations

import re
from pathlib import PurePath

from stado.errors import Refused

_SAFE_ENDPOINT = re.compile(r"https://[^@/]+(/|\Z)|http://(127\.0\.0\.1|localhost)(:[0-9]+)?(/|\Z)")
"""What does not leave this machine needs no encryption."""


def check_secret_options(
    *, folder: PurePath | None, service: str | None, endpoint: str | None
) -> None:
    """Raises `Refused` for what cannot be meant."""
    if folder is not None and service is not None:
        raise Refused(
            "secrets_ambiguous",
            f"secrets come from the folder {folder} or from {service}, not from both: give one of "
            "--secrets-dir and --secrets-from",
        )
    if endpoint is not None and not _SAFE_ENDPOINT.match(endpoint):
        raise Refused(
            "secrets_endpoint_unsafe",
            f"secrets endpoint {endpoint!r} is no https:// address: tokens and secrets would "
            "travel unencrypted",
        )
