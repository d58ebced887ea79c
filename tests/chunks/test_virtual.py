from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence

import pytest
from tests.chunks.stand_ins import Foreign

from frazil.chunks.reader import ChunkReader
from frazil.chunks.virtual import Container, VirtualSources, normalized, normalized_all
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.manifest import VirtualRef
from frazil.storage.memory import MemoryStorage
from frazil.storage.object_store_config import (
    azure_store,
    gcs_store,
    http_store,
    local_filesystem_store,
    s3_store,
)

DATA = bytes(range(256))
CONTAINERS = (
    Container("loc", "file:///data/", local_filesystem_store("/data")),
    Container(None, "file:///data/sub/", local_filesystem_store("/data/sub")),
    Container(None, "s3://b/", s3_store()),
    Container("pre", "s3://b/pre/", s3_store(region="eu-west-1")),
    Container(None, "gs://b/", gcs_store()),
    Container(None, "http://127.0.0.1:9/", http_store()),
    Container(None, "az://c/", azure_store(account="x")),
)


def reader_of(some: VirtualSources) -> ChunkReader:
    return ChunkReader(MemoryStorage(), some)


def sources(authorised: Sequence[str] = (), foreign: Foreign | None = None) -> VirtualSources:
    return VirtualSources(CONTAINERS, dict.fromkeys(authorised), open_foreign=foreign or Foreign({}))


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://b/k", "s3://b/k"),
        ("s3://b//k/../x", "s3://b//k/../x"),
        ("S3://B/k", "s3://B/k"),
        ("http://127.0.0.1:9/x?y=1", "http://127.0.0.1:9/x?y=1"),
        ("foo://b/k", "foo://b/k"),
        ("file:///data/x", "file:///data/x"),
        ("FILE:///data/x", "file:///data/x"),
        ("file:/data/x", "file:///data/x"),
        ("file:data/x", "file:///data/x"),
        ("file://localhost/data/x", "file:///data/x"),
        ("file://host/x", "file://host/x"),
        ("file:///data/sub/../x", "file:///data/x"),
        ("file:///data/%2e%2E/x", "file:///x"),
        ("file:///../../x", "file:///x"),
        ("file:///data/a/..", "file:///data/"),
        ("file:///data//a//b/../c", "file:///data//a//c"),
        ("file:///data\\..\\x", "file:///x"),
        ("file:///data/a b", "file:///data/a%20b"),
        ("file:///data/a%20b%41%", "file:///data/a%20b%41%"),
        ("file:///data/[a]|^`{}~<>\"é'", "file:///data/[a]|^%60%7B%7D~%3C%3E%22%C3%A9'"),
        ("file:///data/a?../b#c", "file:///data/a?../b#c"),
    ],
)
def test_locations_are_normalized(location: str, expected: str) -> None:
    assert normalized(location) == expected
    assert normalized(expected) == expected
    for many in ([location], ["s3://b/k", location], [expected, location, "s3://b/x\nfile:/y"]):
        assert normalized_all(many) == list(map(normalized, many))


@pytest.mark.parametrize(
    "location",
    ["", "/data/x", "s3:/b/k", "s3:///k", "s3://", "://b/k", "file:///data/%00", "file:///data/..%2fx"],
)
def test_what_is_no_url_is_refused(location: str) -> None:
    for call in (
        normalized,
        lambda each: normalized_all(["s3://b/k", each]),
        sources().find_container,
        sources().resolve,
    ):
        with pytest.raises(InvalidInputError) as error:
            call(location)
        assert error.value.kind == ErrorKind.INVALID_VIRTUAL_REF


@pytest.mark.parametrize(
    ("location", "prefix"),
    [
        ("s3://b/k", "s3://b/"),
        ("s3://b/", "s3://b/"),
        ("s3://b/pre/k", "s3://b/pre/"),
        ("s3://b/prefix", "s3://b/"),
        ("az://c/k", "az://c/"),
        ("http://127.0.0.1:9/x", "http://127.0.0.1:9/"),
        ("file:///data/x", "file:///data/"),
        ("file:///data/sub/x", "file:///data/sub/"),
        ("file:///data/sub/../x", "file:///data/"),
        ("vcc://loc/x", "file:///data/"),
        ("vcc://loc/sub/x", "file:///data/sub/"),
        ("vcc://pre/", "s3://b/pre/"),
        ("VCC://pre/k", "s3://b/pre/"),
    ],
)
def test_the_longest_prefix_wins(location: str, prefix: str) -> None:
    assert sources().find_container(location).url_prefix == prefix
    assert sources().matching([location]).tolist() == [True]


