"""Comparisons that say what differs."""

import pytest

pytest.register_assert_rewrite("tests.readers.comparing")
