"""The published icechunk logs errors only.

The environment variable `ICECHUNK_LOG` is for both implementations: with it, Frazil would log errors only in
all later tests of the process.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):
    import icechunk

    icechunk.set_logs_filter("error")
