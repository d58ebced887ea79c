"""Conditions on commits, as values: patterns for the message and for items of the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from frazil.arguments import check_fields
from frazil.errors import ErrorKind, InvalidInputError

_AUTHOR: Final = "author"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPattern:
    """A condition on commits. A commit meets it if it meets every part that is set.

    The patterns are those of `fnmatch`: ``*`` is any text, ``?`` is one character, and case matters.

    Attributes:
        message: A pattern for the message.
        author: A pattern for the item ``author`` of the metadata.
        metadata: Items that the metadata must have. A text is a pattern. Any other value must be equal.

    Raises:
        InvalidInputError: ``invalid-argument`` if no part is set.

    Examples:
        >>> releases = CommitPattern(message="release *", metadata={"reviewed": True})
        >>> releases.meets("release 3", {"reviewed": True}), releases.meets("release 3", {})
        (True, False)
    """

    message: str | None = None
    author: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.message is None and not self.items():
            raise InvalidInputError(
                "CommitPattern() must have a message, an author or metadata, got none of them. Every commit "
                'would meet it. Pass message="*" for that',
                ErrorKind.INVALID_ARGUMENT,
            )

    def items(self) -> dict[str, Any]:
        """Return the items that the metadata of a commit must have.

        Returns:
            The patterns and values by name, with the pattern of the author.

        Examples:
            >>> CommitPattern(author="ada*").items()
            {'author': 'ada*'}
        """
        return {**self.metadata, **({} if self.author is None else {_AUTHOR: self.author})}

    def meets(self, message: str, metadata: Mapping[str, Any]) -> bool:
        """Return whether a commit meets the condition.

        Args:
            message: The message of the commit.
            metadata: The metadata of the commit.

        Returns:
            True if every part is met.

        Examples:
            >>> CommitPattern(author="ada*").meets("first", {"author": "ada lovelace"})
            True
        """
        if self.message is not None and not fnmatchcase(message, self.message):
            return False
        return all(
            name in metadata and _is_like(metadata[name], value) for name, value in self.items().items()
        )


def _is_like(value: Any, pattern: Any) -> bool:
    if isinstance(pattern, str):
        return isinstance(value, str) and fnmatchcase(value, pattern)
    return bool(value == pattern)
