"""Configuration beside the reference's: what one implementation persists, the other reads."""

from __future__ import annotations

import json
import re
import struct
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zstandard
from tests.support.config_bytes import decode_config, encode_config

from frazil.format.flexbuffer import dumps, loads
from frazil.repository import attribution
from frazil.repository.catalog import version_info
from frazil.repository.settings import conditions, config, manifest_config
from frazil.repository.settings import config as virtual_containers
from frazil.repository.settings.conditions import ManifestSplitCondition, ManifestSplitDimCondition
from frazil.repository.settings.config import (
    ChunksConfig,
    PackingConfig,
    RepositoryConfig,
    VirtualChunkContainer,
)
from frazil.repository.settings.config_document import from_document, to_document
from frazil.repository.settings.manifest_config import ManifestSplittingConfig, split_sizes_for
from frazil.storage import object_store_config, settings
from frazil.storage.object_store_config import local_filesystem_store, s3_store

if TYPE_CHECKING:
    from pathlib import Path

icechunk = pytest.importorskip("icechunk")
pytestmark = [pytest.mark.deep, pytest.mark.interop]


class Names:
    """One name space with the names of the reference, for either implementation."""

    def __init__(self, *modules: Any) -> None:
        self.modules = modules

    def __getattr__(self, name: str) -> Any:
        for module in self.modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)


REFERENCE = Names(icechunk, icechunk._icechunk_python, icechunk.storage)
OURS = Names(
    settings,
    object_store_config,
    conditions,
    manifest_config,
    config,
    virtual_containers,
    attribution,
    version_info,
)


def splitting(n: Names) -> Any:
    array, dim = n.ManifestSplitCondition, n.ManifestSplitDimCondition
    return n.ManifestSplittingConfig.from_dict(
        {
            array.AnyArray(): {dim.Axis(0): 3, dim.DimensionName("x"): 4, dim.Any(): 9},
            array.path_matches("q") | array.name_matches("r"): {dim.Any(): 1},
            array.path_matches("q") & array.name_matches("r"): {dim.Any(): 1},
        }
    )


def preload_if(n: Names) -> Any:
    p = n.ManifestPreloadCondition
    return p.or_conditions(
        [
            p.name_matches("a"),
            p.num_refs(1, 2),
            p.num_refs(None, None),
            p.true(),
            p.and_conditions([p.path_matches("p"), p.false()]),
        ]
    )


def containers(n: Names) -> Any:
    containers = [
        n.VirtualChunkContainer("az://c/", n.azure_store(account="acc")),
        n.VirtualChunkContainer("file:///x/", n.local_filesystem_store("/x")),
        n.VirtualChunkContainer("gs://g/", n.gcs_store()),
        n.VirtualChunkContainer("http://h/", n.http_store({"timeout": "3s"}, {"A": "b"})),
        n.VirtualChunkContainer("s3://b/", n.s3_store(region="r"), "name"),
        n.VirtualChunkContainer("s3://c/", n.s3_store(s3_compatible=True)),
        n.VirtualChunkContainer("s3://t/", n.ObjectStoreConfig.Tigris(n.S3Options(region="r"))),
    ]
    return {container.url_prefix: container for container in containers}


def storage(n: Names) -> Any:
    return n.StorageSettings(
        concurrency=n.StorageConcurrencySettings(1),
        retries=n.StorageRetriesSettings(1, 2),
        timeouts=n.StorageTimeoutSettings(1, 2),
        unsafe_use_metadata=False,
        storage_class="cold",
    )


def full(n: Names) -> Any:
    return n.RepositoryConfig(
        inline_chunk_threshold_bytes=9,
        compression=n.CompressionConfig(level=9),
        caching=n.CachingConfig(1, 2),
        storage=storage(n),
        manifest=n.ManifestConfig(
            preload=n.ManifestPreloadConfig(5, preload_if(n)),
            splitting=splitting(n),
            virtual_chunk_location_compression=n.ManifestVirtualChunkLocationCompressionConfig(10),
        ),
        repo_update_retries=n.RepoUpdateRetryConfig(n.StorageRetriesSettings(4)),
        # One only: the reference keeps them in no order.
        virtual_chunk_containers={"s3://b/": containers(n)["s3://b/"]},
    )


