"""What each version must contain, by what the clients wanted to write.

The content of a version is a dictionary from the number of a chunk to its bytes. Before a client commits, it
declares its intent under a message that no other commit has. When the version is published, the content
that it must have follows from its parent and the intent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.simulation.objects import Violation
from tests.simulation.repo_history import Version

from frazil.format.repo_info import UpdateKind

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
