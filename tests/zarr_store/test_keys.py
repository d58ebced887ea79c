"""Which keys name what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import InvalidInputError
from frazil.zarr_store.references import Document, chunk_keys, document_keys, parse_key

VALID = {
    "zarr.json": ("/", Document.V3),
    "/zarr.json": ("/", Document.V3),
    "a/zarr.json": ("/a", Document.V3),
    "a/b/zarr.json": ("/a/b", Document.V3),
    "c/zarr.json": ("/c", Document.V3),
    "a/c/0/zarr.json": ("/a/c/0", Document.V3),
    ".zgroup": ("/", Document.V2),
    "a/.zarray": ("/a", Document.V2),
    "a/.zattrs": ("/a", Document.V2),
    ".zmetadata": ("/", Document.V2),
    "a/c/0/1": ("/a", (0, 1)),
    "/a/c/0/1": ("/a", (0, 1)),
    "a/c": ("/a", ()),
    "c": ("/", ()),
    "c/0": ("/", (0,)),
    "c/0/12/4294967295": ("/", (0, 12, 4294967295)),
    "c/c/0": ("/c", (0,)),
    "c/0/c": ("/c/0", ()),
    "c/0/c/0": ("/c/0", (0,)),
    "0/c/1": ("/0", (1,)),
    "c/c/c": ("/c/c", ()),
    "a/c/c/0/1": ("/a/c", (0, 1)),
    "zarr.json/c/0": ("/zarr.json", (0,)),
    "a b/ü/c/0": ("/a b/ü", (0,)),
}

INVALID = [
    *("", "/", "a", "foo", "a/foo", "a/c/", "c/", "a/c/0/", "a/c/0//1", "zarr.json/", "a/c/0/x", "a/c/0.0"),
    *(
        "a/c/-1/0",
        "a/c/+0/1",
        "a/c/ 0/1",
        "a/c/1_0",
        "a/c/٣",
        "a/c/²",
        "a/c/4294967296/0",
        "a/c/" + "9" * 5000,
    ),
    *("../zarr.json", "a/../zarr.json", "./zarr.json", "a//zarr.json", "//zarr.json", "a//c/0", "a/./c/0"),
    *("\ud800/zarr.json", "\ud800/c/0", "c/x", "C/0", "c0"),
]


@pytest.mark.parametrize("key", VALID)
def test_a_key_names(key: str) -> None:
    assert parse_key(key) == VALID[key]


@pytest.mark.parametrize("key", INVALID)
def test_no_key(key: str) -> None:
    with pytest.raises(InvalidInputError, match="a zarr key must be") as raised:
        parse_key(key)
    assert raised.value.kind == "invalid-key"


NAMES = st.sampled_from(["c", "0", "12", "a", "zarr.json", "ab c", "ü"])
PATHS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))


@given(
    path=PATHS,
    index=st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 3), min_size=1),
    ndim=st.integers(0, 3),
)
def test_keys_of_chunks_are_parsed_back(path: str, index: list[tuple[int, ...]], ndim: int) -> None:
    coords = [each[:ndim] for each in index]
    keys = chunk_keys(path, np.array(coords, np.uint32).reshape(len(coords), ndim))
    assert [parse_key(key) for key in keys] == [(path, each) for each in coords]


@given(st.lists(PATHS))
def test_keys_of_documents_are_parsed_back(paths: list[str]) -> None:
    assert [parse_key(key) for key in document_keys(paths)] == [(path, Document.V3) for path in paths]
