"""Staged work: files of jobs that are not committed yet, and what garbage collections have to know of them.

A job with many tasks stores the results of its tasks under ``staging/<place>/``, so that another process can
continue if the first one dies (`frazil.jobs.staging` writes and reads these files). Only these files refer to
the chunks of the job. Before the job writes anything it takes a lease with a name of its own,
``leases/job.<place>`` (``leases``), so that garbage collections spare all files that are not older than the
job. So a collection need not read staged files:

    with a lease     the job runs, or can be resumed: its files and its chunks stay
    without a lease  the job has committed or was given up, or is older than ``RETENTION``: its staged files
                     are garbage

A job can be resumed for ``LIFETIME``, and so long its session lives. Its lease is longer than that, so that
no job is resumed while its files are collected. A commit looks back on collections as always
(``collection_guard``), also on those of other implementations, which know nothing of leases.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from frazil.errors import StorageError
from frazil.repository.catalog.leases import LEASES, LONGEST, Lease
from frazil.repository.clock import from_datetime, now_us
from frazil.storage.base import ObjectInfo, Storage

STAGING: Final = "staging"
#: How long after its start a job can be resumed.
LIFETIME: Final = timedelta(days=7)
#: How long the staged files of a job stay, and garbage collections spare its chunks.
RETENTION: Final = LONGEST

_JOB: Final = "job."
_MICROSECOND: Final = timedelta(microseconds=1)
#: Two drivers may begin one job within this time, each with a lease of its own; the later lease stays.
_MARGIN_US: Final = timedelta(hours=1) // _MICROSECOND
_log = logging.getLogger(__name__)


def place_of(branch: str, job: str) -> str:
    """The folder of a job below ``staging/``: its id may be any text.

    >>> place_of("main", "monday") == place_of("main", "monday") != place_of("dev", "monday")
    True
    """
    return hashlib.sha256(f"{branch}\0{job}".encode()).hexdigest()[:24]


def take_lease(
    storage: Storage, place: str, since: int, started: int, purpose: str, *, resumes: bool = False
) -> Lease:
    """Spare files not older than ``since`` until ``RETENTION`` after ``started``. Both are microseconds since
    1970, by this host's clock. ``purpose`` describes the job to people.

    A job that begins replaces the lease of an earlier one. A job that ``resumes`` takes one only if there is
    none: the host that began it knew its age without comparing two clocks.
    """
    until = started + RETENTION // _MICROSECOND
    return Lease.take(storage, since - _MARGIN_US, until, _lease_key(place), purpose, only_if_absent=resumes)


def place_of_lease(key: str) -> str | None:
    """The folder of the job that holds a lease; None for the lease of a session."""
    name = key.removeprefix(f"{LEASES}/")
    return name.removeprefix(_JOB) if name.startswith(_JOB) else None


def give_up(storage: Storage, place: str) -> None:
    """Delete the lease and all staged files of a job."""
    storage.delete([_lease_key(place)])
    storage.delete([info.key for info in storage.list(f"{STAGING}/{place}")])


def clean_up(storage: Storage, place: str) -> None:
    """``give_up``; files that the storage does not delete become garbage."""
    with suppress(StorageError):
        give_up(storage, place)


def delete_abandoned(storage: Storage, older_than: int) -> int:
    """Delete staged files that were modified before ``older_than`` and belong to no job with a lease; the
    number of bytes. Microseconds since 1970, by the storage's clock.
    """
    files = abandoned(storage, older_than)
    if files:
        _log.info("deleted %d files that jobs have staged and left", len(files))
        with suppress(StorageError):  # the next collection finds them again
            storage.delete([info.key for info in files])
    return sum(info.size for info in files)


def abandoned(storage: Storage, older_than: int) -> Sequence[ObjectInfo]:
    """The files that ``delete_abandoned`` would delete. Leases are read last: a job takes its own first."""
    old = [info for info in storage.list(STAGING) if from_datetime(info.modified) < older_than]
    if not old:
        return []
    held = {info.key for info in storage.list(LEASES)}
    return [info for info in old if _lease_key(info.key.split("/")[1]) not in held]


def ends(started: int) -> int:
    """When a job that was started at ``started`` can no longer be resumed."""
    return started + LIFETIME // _MICROSECOND


def has_ended(started: int) -> bool:
    return now_us() >= ends(started)


def _lease_key(place: str) -> str:
    return f"{LEASES}/{_JOB}{place}"
