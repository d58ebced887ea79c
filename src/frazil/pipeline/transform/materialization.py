"""Virtual chunks become chunks of the repository: their bytes are copied, and no codec ever runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import Job, Tasks, run_job
from frazil.jobs.job_result import JobResult
from frazil.jobs.progress import Progress
from frazil.jobs.task_results import Outcome
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.arrays import (
    companions,
    create,
    refuse_overwriting,
    require_unchanged,
    same_place,
    same_repository,
    selected,
    target_of,
)
from frazil.pipeline.transform.coordinate_guard import Labels, is_label, refuse_relabelling
from frazil.pipeline.transform.transfer import Move, fetch, fetches, move_of, share
from frazil.repository.session.session import ForkSession, Session


@takes_versions
def materialize(
    source: Source,
    paths: Sequence[str] = ("/",),
    *,
    to: Target | None = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Copy the bytes of all virtual chunks of some arrays into the repository, in one commit.

    In place only the references of those chunks change. With ``to`` the arrays are made there, with their
    coordinates; chunks that are not virtual are referred to in the same repository, and copied to another.
    A chunk has the same bytes as before, so nothing is decoded and nothing lost. The files that the
    references name are not needed any more by the new version; older versions still refer to them.

    Raises ``TaskFailedError``, with the kind of the reason, if a file is gone or has changed since its
    references were made (``virtual-chunk-modified``), or if its place is not among those that the
    repository was allowed to read.
    """
    version = Version.of(source)
    session = version.session()
    target = target_of(version, to)
    in_place = same_place(version, target)
    arrays = selected(session, paths)
    if not in_place:
        arrays = companions(session, arrays)
    made = [array if in_place else replace(array, path=target.path(array.path)) for array in arrays]
    if not in_place:
        refuse_overwriting(version, target, arrays, made)
    moves = [move_of(old, new) for old, new in zip(arrays, made, strict=True)]

    def prepare(writing: Session) -> Tasks:
        if in_place:
            require_unchanged(session, writing, arrays)
            return Tasks(fetches(session, [replace(move, virtual=True) for move in moves]), session)
        labels = [Labels(old, new) for old, new in zip(arrays, made, strict=True) if is_label(old)]
        refuse_relabelling(writing, session, labels, made)
        for old, new in zip(arrays, made, strict=True):
            create(writing, session, old, new)
        if not same_repository(version, target):
            return Tasks(fetches(session, moves), session)
        for move in moves:
            share(writing, session, replace(move, virtual=False))
        return Tasks(fetches(session, [replace(move, virtual=True) for move in moves]), session)

    job = Job(
        "materialize",
        target,
        prepare,
        _fetch,
        None,
        {"paths": [paths] if isinstance(paths, str) else list(paths)},
        (version.input([array.path for array in arrays]),),
        tuple(new.path for new in made),
        message,
        id=job_id,
    )
    return run_job(job, engine, progress=progress)


def _fetch(fork: ForkSession, source: Session, move: Move) -> Outcome:
    return fetch(fork, source, move)
