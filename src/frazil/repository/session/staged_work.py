"""The staged files of jobs that are not committed yet, and their protection from garbage collections.

The results of tasks are under ``staging/<place>/``, so that another process can continue. Only these files
refer to the chunks of the job. Before the job writes a file, it takes a lease, ``leases/job.<place>``: with
it, garbage collections spare all files that are not older than the job. Without it, the staged files are
garbage. A lease is longer than a job can be resumed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from frazil.errors import StorageError
from frazil.repository.catalog.collection_guard import LEASES, LONGEST, Lease
from frazil.repository.catalog.version_info import JOB_LEASE
from frazil.repository.clock import MICROSECOND, from_datetime
from frazil.storage.base import ObjectInfo, Storage

STAGING: Final = "staging"
#: The time after its start in which a job can be resumed.
LIFETIME: Final = timedelta(days=7)
#: The time after its start in which garbage collections spare the staged files and the chunks of a job.
RETENTION: Final = LONGEST

#: Two drivers may begin the same job within this time. Each takes a lease, and the later lease stays.
_MARGIN_US: Final = timedelta(hours=1) // MICROSECOND
_log = logging.getLogger(__name__)


def place_of(branch: str, job: str) -> str:
    """Return the folder of a job below ``staging/``, a hash, because the id of a job can be any text."""
    return hashlib.sha256(f"{branch}\0{job}".encode()).hexdigest()[:24]


def take_lease(
    storage: Storage,
    place: str,
    since: int,
    started: int,
    purpose: str,
    *,
    name: str = "",
    resumes: bool = False,
) -> Lease:
    """Protect files that are not older than ``since`` until ``RETENTION`` after ``started``.

    Both times are microseconds since 1970, by this host's clock. ``purpose`` and ``name`` describe the job
    for people.

    A new job replaces the lease of an earlier job. A job that ``resumes`` only takes a lease if there is
    none, because the existing lease has the clock of the host that began the job.
    """
    until = started + RETENTION // MICROSECOND
    key = _lease_key(place)
    return Lease.take(storage, since - _MARGIN_US, until, key, purpose, name=name, only_if_absent=resumes)


def give_up(storage: Storage, place: str) -> None:
    """Delete the lease and all staged files of a job."""
    storage.delete([_lease_key(place)])
    storage.delete([info.key for info in storage.list(f"{STAGING}/{place}")])


def clean_up(storage: Storage, place: str) -> None:
    """Call ``give_up``. Files that the storage fails to delete become garbage."""
    with suppress(StorageError):
        give_up(storage, place)


def delete_abandoned(storage: Storage, older_than: int) -> int:
    """Delete the old staged files of jobs without a lease. Return the number of bytes."""
    files = abandoned(storage, older_than)
    if files:
        _log.info("deleted %d staged files of abandoned jobs", len(files))
        with suppress(StorageError):  # the next collection finds them again
            storage.delete([info.key for info in files])
    return sum(info.size for info in files)


def abandoned(storage: Storage, older_than: int) -> Sequence[ObjectInfo]:
    """Return the files that ``delete_abandoned`` would delete."""
    old = [info for info in storage.list(STAGING) if from_datetime(info.modified) < older_than]
    if not old:
        return []
    held = {info.key for info in storage.list(LEASES)}
    return [info for info in old if _lease_key(info.key.split("/")[1]) not in held]


def ends(started: int) -> int:
    """Return the time after which a job that started at ``started`` cannot be resumed, in microseconds."""
    return started + LIFETIME // MICROSECOND


def _lease_key(place: str) -> str:
    return f"{LEASES}/{JOB_LEASE}{place}"
