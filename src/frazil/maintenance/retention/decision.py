"""The repository after an expiration by policies, as a pure function.

A version stays if

- it is the first version, the tip of a branch, or the version of a tag that stays, or
- the policy of a branch with the version in its history selects it, or
- it is in the history of a branch without a policy, or in no history of a branch with a policy.

All other versions are removed, also from the middle of a history. A version whose parent is removed gets the
next ancestor that stays as its parent, and the list of the transaction logs in between (``collapse``). So
comparisons and rebases over the gap still work. All of this is one update of the repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from frazil.format.ids import id_matrix
from frazil.format.repo_info import OpsEntry, RepoInfo, UpdateKind
from frazil.maintenance.links import NewParent, collapse
from frazil.maintenance.plan import RecordedChange
from frazil.maintenance.retention.policy import BranchPolicies, Retention
from frazil.maintenance.retention.report import RetentionReport, VersionList
from frazil.maintenance.retention.rules import Rules, add_policy
from frazil.repository.catalog.history_records import with_expiring
from frazil.repository.catalog.repo_update import RepoUpdate


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """The repo info after an expiration, and the report for people."""

    info: RepoInfo
    report: RetentionReport


def decide(info: RepoInfo, policies: BranchPolicies, now: int) -> Decision:
    """Return the repository after an expiration by policies. A pure function."""
    table = info.table
    stays, removed = Rules(len(table)), Rules(len(table))
    stays.add("first version", table.parents() < 0)
    _add_refs(stays, info, "tip of branch", info.branches)
    covered = np.zeros(len(table), bool)
    without_policy = []
    selected = {name: _policy_of(name, policies) for name in sorted(info.branches)}
    rows = table.find_snapshots(id_matrix([info.branches[name] for name in selected]))
    for named, history in zip(selected.values(), table.chains(rows.tolist()), strict=True):
        if named is None:
            without_policy.append(int(history[0]))
            continue
        covered[history] = True
        add_policy(stays, table, history, named, now)
        removed.add(f"no rule of `{named[0]}` selects it", history)
    if without_policy:
        reached = table.reachable(np.array(without_policy, np.int64))
        stays.add("in the history of a branch without a policy", reached)
    stays.add("in no history of a branch with a policy", ~covered)
    tags = _tags_that_stay(info, stays, policies)
    _add_refs(stays, info, "tag", tags)
    keep = stays.union()
    snapshots = collapse(table, keep, NewParent.NEXT)
    after = replace(
        info,
        tags=tags,
        deleted_tags=info.deleted_tags | (info.tags.keys() - tags.keys()),
        metadata=with_expiring(info, keep, snapshots),
        snapshots=snapshots,
    )
    report = RetentionReport(
        removed=VersionList(table, np.flatnonzero(~keep), tuple(removed)),
        retained=VersionList(table, np.flatnonzero(keep), tuple(stays)),
        deleted_tags=tuple(sorted(info.tags.keys() - tags.keys())),
    )
    return Decision(after, report)


def _policy_of(branch: str, policies: BranchPolicies) -> tuple[str, Retention] | None:
    return next(((name, policy) for name, policy in policies if fnmatchcase(branch, name)), None)


def _add_refs(rules: Rules, info: RepoInfo, reason: str, refs: Mapping[str, bytes]) -> None:
    if refs:
        rules.add(reason, info.table.find_snapshots(id_matrix(list(refs.values()))), list(refs))


def _tags_that_stay(info: RepoInfo, stays: Rules, policies: BranchPolicies) -> dict[str, bytes]:
    """Return the tags that a policy covers, or whose version stays for another reason."""
    rows = info.table.find_snapshots(id_matrix(list(info.tags.values())))
    staying = stays.union()[rows].tolist()
    return {
        name: id_
        for (name, id_), version_stays in zip(info.tags.items(), staying, strict=True)
        if version_stays or any(policy.covers_tag(name) for _, policy in policies)
    }


def retention_change(policies: BranchPolicies) -> RecordedChange[RetentionReport]:
    """Return the repo change of an expiration by policies. Its result is the report."""

    def change(info: RepoInfo, now: int) -> tuple[RepoUpdate, RetentionReport]:
        decision = decide(info, policies, now)
        return RepoUpdate(decision.info, OpsEntry(UpdateKind.EXPIRATION_RAN, now)), decision.report

    return RecordedChange(change)
