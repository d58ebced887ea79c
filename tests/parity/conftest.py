"""The published icechunk logs errors only."""

from __future__ import annotations

import os

os.environ.setdefault("ICECHUNK_LOG", "error")
