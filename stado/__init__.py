"""A job queue whose whole state lives in one bucket or directory, from Python.

Programs that submit: `submit`, `job`, `batch`. Programs that run as jobs: `checkpoint`,
`latest_checkpoint`, `progress`, `live`, `metrics`, `result`, `refuse`. Each is imported when it is
used.
"""

TYPE_CHECKING = False  # as `typing` has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from stado.api import (
        Job,
        JobOptions,
        Status,
        batch,
        job,
        submit,
    )
    from stado.errors import (
        JobCancelled,
        JobError,
        JobFailed,
        JobTimedOut,
        NotFinished,
        Refused,
        ResultLost,
        StadoError,
    )
    from stado.in_job import (
        Checkpoint,
        checkpoint,
        latest_checkpoint,
        live,
        metrics,
        progress,
        refuse,
        result,
    )

_PLACES = {
    "Checkpoint": "in_job",
    "Job": "api",
    "JobCancelled": "errors",
    "JobError": "errors",
    "JobFailed": "errors",
    "JobOptions": "api",
    "JobTimedOut": "errors",
    "NotFinished": "errors",
    "Refused": "errors",
    "ResultLost": "errors",
    "StadoError": "errors",
    "Status": "api",
    "batch": "api",
    "checkpoint": "in_job",
    "job": "api",
    "latest_checkpoint": "in_job",
    "live": "in_job",
    "metrics": "in_job",
    "progress": "in_job",
    "refuse": "in_job",
    "result": "in_job",
    "submit": "api",
}

__all__ = [
    "Checkpoint",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobOptions",
    "JobTimedOut",
    "NotFinished",
    "Refused",
    "ResultLost",
    "StadoError",
    "Status",
    "batch",
    "checkpoint",
    "job",
    "latest_checkpoint",
    "live",
    "metrics",
    "progress",
    "refuse",
    "result",
    "submit",
]


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'stado' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"stado.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
