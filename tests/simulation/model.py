"""What each version must contain, and every change of the file `repo`, judged when it happens.

The content of a version is a dictionary from the number of a chunk to its bytes. Before a client commits, it
declares its intent under a message that no other commit has. When the version is published, the content
that it must have follows from its parent and the intent.

The bytes before and after a change of `repo` are decoded. The new ops log must be the old one with one more
entry, the entry must explain every difference of the refs, and the old bytes must be saved below
`overwritten/` before. Specification: *Updates to the repo info file*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.simulation.storage import Objects, Violation

from frazil.format.ids import REPO, backup_key, id_to_text
from frazil.format.repo_info import OpsEntry, RepoInfo, UpdateKind, decode_repo_info

type Content = Mapping[int, bytes]

#: The chunks of the one array.
CHUNKS = 8


@dataclass(frozen=True, slots=True)
class Intent:
    """A commit that a client wants to make.

    ``base`` is the version that its session was opened at, ``changes`` its chunks. ``may_overwrite`` says
    that a solver lets the changes win against those of others. With ``sources``, the commit carries changes
    of other versions, and each chunk has the value of the parent or of one of the sources. They are looked up
    when the version is published, because a merge takes the tip that its branch has then.
    """

    base: str
    changes: Content
    may_overwrite: bool = False
    sources: Callable[[], tuple[str, ...]] = tuple
    amends: bool = False


@dataclass(eq=False)
class Model:
    """The contents of all versions. ``read`` returns the content that the storage has for a version.

    ``may_repeat`` says whether a version is that of a job whose earlier version is not in the history any
    more.
    """

    read: Callable[[str], Content]
    contents: dict[str, Content] = field(default_factory=dict)
    intents: dict[str, Intent] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    may_repeat: Callable[[Version], bool] = lambda version: False

    def published(self, version: Version) -> None:
        """Record a version that was just published. Raises ``Violation``."""
        if version.message in self.messages and not self.may_repeat(version):
            raise Violation(
                "exactly-once", f"{version.message!r} was published twice, the second time as {version.id}"
            )
        self.messages[version.message] = version.id
        intent = self.intents.get(version.message)
        if intent is None:
            raise Violation("exactly-once", f"nobody declared {version.message!r}")
        below = version.previous if version.kind == UpdateKind.COMMIT_AMENDED else version.parent
        sources = intent.sources()
        if not {below or intent.base, intent.base, *sources} <= self.contents.keys():
            raise Violation("content", f"{version.message!r} follows a version that was never published")
        if (version.kind == UpdateKind.COMMIT_AMENDED) != intent.amends:
            raise Violation("content", f"{version.message!r} was published as {version.kind.name}")
        before = self.contents[below or intent.base]
        if sources:
            self.contents[version.id] = self._carried(version, sources, before)
            return
        base = self.contents[intent.base]
        theirs = {chunk for chunk in range(CHUNKS) if before.get(chunk) != base.get(chunk)}
        if not intent.may_overwrite and (both := theirs & set(intent.changes)):
            raise Violation(
                "conflicts", f"{version.message!r} overwrote the chunks {sorted(both)}, which others changed"
            )
        self.contents[version.id] = {**before, **intent.changes}

    def _carried(self, version: Version, sources: tuple[str, ...], before: Content) -> Content:
        content = self.read(version.id)
        others = [before, *(self.contents[source] for source in sources)]
        for chunk in range(CHUNKS):
            if content.get(chunk) not in [each.get(chunk) for each in others]:
                raise Violation("content", f"{version.message!r}: chunk {chunk} has a value from nowhere")
        return content

    def require(self, version: str, content: Content, *, may_be_unknown: bool = False) -> None:
        """Raise ``Violation`` unless a version has its content."""
        expected = self.contents.get(version)
        if expected is None:
            if may_be_unknown:
                return
            raise Violation("content", f"version {version} was never published")
        if dict(content) != dict(expected):
            wrong = [n for n in range(CHUNKS) if content.get(n) != expected.get(n)]
            raise Violation(
                "content",
                f"version {version}: chunk {wrong[0]} must be {expected.get(wrong[0])!r}, "
                f"got {content.get(wrong[0])!r}",
            )


#: Kinds of updates that may remove versions and rewrite parents.
_REWRITES = {UpdateKind.GC_RAN, UpdateKind.EXPIRATION_RAN}


@dataclass(frozen=True, slots=True)
class Version:
    """A version as it was first published. ``parent`` and ``previous`` are ids as text, or None."""

    id: str
    parent: str | None
    message: str
    kind: UpdateKind
    branch: str | None
    previous: str | None = None


@dataclass(eq=False)
class RepoHistory:
    """All changes of one repository of spec version 2.

    ``published`` has the versions in their order. ``entries`` counts the other updates by kind and name;
    the name of a change of metadata or status is the mark that its writer put into it.
    ``on_version`` is called with each new version.
    """

    objects: Objects
    on_version: Callable[[Version], None] = lambda version: None
    published: list[Version] = field(default_factory=list)
    entries: Counter[tuple[UpdateKind, str]] = field(default_factory=Counter)
    resets: set[tuple[str, str]] = field(default_factory=set)  #: Branch and earlier tip of each reset.
    #: Messages of versions that replace a tip and some versions before it.
    squashes: set[str] = field(default_factory=set)
    collections: int = 0

    def changed(self, before: bytes | None, after: bytes) -> None:
        """Judge one change. Raises ``Violation``."""
        info = decode_repo_info(after, REPO)
        if before is None:
            return
        old = decode_repo_info(before, REPO)
        if info.ops.kinds[0] == UpdateKind.REPO_MIGRATED:
            return  # an upgrade writes the file again if a writer has changed the refs
        entry = self._new_entry(old, info)
        self._require_backup(before, info)
        is_squash = entry.kind == UpdateKind.COMMIT_AMENDED and _version(info, entry).message in self.squashes
        _require_refs(old, info, entry, is_squash=is_squash)
        _require_versions(old, info, entry, is_squash=is_squash)
        self._count(info, entry)

    def _new_entry(self, old: RepoInfo, new: RepoInfo) -> OpsEntry:
        entry = new.ops.entry(0)
        older = old.ops
        rest = len(new.ops) - 1
        if rest > len(older):
            raise Violation("ops-log", f"the log grew from {len(older)} to {len(new.ops)} entries")
        same = (new.ops.updated_at[1:] == older.updated_at[:rest]).all() and (
            new.ops.kinds[1:] == older.kinds[:rest]
        ).all()
        if not same:
            raise Violation(
                "ops-log", f"the entries before {entry.kind.name} are not those of the file before"
            )
        if rest < len(older) and new.repo_before_updates is None:
            raise Violation("ops-log", "the log was cut, and no backup has its end")
        if len(older) and entry.updated_at <= int(older.updated_at[0]):
            raise Violation("ops-log", f"{entry.kind.name} is not later than the entry before it")
        return entry

    def _require_backup(self, before: bytes, new: RepoInfo) -> None:
        name = new.ops.backups.text(1) if len(new.ops) > 1 else new.repo_before_updates
        if not name:
            raise Violation("backup", "the entry before the newest one names no backup")
        backup = self.objects.objects.get(backup_key(name))
        if backup is None:
            raise Violation("backup", f"`{name}` is not stored, and `repo` names it")
        if backup.data != before:
            raise Violation("backup", f"`{name}` has other bytes than `repo` had")

    def _count(self, info: RepoInfo, entry: OpsEntry) -> None:
        match entry.kind:
            case UpdateKind.NEW_COMMIT | UpdateKind.COMMIT_AMENDED | UpdateKind.NEW_DETACHED_SNAPSHOT:
                version = _version(info, entry)
                self.published.append(version)
                self.on_version(version)
            case UpdateKind.METADATA_CHANGED:
                self.entries[entry.kind, str(info.metadata.get("mark"))] += 1
            case UpdateKind.REPO_STATUS_CHANGED:
                self.entries[entry.kind, str(info.status.reason)] += 1
            case _:
                self.entries[entry.kind, entry.name or ""] += 1
        if entry.kind == UpdateKind.BRANCH_RESET:
            self.resets.add((entry.name or "", id_to_text(entry.previous_snapshot or b"")))
        self.collections += entry.kind == UpdateKind.GC_RAN


def _version(info: RepoInfo, entry: OpsEntry) -> Version:
    assert entry.new_snapshot is not None
    row = info.table.find_snapshot(entry.new_snapshot)
    if row < 0:
        raise Violation("ops-log", f"{entry.kind.name} names a version that is not in `repo`")
    snapshot = info.table.entry(row)
    return Version(
        id_to_text(entry.new_snapshot),
        None if snapshot.parent is None else id_to_text(snapshot.parent),
        snapshot.message,
        entry.kind,
        entry.name,
        None if entry.previous_snapshot is None else id_to_text(entry.previous_snapshot),
    )


def _require_refs(old: RepoInfo, new: RepoInfo, entry: OpsEntry, *, is_squash: bool) -> None:
    """Raise unless the entry explains all differences of the refs."""
    branches, tags = _differences(old.branches, new.branches), _differences(old.tags, new.tags)
    name = entry.name or ""
    if entry.kind == UpdateKind.EXPIRATION_RAN:
        if any(after is not None for _, after in (*branches.values(), *tags.values())):
            raise Violation("refs", "an expiration moved a ref")
        return
    on_branch = {
        *(UpdateKind.NEW_COMMIT, UpdateKind.COMMIT_AMENDED),
        *(UpdateKind.BRANCH_CREATED, UpdateKind.BRANCH_DELETED, UpdateKind.BRANCH_RESET),
    }
    expected = {name} if entry.kind in on_branch else set()
    if not set(branches) <= expected:
        raise Violation("refs", f"{entry.kind.name} of {name!r} changed the branches {sorted(branches)}")
    on_tag = entry.kind in (UpdateKind.TAG_CREATED, UpdateKind.TAG_DELETED)
    if set(tags) != ({name} if on_tag else set()):
        raise Violation("refs", f"{entry.kind.name} of {name!r} changed the tags {sorted(tags)}")
    before, after = branches.get(name, (old.branches.get(name), new.branches.get(name)))
    match entry.kind:
        case UpdateKind.NEW_COMMIT:
            _require(after == entry.new_snapshot, entry, "does not move the branch to its version")
            _require(
                _parent(new, entry.new_snapshot) == before,
                entry,
                "has another parent than the tip: commits would be lost",
            )
        case UpdateKind.COMMIT_AMENDED:
            _require(after == entry.new_snapshot, entry, "does not move the branch to its version")
            _require(before == entry.previous_snapshot, entry, "replaces another version than the tip")
            parents = [_parent(old, before), _parent(new, entry.new_snapshot)]
            if is_squash:
                line = line_of(old, before)
                _require(parents[1] in line, entry, "has a parent that was not before the tip")
                return
            _require(parents[0] == parents[1], entry, "has another parent than the version that it replaces")
        case UpdateKind.BRANCH_DELETED | UpdateKind.BRANCH_RESET:
            _require(before == entry.previous_snapshot, entry, "names another tip than the branch had")


def _parent(info: RepoInfo, id_: bytes | None) -> bytes | None:
    row = info.table.find_snapshot(id_ or b"")
    return info.table.entry(row).parent if row >= 0 else None


def line_of(info: RepoInfo, id_: bytes | None) -> list[bytes]:
    """Return a version and all before it."""
    line = []
    while id_ is not None:
        line.append(id_)
        id_ = _parent(info, id_)
    return line


def _require(is_right: bool, entry: OpsEntry, offence: str) -> None:
    if not is_right:
        raise Violation("refs", f"{entry.kind.name} of {entry.name!r} {offence}")


def _differences(
    old: Mapping[str, bytes], new: Mapping[str, bytes]
) -> dict[str, tuple[bytes | None, bytes | None]]:
    names = {*old, *new}
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def _require_versions(old: RepoInfo, new: RepoInfo, entry: OpsEntry, *, is_squash: bool) -> None:
    """Raise unless only upkeep removes versions, and every ref leads to a version."""
    for name, id_ in (*new.branches.items(), *new.tags.items()):
        if new.table.find_snapshot(id_) < 0:
            raise Violation("refs", f"{name!r} leads to a version that is not in `repo`")
    if entry.kind in _REWRITES or is_squash:
        return
    if (new.table.find_snapshots(old.table.ids()) < 0).any():
        raise Violation("versions", f"{entry.kind.name} removed versions")
