"""Values that metadata may have, for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcé"), inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(TEXT, JSON, max_size=3)
