"""The rules that hold the layers apart. Each takes a module and gives the places that break it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping

from tests.architecture.source import Module, Place, imports, is_in, literals, names_used

ENTRY_POINTS = (
    *("stado.cli.context", "stado_agent.main", "stado_coordinator.main"),
    *("stado.api", "stado.in_job"),
)
"""They alone read the environment; they build adapters, by `stado.composition` or themselves."""

OWN_PACKAGES = ("stado", "stado_agent", "stado_coordinator")

FACADE = ("stado.api", "stado.in_job", "stado.errors")
"""What `import stado` shows: its own module names these, and imports them when they are used."""

_USE_CASES = (
    *("stado.errors", "stado.ports", "stado.sizes", "stado.reports"),
    *("stado.core", "stado.jobs", "stado.storage.port"),
)
_SETTINGS = ("stado.settings", "stado.config_file", "stado.choice")
_PROGRAMS = (*_USE_CASES, *_SETTINGS, "stado.host_options", "stado.target", "stado.version")
_BUILDING = (
    *("stado.composition", "stado.system"),
    *("stado.storage.open", "stado.storage.trouble"),
)

LAYERS: Mapping[str, tuple[str, ...]] = {
    # The longest name that fits a module says what of ours it may import besides its own layer.
    "stado": (),
    "stado.errors": (),
    "stado.sizes": (),
    "stado.ports": ("stado.errors",),
    "stado.settings": ("stado.errors",),
    "stado.config_file": ("stado.errors", "stado.settings"),
    "stado.choice": ("stado.errors", "stado.settings", "stado.config_file"),
    "stado.reports": (),
    "stado.in_job": ("stado.reports",),
    "stado.core": ("stado.errors", "stado.reports"),
    "stado.storage": ("stado.errors", "stado.ports"),
    "stado.system": ("stado.errors", "stado.ports", "stado.sizes"),
    "stado.jobs": _USE_CASES,
    "stado.providers": ("stado.errors", "stado.ports", "stado.core"),
    # What the three programs share when they are put together.
    "stado.composition": (
        *_USE_CASES,
        *_SETTINGS,
        "stado.system",
        "stado.storage.open",
        "stado.storage.trouble",
        "stado.storage.trouble_log",
        "stado.storage.meter",
    ),
    "stado.pinning": (*_USE_CASES, "stado.code_pinning", "stado.system"),
    "stado.profile_files": (*_USE_CASES, "stado.pinning"),
    "stado.price_files": ("stado.errors", "stado.core"),
    "stado.code_pinning": (*_USE_CASES, "stado.pinning", "stado.system"),
    "stado.api": (
        *_USE_CASES,
        *_SETTINGS,
        *_BUILDING,
        "stado.composition",
        "stado.pinning",
        "stado.profile_files",
    ),
    "stado.version": (),
    "stado.host_options": (),
    "stado.target": (),
    "stado.services": ("stado.errors",),
    # The conformance suite is what `stado doctor` runs; the composition names the machine's type.
    "stado.cli": (
        *_PROGRAMS,
        "stado.composition",
        "stado.pinning",
        "stado.profile_files",
        "stado.price_files",
        "stado.services",
        "stado.storage.open",
        "stado.storage.bucket_rules",
        "stado.storage.contract",
        "stado.storage.trouble",
    ),
    "stado.cli.context": (
        *_PROGRAMS,
        *_BUILDING,
        "stado.profile_files",
        "stado.services",
        "stado.cli",
    ),
    "stado.console": (*_PROGRAMS, "stado.storage.open"),
    "stado_agent": _PROGRAMS,
    "stado_agent.main": (*_PROGRAMS, *_BUILDING, "stado_agent"),
    "stado_coordinator": (*_PROGRAMS, "stado.providers.port"),
    "stado_coordinator.main": (
        *_PROGRAMS,
        *_BUILDING,
        "stado.price_files",
        "stado_coordinator",
        "stado.providers",
    ),
}

_SECRETS_AWS, _SECRETS_GCP = "stado_agent.secret_aws", "stado_agent.secret_gcp"
_S3 = ("stado.storage.s3", "stado.storage.s3_clients", "stado.storage.s3_errors")
_GCS = ("stado.storage.gcs", "stado.storage.gcs_session", "stado.storage.gcs_errors")

FOREIGN_PACKAGES: Mapping[str, tuple[str, ...]] = {
    # Who may import a package that is not ours.
    "boto3": (*_S3, "stado.providers.aws", _SECRETS_AWS),
    "botocore": (*_S3, "stado.providers.aws", _SECRETS_AWS),
    "google": (*_GCS, "stado.providers.gcp", _SECRETS_GCP),
    "requests": (*_GCS, _SECRETS_GCP),
    "urllib3": (*_GCS, "stado.storage.s3_errors"),
    "tenacity": ("stado.storage",),
    "cronsim": ("stado.core.cron",),
    "psutil": ("stado.system",),
    "pynvml": ("stado.system.nvml_probe",),
    "pathspec": ("stado.system",),
    "msgspec": ("stado.core",),
    "click": (
        "stado.cli",
        "stado.host_options",
        "stado.target",
        "stado_agent.main",
        "stado_coordinator.main",
    ),
    "rich": ("stado.cli", "stado.console"),
    "tomlkit": ("stado.cli.config_changes",),
}

IMPURE_MODULES = (
    *("asyncio", "concurrent", "fcntl", "io", "logging", "multiprocessing", "os", "platform"),
    *("random", "secrets", "select", "shutil", "signal", "socket", "subprocess", "sys"),
    *("tempfile", "threading", "time", "uuid"),
)
"""What of the standard library the core must not know: it decides, it does nothing."""

MACHINE_MODULES = (
    *("time", "random", "uuid", "secrets", "threading", "subprocess"),
    *("asyncio", "concurrent", "multiprocessing", "sched"),
)
"""What only `stado.system` imports: everybody else is handed a port."""

_CLOCK_READS = re.compile(r"(.*\.)?(datetime\.(now|utcnow|today)|date\.today)")
_ENVIRONMENT_READS = re.compile(r"os\.(environb?|getenvb?|putenv|unsetenv)\b.*")
_MACHINE_CALLS = re.compile(r"os\.(fork|forkpty|urandom|getrandom|posix_spawnp?|system|popen)")

_KEY_PREFIXES = (
    *("queue", "running", "paused", "completed", "failed", "cancelled", "timed_out"),
    *("artifacts", "capacity", "control", "index", "ledger", "pipelines", "policies", "quota"),
    *("runs", "schedules", "snapshots", "status"),
)
_KEY_LITERAL = re.compile(rf"({'|'.join(_KEY_PREFIXES)})/\S*")


def imports_against_the_layers(module: Module) -> Iterator[Place]:
    layer = max((name for name in LAYERS if module.is_in(name)), key=len)
    allowed = (*LAYERS[layer], *([] if layer == "stado" else [layer]))
    if module.name == "stado":
        allowed = FACADE
    for line, name in imports(module):
        if name.startswith("."):
            yield Place(module.name, line, f"imports {name} relatively")
        elif is_in(name, *OWN_PACKAGES) and not is_in(name, *allowed):
            yield Place(module.name, line, f"{layer} must not import {name}")


def foreign_imports_in_a_wrong_place(module: Module) -> Iterator[Place]:
    for line, name in imports(module):
        package = name.partition(".")[0]
        if package in sys.stdlib_module_names or package in OWN_PACKAGES or not package:
            continue
        allowed = FOREIGN_PACKAGES.get(package, ())
        if not module.is_in(*allowed):
            places = ", ".join(allowed) or "no module yet"
            yield Place(module.name, line, f"imports {name}: that is for {places}")


def impure_imports_in_the_core(module: Module) -> Iterator[Place]:
    if not module.is_in("stado.core"):
        return
    for line, name in imports(module):
        if is_in(name, *IMPURE_MODULES):
            yield Place(module.name, line, f"the core must not import {name}")


def key_literals_outside_keys(module: Module) -> Iterator[Place]:
    if module.is_in("stado.core.keys"):
        return
    for line, text in literals(module):
        if _KEY_LITERAL.fullmatch(text):
            yield Place(module.name, line, f"spells a key, {text!r}: that is for stado.core.keys")


def machine_access_outside_system(module: Module) -> Iterator[Place]:
    if module.is_in("stado.system"):
        return
    for line, name in imports(module):
        if is_in(name, *MACHINE_MODULES):
            yield Place(module.name, line, f"imports {name}: take a port of stado.ports")
    for line, name in names_used(module):
        if _CLOCK_READS.fullmatch(name) or _MACHINE_CALLS.fullmatch(name):
            yield Place(module.name, line, f"uses {name}: take a port of stado.ports")


def environment_reads_outside_entry_points(module: Module) -> Iterator[Place]:
    if module.is_in("stado.system", *ENTRY_POINTS):
        return
    for line, name in names_used(module):
        if _ENVIRONMENT_READS.fullmatch(name):
            yield Place(module.name, line, f"uses {name}: that is for {', '.join(ENTRY_POINTS)}")


def bare_excepts(module: Module) -> Iterator[Place]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield Place(module.name, node.lineno, "excepts everything without naming it")
