"""The published icechunk says only what went wrong."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("ICECHUNK_LOG", "error")
pytest.register_assert_rewrite("tests.interop.both")
