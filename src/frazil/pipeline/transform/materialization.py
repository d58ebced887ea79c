"""Virtual chunks become native chunks: tasks copy their bytes without decoding them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from frazil.jobs.job import Job, Tasks
from frazil.jobs.job_result import JobResult
from frazil.jobs.job_run import run_with_options
from frazil.jobs.run_options import RunOptions, with_options
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.array_info import ArrayInfo, arrays_below, with_companions
from frazil.pipeline.transform.chunk_transfer import fetch_chunks, fetch_items, share_chunks, whole_transfer
from frazil.pipeline.transform.coordinate_guard import Labels, is_label, refuse_relabelling
from frazil.pipeline.transform.targets import (
    create_array,
    is_in_place,
    refuse_overwriting,
    require_newest,
    same_repository,
    target_or_source,
)
from frazil.repository.session.session import Session


@with_options(RunOptions)
@takes_versions
def materialize(
    source: Source,
    paths: Sequence[str] = ("/",),
    *,
    to: Target | None = None,
    **options: Unpack[RunOptions],
) -> JobResult:
    """Copy the bytes of all virtual chunks of arrays into the repository, in one commit.

    In place, only the references of virtual chunks change. At a target, the arrays and their coordinates are
    created; native chunks are shared within one repository, and copied to another one. The bytes of a chunk
    do not change. The new version does not need the files of the virtual references any more; older versions
    still need them.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them. The default is all arrays.
        to: The `Target` of the results. The default, None, works in place, on the branch of the source.
        **options: The options of `frazil.jobs.run_options.RunOptions`: ``engine``, ``job_id``, ``message``,
            ``progress``.

    Returns:
        The `JobResult`, whose ``version`` has the native chunks.

    Raises:
        TaskFailedError: A file does not exist, has changed since its references were made
            (``virtual-chunk-modified``), or the repository may not read its location. The kind is the kind of
            the cause.
        NodeNotFoundError: A path has no node.
        TypeError: An option is unknown.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import Target, materialize
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="native chunks") as store:
        ...     zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")[:] = 7
        >>> result = materialize(repo, ["t"], to=Target(repo, group="copy"), engine="inline")
        >>> zarr.open_array(result.version.session().store, path="copy/t", mode="r")[:].tolist()
        [7, 7, 7, 7]
    """
    version = Version.of(source)
    session = version.session()
    target = target_or_source(version, to)
    in_place = is_in_place(version, target)
    arrays = arrays_below(session, paths)
    if in_place:
        results = arrays
    else:
        arrays = with_companions(session, arrays)
        results = [replace(array, path=target.path(array.path)) for array in arrays]
        refuse_overwriting(version, target, arrays, results)
    work = _Materialization(version, session, target, arrays, results)
    job = Job(
        "materialize",
        target,
        functools.partial(_prepare_in_place if in_place else _prepare_copies, work),
        fetch_chunks,
        None,
        {"paths": [paths] if isinstance(paths, str) else list(paths)},
        (version.input([array.path for array in arrays]),),
        tuple(new.path for new in results),
    )
    return run_with_options(job, options)


@dataclass(frozen=True, slots=True)
class _Materialization:
    """What the job does: ``arrays`` of ``version``, read by ``source``, become ``results``."""

    version: Version
    source: Session
    target: Target
    arrays: Sequence[ArrayInfo]
    results: Sequence[ArrayInfo]


def _prepare_in_place(work: _Materialization, session: Session) -> Tasks:
    require_newest(work.source, session, work.arrays)
    return _virtual_chunks(work)


def _prepare_copies(work: _Materialization, session: Session) -> Tasks:
    source, pairs = work.source, list(zip(work.arrays, work.results, strict=True))
    labels = [Labels(old, new) for old, new in pairs if is_label(old)]
    refuse_relabelling(session, source, labels, work.results)
    for old, new in pairs:
        create_array(session, source, old, new)
    transfers = [whole_transfer(old, new) for old, new in pairs]
    if not same_repository(work.version, work.target):
        return Tasks(fetch_items(source, transfers), source)
    for transfer in transfers:
        share_chunks(session, source, replace(transfer, virtual=False))
    return _virtual_chunks(work)


def _virtual_chunks(work: _Materialization) -> Tasks:
    transfers = [
        replace(whole_transfer(old, new), virtual=True)
        for old, new in zip(work.arrays, work.results, strict=True)
    ]
    return Tasks(fetch_items(work.source, transfers), work.source)