#: Field -> the default of the reference, and that of Frazil.
DEFAULTS = {"get_partial_values_concurrency": ("10", "all"), "max_concurrent_requests": ("256", "64")}


def own_defaults(text: str) -> str:
    """The reference's text with the defaults that only Frazil has."""
    for field, (theirs, ours) in DEFAULTS.items():
        text = re.sub(
            rf"({field}:(</span> <span [^>]*>)?\s*){theirs} \(default\)", rf"\g<1>{ours} (default)", text
        )
    return text


# -------------------------------------------------------------------------------------- persistence

HEADER = 39
CONFIG_SLOT = 9


class RepoFile:
    """The ``config`` field of a repository file, read and replaced without the rest of Frazil."""

    def __init__(self, root: Path) -> None:
        self.path = root / "repo"

    def body(self) -> bytearray:
        return bytearray(zstandard.ZstdDecompressor().decompress(self.path.read_bytes()[HEADER:]))

    @staticmethod
    def field(body: bytearray) -> int:
        """Where the offset of the config stands."""
        (root,) = struct.unpack_from("<I", body)
        (back,) = struct.unpack_from("<i", body, root)
        (offset,) = struct.unpack_from("<H", body, root - back + 4 + 2 * CONFIG_SLOT)
        return root + int(offset)

    @property
    def config(self) -> bytes:
        body = self.body()
        at = self.field(body)
        start = at + struct.unpack_from("<I", body, at)[0]
        (n,) = struct.unpack_from("<I", body, start)
        return bytes(body[start + 4 : start + 4 + n])

    @config.setter
    def config(self, config: bytes) -> None:
        body, header = self.body(), self.path.read_bytes()[:HEADER]
        at = self.field(body)
        body += bytes(-len(body) % 8)
        struct.pack_into("<I", body, at, len(body) - at)
        body += struct.pack("<I", len(config)) + config
        beside = self.path.with_suffix(".new")
        beside.write_bytes(header + zstandard.compress(bytes(body)))
        beside.rename(self.path)


def created(root: Path, config: Any) -> RepoFile:
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(root)), config=config)
    return RepoFile(root)


def opened(root: Path) -> Any:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(root)))


def test_we_read_what_the_reference_persists(tmp_path: Path) -> None:
    persisted = created(tmp_path, full(REFERENCE)).config
    config = decode_config(persisted)
    assert to_document(config) == loads(persisted)
    # The reference merged the defaults of its storage into the settings of the storage.
    assert config.storage is not None
    config.storage = storage(OURS)
    assert config == full(OURS)


def test_the_reference_reads_what_we_persist(tmp_path: Path) -> None:
    file = created(tmp_path, icechunk.RepositoryConfig(inline_chunk_threshold_bytes=1))
    file.config = encode_config(full(OURS))
    theirs = opened(tmp_path).config
    wanted = full(REFERENCE)
    for name in ("inline_chunk_threshold_bytes", "compression", "caching", "manifest", "repo_update_retries"):
        assert getattr(theirs, name) == getattr(wanted, name)
    assert theirs.virtual_chunk_containers == wanted.virtual_chunk_containers


def test_the_reference_ignores_and_preserves_our_own_settings(tmp_path: Path) -> None:
    file = created(tmp_path, icechunk.RepositoryConfig(inline_chunk_threshold_bytes=33))
    config = decode_config(file.config)
    config.packing = PackingConfig(True, 7)
    config.chunks = ChunksConfig(deduplicate=True)
    config.fast_forward_timeout = timedelta(seconds=9)
    file.config = encode_config(config)

    repo = opened(tmp_path)
    assert repo.config.inline_chunk_threshold_bytes == 33
    repo.create_tag("t", repo.lookup_branch("main"))
    repo.writable_session("main").commit("empty", allow_empty=True)
    repo.set_metadata({"a": 1})
    assert decode_config(file.config) == config


