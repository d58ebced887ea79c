"""Protected branches: rules about who may move a branch, and where to.

The rules are in the metadata of the repository under ``frazil.protection``, by pattern of branch names.
``CatalogV2`` checks them in each update, between the change and the conditional write. They prevent mistakes,
and are no access control: other implementations ignore them, and a principal is a name that a program gives
to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from frazil.display import Record, Shown, literal, some_of
from frazil.errors import ErrorKind, FormatError, IcechunkError, SessionStateError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.remedies import call
from frazil.repository.attribution import current_user
from frazil.repository.catalog.ancestry import all_ancestors
from frazil.repository.catalog.repo_changes import require_snapshot

#: A key of the metadata of a repository.
PROTECTION: Final = "frazil.protection"
#: The key of the report of an audit in the metadata of a commit.
AUDIT: Final = "frazil_audit"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class BranchProtection(Record, shown_as="config.BranchProtection"):
    """The rules of the branches whose names match a pattern.

    Attributes:
        pattern: The name of a branch, or a pattern with ``*``, ``?`` and ``[...]``.
        principals: The names of those who may move the branches. Empty for everybody.
        fast_forward_only: Whether a branch only moves to versions that contain its tip. Then nobody resets it
            to an older version, amends its last commit, or deletes it.
        rules: The rules, as JSON, that must hold in each new tip. ``frazil.pipeline.write_audit_publish``
            checks them and records the result in its last commit.
        since: When the protection was set, in microseconds since 1970.
    """

    pattern: str
    principals: tuple[str, ...] = ()
    fast_forward_only: bool = True
    rules: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    since: int = 0

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        names = ("pattern", "principals", "fast_forward_only", "rules")
        return ((name, literal(getattr(self, name))) for name in names)

    def document(self) -> dict[str, Any]:
        """Return the rules as the metadata have them.

        Returns:
            A dictionary of JSON values.

        Examples:
            >>> BranchProtection(pattern="main").document()
            {'principals': [], 'fast_forward_only': True, 'rules': [], 'since': 0}
        """
        return {
            "principals": list(self.principals),
            "fast_forward_only": self.fast_forward_only,
            "rules": [dict(rule) for rule in self.rules],
            "since": self.since,
        }


@contextmanager
def metadata_item(metadata: Mapping[str, Any], key: str, content: str, remedy: str) -> Iterator[None]:
    """Raise ``FormatError`` if the block fails to read an item of the metadata of a repository.

    Without the error, a branch would lose its protection, and a job or a batch would be committed twice.
    """
    try:
        yield
    except (IcechunkError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"`{key}` in the metadata of the repository must have {content}, got {str(metadata[key])[:80]}"
        ).with_remedy(f"{remedy} Repository.update_metadata", shell="") from error


def read_protections(metadata: Mapping[str, Any]) -> list[BranchProtection]:
    """Return the protections in the metadata of a repository, by pattern. Raises ``FormatError``."""
    with metadata_item(metadata, PROTECTION, "rules of branches", "Replace them with"):
        return [
            BranchProtection(
                pattern=pattern,
                principals=tuple(map(str, document["principals"])),
                fast_forward_only=bool(document["fast_forward_only"]),
                rules=tuple(map(dict, document["rules"])),
                since=int(document["since"]),
            )
            for pattern, document in sorted(metadata.get(PROTECTION, {}).items())
        ]


def require_allowed(before: RepoInfo, after: RepoInfo, label: str | None) -> None:
    """Raise ``SessionStateError`` (``branch-protected``) if an update breaks a protection."""
    try:
        protections = read_protections(before.metadata)
    except FormatError:
        if after.metadata.get(PROTECTION) != before.metadata[PROTECTION]:
            return  # this update replaces the damaged rules
        raise
    for branch, tip in before.branches.items():
        target = after.branches.get(branch)
        if target == tip:
            continue
        for protection in protections:
            if fnmatchcase(branch, protection.pattern):
                _require_principal(protection, label, f"move the branch `{branch}`")
                for why in offences(protection, after, tip, target):
                    raise _refusal(protection, f"the branch `{branch}` {why}")
    rules = after.metadata.get(PROTECTION, {})
    for protection in protections:
        if rules.get(protection.pattern) != before.metadata[PROTECTION][protection.pattern]:
            _require_principal(protection, label, "change the protection")


def offences(
    protection: BranchProtection, after: RepoInfo, tip: bytes, target: bytes | None
) -> Iterator[str]:
    """Yield why a branch cannot move from ``tip`` to ``target``. None means that it is deleted."""
    if target is None:
        yield "cannot be deleted"
        return
    row = after.snapshots.find_snapshot(tip)
    if protection.fast_forward_only and (row < 0 or row not in all_ancestors(after, target)):
        yield (
            f"cannot move from {id_to_text(tip)} to {id_to_text(target)}, which does not contain its commits"
        )
    if protection.rules and not has_audit(protection, after, target):
        yield (
            f"cannot move to {id_to_text(target)}, because no audit shows that its rules hold. Publish "
            "commits that an audit with the rules of the protection has passed (`write_audit_publish`)"
        )


def has_audit(protection: BranchProtection, info: RepoInfo, snapshot: bytes) -> bool:
    """Return whether a commit records an audit of its parent in which all rules of a protection held."""
    entry = info.snapshots.entry(require_snapshot(info, snapshot))
    record = entry.metadata.get(AUDIT)
    if not isinstance(record, Mapping) or record.get("ok") is not True or entry.parent is None:
        return False
    checked = record.get("rules")
    is_complete = isinstance(checked, list) and all(dict(rule) in checked for rule in protection.rules)
    return is_complete and record.get("snapshot") == id_to_text(entry.parent)


def _require_principal(protection: BranchProtection, label: str | None, action: str) -> None:
    name = current_user() if label is None else label
    if protection.principals and name not in protection.principals:
        raise _refusal(
            protection,
            f"`{name}` may not {action}, only {some_of(protection.principals)} may. A handle acts for the "
            "`principal` of its Attribution, else for the user of the process",
        )


def _refusal(protection: BranchProtection, why: str) -> SessionStateError:
    return SessionStateError(
        f"{why}. The protection of `{protection.pattern}` forbids it, and nothing was changed",
        ErrorKind.BRANCH_PROTECTED,
    ).with_remedy("`{}` removes the protection", call("unprotect_branch", pattern=protection.pattern))
