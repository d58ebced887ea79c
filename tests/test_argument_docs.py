"""Docstrings that get descriptions of arguments from other docstrings."""

from __future__ import annotations

from typing import Any, TypedDict

from frazil.argument_docs import complete_doc, with_argument_docs
from frazil.jobs.job import with_options


def copy(path: str, to: Any, *names: Any) -> None:
    """Copy a file.

    Args:
        path: The path of the file,
            below the folder.
        to: The new path.
        *names: Names.

    Returns:
        The size: in bytes.
    """


class Base(TypedDict, total=False):
    """Options.

    Attributes:
        verbose: Whether to print.
        level: The level.
    """

    verbose: bool
    level: int


class Options(Base, total=False):
    """More options.

    Attributes:
        level: The depth.
    """

    level: int


def entries(doc: str) -> list[str]:
    section = doc.partition("Args:\n")[2].partition("\n\n")[0]
    return [line for line in section.splitlines() if line]


def test_descriptions_follow_the_order_of_the_arguments() -> None:
    @with_argument_docs(copy)
    def move(path: str, force: bool, to: Any) -> None:
        """Move a file.

        Args:
            force: Whether to replace a file.
        """

    assert entries(move.__doc__ or "") == [
        "    path: The path of the file,",
        "        below the folder.",
        "    force: Whether to replace a file.",
        "    to: The new path.",
    ]
    before, after = "Read.\n\n", "Returns:\n    The bytes.\n"
    assert complete_doc(before + after, ["to"], [copy]) == f"{before}Args:\n    to: The new path.\n\n{after}"
    assert complete_doc(None, ["to"], [copy]) is None  # with `python -OO`


def test_options_replace_their_entry() -> None:
    @with_options(Options)
    def list_files(path: str, **options: Any) -> None:
        """List files.

        Args:
            path: The folder.
            **options: See `Options`.
        """

    assert entries(list_files.__doc__ or "") == [
        "    path: The folder.",
        "    verbose: Whether to print.",
        "    level: The depth.",
    ]