@pytest.mark.parametrize(
    "location",
    [
        *("s3://b", "s3://other/k", "gcs://b/k", "https://127.0.0.1:9/x", "file://host/data/x"),
        *("file:///data/../etc/passwd", "file:///data/%2e%2e/etc/passwd", "file:///database"),
        *("vcc://none/x", "vcc://pre", "vcc:///x", "vcc://loc/../etc/passwd"),
    ],
)
def test_what_has_no_container_is_refused(location: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        sources().find_container(location)
    assert error.value.kind == ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK
    assert sources().matching([location]).tolist() == [False]


def test_only_authorised_containers_are_read() -> None:
    foreign = Foreign({"s3://b/k": (DATA, "e", 1), "s3://b/pre/k": (DATA, "e", 1)})
    some = sources(["s3://b/"], foreign)
    assert bytes(reader_of(some).read(VirtualRef("s3://b/k", 3, 4))) == DATA[3:7]
    for location in ("s3://b/pre/k", "vcc://pre/k", "file:///data/x"):
        for read in (reader_of(some).read, lambda ref: asyncio.run(reader_of(some).read_async(ref))):
            with pytest.raises(InvalidInputError) as error:
                read(VirtualRef(location, 0, 1))
            assert error.value.kind == ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER
    assert [prefix for _, _, prefix in foreign.opened] == ["s3://b/"]
    assert foreign.gets == [("s3://b/k", 3, 7)]


def test_a_star_authorises_all_containers_below_a_prefix() -> None:
    foreign = Foreign({"s3://b/k": (DATA, "e", 1), "s3://b/pre/k": (DATA, "e", 1)})
    some = VirtualSources(CONTAINERS, {"s3://b/*": "all", "s3://b/pre": "own"}, open_foreign=foreign)
    for location in ("s3://b/k", "s3://b/pre/k"):
        assert bytes(reader_of(some).read(VirtualRef(location, 3, 4))) == DATA[3:7]
    assert [(secret, prefix) for _, secret, prefix in foreign.opened] == [
        ("all", "s3://b/"),
        ("own", "s3://b/pre/"),
    ]
    some = sources(["", "s3://b/pre/*"], foreign)
    assert bytes(reader_of(some).read(VirtualRef("s3://b/pre/k", 0, 2))) == DATA[:2]
    for location in ("s3://b/k", "file:///data/x"):
        with pytest.raises(InvalidInputError, match=r"containers_credentials\(\{") as error:
            reader_of(some).read(VirtualRef(location, 0, 1))
        assert error.value.kind == ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER


def test_a_store_is_opened_once_with_its_own_credentials() -> None:
    foreign = Foreign({"s3://b/k": (DATA, "e", 1), "file:///data/x": (DATA, "e", 1)})
    both = VirtualSources(CONTAINERS, {"s3://b/": "secret", "file:///data/": None}, open_foreign=foreign)
    for _ in range(3):
        assert bytes(reader_of(both).read(VirtualRef("vcc://loc/x", 0, 9), 2, 5)) == DATA[2:5]
        assert bytes(asyncio.run(reader_of(both).read_async(VirtualRef("s3://b/k", 1, 9)))) == DATA[1:10]
    assert foreign.opened == [
        (local_filesystem_store("/data"), None, "file:///data/"),
        (s3_store(), "secret", "s3://b/"),
    ]


def test_credentials_match_any_spelling_of_the_prefix() -> None:
    foreign = Foreign({"file:///data/x": (DATA, "e", 1)})
    some = sources(["file:///other/../data/"], foreign)
    assert bytes(reader_of(some).read(VirtualRef("file:/data/x", 0, 2))) == DATA[:2]


def test_containers_of_early_formats_name_a_scheme() -> None:
    old = VirtualSources([Container(None, "s3", s3_store())], {"s3": None}, open_foreign=Foreign({}))
    assert old.find_container("s3://any/key").url_prefix == "s3"


def test_a_pickle_opens_its_stores_anew() -> None:
    foreign = Foreign({"s3://b/k": (DATA, "e", 1)})
    some = sources(["s3://b/"], foreign)
    reader_of(some).read(VirtualRef("s3://b/k", 0, 2))
    copy = pickle.loads(pickle.dumps(some))
    assert copy.containers == CONTAINERS
    assert copy._readers == {}
    assert bytes(reader_of(copy).read(VirtualRef("s3://b/k", 0, 2))) == DATA[:2]


def test_relative_locations_as_urls() -> None:
    sources = VirtualSources([Container("x", "s3://b/p/", s3_store())], {})
    assert sources.urls(["s3://q//a"]) == ["s3://q//a"]
    assert sources.urls(["vcc://x/a/b", "s3://q//a"]) == ["s3://b/p/a/b", "s3://q//a"]
    with pytest.raises(InvalidInputError) as error:
        sources.urls(["vcc://y/a"])
    assert error.value.kind == ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK
