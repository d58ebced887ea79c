"""The objects of a simulated storage, and what may never happen to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from frazil.format.ids import REPO
from frazil.storage.base import Always, Condition, IfAbsent, IfVersion, Refused, Stored, Version

#: Folders whose files never change.
IMMUTABLE = ("snapshots/", "manifests/", "transactions/", "chunks/")


class Violation(AssertionError):
    """A promise is broken. ``check`` names the promise."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(f"{check}: {message}")
        self.check = check


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object: its bytes, the number of its write, and its time by the clock of the storage."""

    data: bytes
    write: int
    modified_us: int

    @property
    def version(self) -> Version:
        return Version(etag=str(self.write))


@dataclass(eq=False)
class Objects:
    """All objects. ``clock`` is the clock of the storage, in microseconds.

    ``on_repo`` is called with the bytes of `repo` before and after each change.
    """

    objects: dict[str, StoredObject] = field(default_factory=dict)
    clock: Callable[[], int] = lambda: 0
    writes: int = 0
    on_repo: Callable[[bytes | None, bytes], None] | None = None
    #: The files that an accident has damaged, with the bytes that they had.
    damaged: dict[str, bytes] = field(default_factory=dict)
    #: When the last damaged file was repaired or deleted, by ``clock``.
    undamaged_at: int = -1

    def put(self, key: str, data: bytes, condition: Condition) -> Stored | Refused:
        """Write an object in one step."""
        current = self.objects.get(key)
        if not _holds(condition, current):
            return Refused()
        if (
            self.damaged.get(key) != data
            and key.startswith(IMMUTABLE)
            and current is not None
            and current.data != data
        ):
            raise Violation("immutable", f"`{key}` was written again with other bytes")
        if key == REPO and isinstance(condition, Always) and current is not None:
            raise Violation("conditional", "`repo` was replaced without a condition")
        self._end_damage(key)
        self.writes += 1
        stored_object = self.objects[key] = StoredObject(data, self.writes, self.clock())
        if key == REPO and self.on_repo is not None:
            self.on_repo(None if current is None else current.data, data)
        return Stored(stored_object.version)

    def delete(self, key: str) -> None:
        """Delete an object, which may be missing."""
        if key == REPO:
            raise Violation("conditional", "`repo` was deleted")
        self.objects.pop(key, None)
        self._end_damage(key)

    def _end_damage(self, key: str) -> None:
        if self.damaged.pop(key, None) is not None:
            self.undamaged_at = self.clock()

    def harm(self, key: str, data: bytes | None) -> None:
        """Lose an immutable file, or leave other bytes of it."""
        lost = self.objects.pop(key)
        self.damaged.setdefault(key, lost.data)
        if data is not None:
            self.objects[key] = StoredObject(data, lost.write, lost.modified_us)

    def undamaged(self) -> dict[str, bytes]:
        """Return the bytes of all objects, as if no accident had happened."""
        return {key: each.data for key, each in self.objects.items()} | self.damaged

    def keys(self, prefix: str) -> list[str]:
        """Return the keys below a directory, in their order."""
        inside = f"{prefix.rstrip('/')}/" if prefix else ""
        return sorted(key for key in self.objects if key.startswith(inside))


def _holds(condition: Condition, current: StoredObject | None) -> bool:
    match condition:
        case IfAbsent():
            return current is None
        case IfVersion(version):
            return current is not None and current.version == version
    return True
