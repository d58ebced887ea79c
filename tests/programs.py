"""How tests run programs: warnings are errors, but for a few of other people's packages."""

from __future__ import annotations

from typing import Final

#: Options of Python. Later ones win.
WARNINGS: Final = (
    "-W",
    "error",
    "-W",  # flox, which xarray's groupby imports where it is installed, with numpy 2.5
    "ignore:The 'generic' unit for NumPy:DeprecationWarning",
)
