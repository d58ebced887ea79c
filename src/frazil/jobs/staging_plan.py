"""The plan of a staged job, with which a second driver can continue it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from frazil.about import __version__
from frazil.changes.change_set import ChangeSet
from frazil.format.ids import id_from_text, is_id_text
from frazil.repository.catalog import repo_requirements
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.repository.session.session_state import SessionState
from frazil.repository.session.staged_work import ends
from frazil.repository.session.workspace import Workspace

#: The format of staged files. Files of another format or version of Frazil are discarded.
_FORMAT: Final = 1
_LARGEST_NUMBER: Final = 1 << 57


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """The start of a job, to which its staged results belong.

    ``base`` is the snapshot of the session of the job. ``seen`` and ``since`` are those of the session (see
    `frazil.repository.catalog.collection_guard`). ``started`` is the time of the first run, in microseconds
    since 1970. ``folder`` is the name of the folder of the rounds.
    """

    job: str
    name: str
    branch: str
    digest: str
    base: str
    seen: int
    since: int
    started: int
    folder: str
    software: str = __version__
    format: int = _FORMAT

    @property
    def is_of_this_version(self) -> bool:
        """Whether the same version of Frazil has staged the results."""
        return (self.format, self.software) == (_FORMAT, __version__)


def encode_plan(plan: StagedPlan) -> bytes:
    """Return a plan as JSON."""
    return json.dumps(asdict(plan)).encode()


def decode_plan(data: bytes) -> StagedPlan | None:
    """Return the plan in JSON bytes; None for damaged bytes."""
    try:
        plan = StagedPlan(**json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = plan.seen, plan.since, plan.started
    texts = plan.job, plan.name, plan.branch, plan.digest, plan.software
    ids = plan.base, plan.folder
    is_whole = all(isinstance(each, int) and 0 <= each < _LARGEST_NUMBER for each in numbers) and all(
        isinstance(each, str) for each in texts
    )
    return plan if is_whole and all(isinstance(id_, str) and is_id_text(id_) for id_ in ids) else None


def has_base(repo: Repository, plan: StagedPlan) -> bool:
    """Return whether the repository still has the snapshot of the plan."""
    return bool(context_of(repo).catalog.repo_info().snapshots.find_snapshot(id_from_text(plan.base)) >= 0)


def session_at_base(repo: Repository, branch: str, plan: StagedPlan) -> Session:
    """Return a session for the branch that starts from the snapshot of the plan."""
    context = context_of(repo)
    repo_requirements.branch_tip(context.catalog.repo_info(), branch)
    workspace = Workspace(context, id_from_text(plan.base), None, ChangeSet())
    return Session(
        SessionState(
            workspace,
            branch,
            SessionMode.writable,
            ends(plan.started),
            repo.default_commit_metadata(),
            seen=plan.seen,
            since=plan.since,
        )
    )
