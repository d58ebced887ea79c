"""Compaction of large repositories by tasks: the function does the work of ``Repository.upkeep.compact``.

Tasks read the manifests, copy live chunks to new packs, and write the new manifests. The driver lists the
chunk files, chooses those to write again, and commits. It holds about 60 bytes for each chunk file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frazil.arguments import require_progress
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.jobs.maintenance_tasks import pieces_run
from frazil.jobs.progress import Progress
from frazil.maintenance.compaction.compaction_info import CompactionLimits, CompactionReport
from frazil.maintenance.compaction.operation import CompactionOptions, compaction_commits
from frazil.maintenance.compaction.operation import compact as compact_branches
from frazil.repository.handle.interior import context_of, default_metadata_of
from frazil.repository.handle.repository import Repository

__all__ = ["compact"]


def compact(
    repo: Repository,
    message: str,
    *,
    branch: str | Sequence[str],
    dry_run: bool = False,
    limits: CompactionLimits | None = None,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
) -> CompactionReport:
    """Merge small chunk files into packs, and copy live chunks out of mostly unused packs, by tasks.

    The result is that of ``Repository.upkeep.compact``, which can also amend the last commit.

    Args:
        repo: The repository.
        message: The message of the commit.
        branch: The name of the branch, or several names. Each branch gets a commit.
        dry_run: Whether to write nothing, and to return the plan.
        limits: Which files and manifests are written again. Default: ``frazil.CompactionLimits()``.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where Spark is in use, else processes of this machine (`default_engine`).
        progress: A `Progress`, which shows how many manifests and bytes are written. The default, None, shows
            nothing.

    Returns:
        The plan or the result. Without files and manifests to write again, there is no commit.

    Raises:
        ConflictError: Others commit to the branch too often during the call (``commit-conflict``).

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import compact
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> compact(repo, "merge small files", branch="main", engine="inline").is_empty
        True
    """
    require_progress(progress, "advance")
    context = context_of(repo)
    options = CompactionOptions(
        compaction_commits(message, branch, default_metadata_of(repo), "new_commit"),
        CompactionLimits() if limits is None else limits,
        pieces_run(context, engine_of(engine)),
        _advance(progress),
    )
    return compact_branches(context, options, dry_run=dry_run)


def _advance(progress: Progress | None) -> Callable[[int, int], None]:
    """Return a function that counts a finished unit in a progress bar, if there is one."""

    def advance(manifests: int, size: int) -> None:
        if progress is not None:
            progress.advance(chunks=manifests, bytes=size)

    return advance
