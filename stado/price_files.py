"""Files of prices, as `--prices` of commands and of a coordinator reads them: TOML, with their
day.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from stado.core.costs import Catalog
from stado.errors import Refused

_CODE = "prices_unreadable"
_BUNDLED = Path(__file__).with_name("prices.toml")
_BYTES_MAX = 1 << 20
_PRICE_MAX = 100_000.0
_STORAGE = ("gb_month", "put_thousand", "get_thousand", "egress_gb")
_KNOWN = {"as_of", "source", "cards", "machines", "storage"}


def read_catalog(path: str | None) -> Catalog:
    """`path`: None means the catalog that comes with stado. Raises `Refused`, which names the file
    and what in it cannot be."""
    file = _BUNDLED if path is None else Path(path)
    try:
        with file.open("rb") as opened:
            data = opened.read(_BYTES_MAX + 1)
        if len(data) > _BYTES_MAX:
            raise Refused(_CODE, f"prices file {file} has more than {_BYTES_MAX:,} bytes")
        fields = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise Refused(_CODE, f"prices file {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused(_CODE, f"prices file {file} is no TOML: {error}") from None
    return _catalog(fields, file)


def _catalog(fields: Mapping[str, Any], file: Path) -> Catalog:
    _check_known(fields, _KNOWN, "it", file)
    as_of = fields.get("as_of")
    if not isinstance(as_of, date) or isinstance(as_of, datetime):
        raise _refused(file, f"as_of is {as_of!r}: state the day of its prices, as 2024-12-31")
    storage = _prices(fields.get("storage", {}), "storage", file)
    _check_known(storage, _STORAGE, "storage", file)
    return Catalog(
        as_of=as_of,
        source=str(fields.get("source", file.name)),
        cards=_prices(fields.get("cards", {}), "cards", file),
        machines=_prices(fields.get("machines", {}), "machines", file),
        **storage,
    )


def _check_known(table: Mapping[str, Any], known: Collection[str], what: str, file: Path) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise _refused(file, f"{what} has {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _prices(table: Any, name: str, file: Path) -> dict[str, float]:
    if not isinstance(table, dict):
        raise _refused(file, f"{name} is no table")
    for key, price in table.items():
        is_number = isinstance(price, int | float) and not isinstance(price, bool)
        if not is_number or not 0 <= price < _PRICE_MAX:
            raise _refused(file, f"{name}.{key} is {price!r}: state dollars, 0 or more")
    return {key: float(price) for key, price in table.items()}


def _refused(file: Path, why: str) -> Refused:
    return Refused(_CODE, f"prices file {file}: {why}")
