"""Descriptions of options, which `with_options` adds to the docstrings of operations.

An operation has one entry ``**options:`` at the end of its ``Args:`` section. `with_option_docs` replaces
this entry by the entries of the options, which the docstring of the ``TypedDict`` and of its bases describe.
So ``help()`` shows each option, and each option is described once.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from types import get_original_bases
from typing import Final

#: The entry ``**options:`` of a section, with the lines that continue it.
_ENTRY: Final = re.compile(r"^([ ]*)\*\*\w*options:.*\n(?:\1[ ]+.*\n)*", re.MULTILINE)


def with_option_docs(doc: str | None, options: type) -> str | None:
    r"""Return a docstring whose entry ``**options:`` is replaced by one entry for each option.

    Args:
        doc: The docstring of a function. Without an entry ``**options:`` it is returned unchanged.
        options: The ``TypedDict`` of the options. Options that the docstring itself describes are not added.

    Returns:
        The new docstring, without the indentation of the source code.

    Examples:
        >>> from frazil.jobs.run_options import RunOptions
        >>> doc = "Move arrays.\n\nArgs:\n    to: The target.\n    **options: See `RunOptions`."
        >>> "message: The message of the commit." in with_option_docs(doc, RunOptions)
        True
    """
    clean = inspect.cleandoc(doc or "") + "\n"
    if not _ENTRY.search(clean):
        return doc

    def entries(match: re.Match[str]) -> str:
        described = set(re.findall(rf"^{match[1]}(\w+):", clean, re.MULTILINE))
        texts = (_entry(name, options) for name in options.__annotations__ if name not in described)
        return textwrap.indent("".join(texts), match[1])

    return _ENTRY.sub(entries, clean)


def _entry(name: str, options: type) -> str:
    """The entry of an option: ``name: text``, and indented lines that continue the text."""
    doc = inspect.cleandoc(options.__doc__ or "") + "\n"
    if match := re.search(rf"^([ ]*)({name}:.*\n(?:\1[ ]+.*\n)*)", doc, re.MULTILINE):
        return textwrap.dedent(match[1] + match[2])
    bases = [base for base in get_original_bases(options) if isinstance(base, type)]
    return next((text for base in bases if base is not dict and (text := _entry(name, base))), "")