def test_metadata_values_have_the_same_bytes(tmp_path: Path) -> None:
    values = {
        "ints": [[0, 255, 256, -1, 2**40], [1, 2, 3], [7], [-5, -6]],
        "floats": [0.5, 0.1, [1.5, 2.5], [1, 2.5]],
        "nested": {"z": {"a": None, "b": [True, False]}, "a": [{"k": "v"}, {"k": "w"}, []], "é": {}},
        "text": ["x" * 300, "", "é"],
    }
    file = created(tmp_path, icechunk.RepositoryConfig(inline_chunk_threshold_bytes=1))
    opened(tmp_path).set_metadata(values)
    body = bytes(file.body())
    for value in values.values():
        assert dumps(value) in body


Split, Dim = ManifestSplitCondition, ManifestSplitDimCondition
RULES: dict[str, Any] = {
    "rest to the next rule": {
        Split.name_matches("^a$"): {Dim.DimensionName("t"): 3},
        Split.AnyArray(): {Dim.Any(): 4},
    },
    "first of a rule": {Split.AnyArray(): {Dim.Axis(0): 2, Dim.DimensionName("t"): 4, Dim.Any(): 5}},
    "part of a name": {Split.path_matches("g/"): {Dim.DimensionName("y|z"): 3}},
    "no rule": {Split.name_matches("b"): {Dim.Any(): 2}},
    "broken expression": {Split.name_matches("("): {Dim.Any(): 2}, Split.AnyArray(): {Dim.Axis(1): 3}},
    "empty and": {Split.and_conditions([]): {Dim.Any(): 3}},
    "empty or": {Split.or_conditions([]): {Dim.Any(): 3}},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())
def test_manifests_are_split_where_the_reference_splits(tmp_path: Path, rules: Any) -> None:
    zarr = pytest.importorskip("zarr")
    splitting = ManifestSplittingConfig.from_dict(rules)
    shape, names = (7, 6, 5), ["t", "y", "x"]
    file = created(tmp_path, icechunk.RepositoryConfig(inline_chunk_threshold_bytes=512))
    config = decode_config(file.config)
    config.manifest = OURS.ManifestConfig(splitting=splitting)
    file.config = encode_config(config)

    repo = opened(tmp_path)
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="g/a", shape=shape, chunks=(1, 1, 1), dtype="i1", dimension_names=names
    )
    array[...] = 1
    snapshot = repo.inspect_snapshot(session.commit("all"))
    nodes = (json.loads(snapshot) if isinstance(snapshot, str) else snapshot)["nodes"]
    (refs,) = (node["manifest_refs"] for node in nodes if node["node_type"] == "array")
    extents = {tuple(map(tuple, ref["extents"])) for ref in refs}

    sizes = split_sizes_for(splitting, "/g/a", names, shape)
    steps = [range(0, n, size) for n, size in zip(shape, sizes, strict=True)]
    expected = {
        tuple((start, min(start + size, n)) for start, size, n in zip(starts, sizes, shape, strict=True))
        for starts in ((a, b, c) for a in steps[0] for b in steps[1] for c in steps[2])
    }
    assert extents == expected


#: Expressions, each with a text. Not the same are ``[a&&b]``, ``a++``, ``(?x)``, and ``\b`` beyond ASCII.
EXPRESSIONS = (
    *(("x", "abc"), ("a", "abc"), ("^a", "abc"), ("^b", "abc"), ("", "abc"), ("(?:a|b)*?c", "abc")),
    *(("(", "abc"), (r"(a)\1", "aa"), ("(?=a)", "a"), ("(?<!b)a", "a"), (r"a\Z", "a"), (r"a\z", "a")),
    *(("(?P<n>a)", "a"), ("(?<n>a)", "a"), ("(a+)+$", "a" * 30 + "b"), ("a{1000}", "a" * 1000)),
    *(("(a{100}){100}{10}", "a"), ("[[:alpha:]]", "a"), (r"\x{61}", "a"), (r"\u0061", "a"), ("[]a]", "a")),
    *((r"^\w+$", "é"), (r"^\W$", "é"), (r"^[\w-]+$", "é-é"), (r"^\d$", "٣"), (r"^[\d]$", "٣"), (r"\D", "٣")),
    *(("(?i)É", "é"), ("^.$", "é"), (r"\pL", "é"), (r"\p{Greek}", "α"), (r"\s", "é"), (r"\S", "é")),
    *(("a{,2}b", "b"), (r"\_", "_"), (r"\w", "-"), (r"[^\w]", "é"), (r"\.", "a")),
)


