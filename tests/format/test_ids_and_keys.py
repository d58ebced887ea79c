"""Ids as text, and the names of files."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import (
    INITIAL_SNAPSHOT_ID,
    id_from_text,
    id_keys,
    id_matrix,
    id_to_text,
    ids_among,
    ids_to_text,
    is_id_text,
)

cases = settings(max_examples=examples(100))
sized = st.sampled_from([8, 12])


@cases
@given(sized.flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n), min_size=1, max_size=5)))
def test_round_trip_of_text(ids: list[bytes]) -> None:
    size = len(ids[0])
    texts = [id_to_text(id_) for id_ in ids]
    assert [id_from_text(text, size) for text in texts] == ids
    assert {len(text) for text in texts} == {20 if size == 12 else 13}
    assert ids_to_text(id_matrix(ids, size)) == texts
    # Text sorts like the bytes.
    assert sorted(texts) == [id_to_text(id_) for id_ in sorted(ids)]
    order = id_keys(id_matrix(ids, size)).argsort(kind="stable")
    assert [ids[i] for i in order] == sorted(ids)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1CECHNKREP0F1RSTCMT", "1CECHNKREP0F1RSTCMT00", "1CECHNKREP0F1RSTCMTU", "1CECHNKREP0F1RSTCMTI"),
        *("1CECHNKREP0F1RSTCMT1", "1CECHNKREP0F1RSTCMÉ0", "\ud800" * 20, "ABCDEFGHJKMNP"),
    ],
)
def test_no_id(text: str) -> None:
    with pytest.raises(InvalidInputError, match="expected 20 characters") as caught:
        id_from_text(text)
    assert caught.value.kind == ErrorKind.INVALID_SNAPSHOT_ID


@pytest.mark.parametrize("text", ["1cechnkrep0f1rstcmt0", "ICECHNKREPOFLRSTCMTo", "icechnkrepoflrstcmtO"])
def test_other_spellings(text: str) -> None:
    """Crockford's: readers take them, but no file is named so."""
    assert id_from_text(text) == INITIAL_SNAPSHOT_ID
    assert not is_id_text(text)
    assert is_id_text(id_to_text(INITIAL_SNAPSHOT_ID))


@cases
@given(
    *[st.lists(st.binary(min_size=8, max_size=8) | st.sampled_from([b"\0" * 8, b"a" * 8, b"a" * 7 + b"\0"]))]
    * 2
)
def test_membership_of_ids(ids: list[bytes], others: list[bytes]) -> None:
    result = ids_among(id_matrix(ids, 8), id_matrix(others, 8))
    assert result.tolist() == [id_ in others for id_ in ids]
