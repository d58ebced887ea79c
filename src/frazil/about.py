"""The version of Frazil, and its name in requests."""

from __future__ import annotations

import os
from typing import Final

__version__ = "0.1.0"

#: The folder of this package. Warnings skip its frames, so that they name a line of the user's program.
PACKAGE_FOLDER: Final = os.path.dirname(__file__) + os.sep


def user_agent() -> str:
    """Return the ``User-Agent`` of requests to object stores.

    Returns:
        The name and version of Frazil. ``Attribution`` adds the name of a program.

    Examples:
        >>> user_agent().partition("/")[0]
        'frazil'
    """
    return f"frazil/{__version__}"