def test_expressions_match_as_in_the_reference() -> None:
    zarr = pytest.importorskip("zarr")
    split, dim = icechunk.ManifestSplitCondition, icechunk.ManifestSplitDimCondition
    rules = {
        split.path_matches(f"^/{at}/") & split.name_matches(regex): {dim.Any(): 1}
        for at, (regex, _) in enumerate(EXPRESSIONS)
    }
    manifest = icechunk.ManifestConfig(splitting=icechunk.ManifestSplittingConfig.from_dict(rules))
    config = icechunk.RepositoryConfig(manifest=manifest, inline_chunk_threshold_bytes=0)
    repo = icechunk.Repository.create(icechunk.in_memory_storage(), config)
    session = repo.writable_session("main")
    for at, (_, name) in enumerate(EXPRESSIONS):
        zarr.create_array(session.store, name=f"{at}/{name}", data=np.ones(2, "i1"), chunks=(1,))
    nodes = repo.inspect_snapshot(session.commit("all"))["nodes"]
    manifests = {node["path"]: len(node["manifest_refs"]) for node in nodes if node["node_type"] == "array"}
    for at, (regex, name) in enumerate(EXPRESSIONS):
        condition = Split.name_matches(regex)
        assert condition.holds(f"/{at}/{name}") == (manifests[f"/{at}/{name}"] == 2), (regex, name)


@pytest.mark.parametrize(
    "container",
    [
        VirtualChunkContainer("s3://b/", s3_store()),
        VirtualChunkContainer("s3://b", s3_store()),
        VirtualChunkContainer("s3:///", s3_store()),
        VirtualChunkContainer("gs://b/", s3_store()),
        VirtualChunkContainer("s3://b/", s3_store(), "a/b"),
        VirtualChunkContainer("s3://b/", s3_store(), ""),
        VirtualChunkContainer("file:///x/", local_filesystem_store("/x"), "a b"),
    ],
    ids=lambda c: f"{c.url_prefix} {c.name}",
)
def test_the_same_containers_are_refused(container: VirtualChunkContainer) -> None:
    store = icechunk.s3_store() if container.store == s3_store() else icechunk.local_filesystem_store("/x")
    theirs = icechunk.VirtualChunkContainer(container.url_prefix, store, container.name)

    def refused(config: Any, value: Any) -> bool:
        try:
            config.set_virtual_chunk_container(value)
        except ValueError:
            return True
        return False

    assert refused(RepositoryConfig(), container) == refused(icechunk.RepositoryConfig(), theirs)


def test_merging_is_the_same() -> None:
    def both(n: Any) -> Any:
        one = full(n)
        two = n.RepositoryConfig(
            caching=n.CachingConfig(None, 77, 78),
            compression=n.CompressionConfig(n.CompressionAlgorithm.Zstd),
            manifest=n.ManifestConfig(preload=n.ManifestPreloadConfig(None, None, 7)),
            storage=n.StorageSettings(retries=n.StorageRetriesSettings(None, None, 9)),
        )
        return one.merge(two), two.merge(one)

    for ours, theirs in zip(both(OURS), both(REFERENCE), strict=True):
        assert decode_config(encode_config(ours)) == ours
        assert (
            str(ours).partition("packing:")[0].replace("frazil", "icechunk").split("splitting:")[0]
            == own_defaults(str(theirs)).split("splitting:")[0]
        )


def test_documents_with_gaps(tmp_path: Path) -> None:
    file = created(tmp_path, icechunk.RepositoryConfig(inline_chunk_threshold_bytes=1))
    document = {"compression": {"level": 3}, "later": [1]}
    file.config = dumps(document)
    assert opened(tmp_path).config.compression.level == 3
    assert from_document(document) == RepositoryConfig(compression=OURS.CompressionConfig(level=3))
