"""Configuration of both implementations: what one implementation persists, the other reads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

import frazil
from frazil import ManifestSplitCondition, ManifestSplitDimCondition
from frazil.format.envelope import FileType, open_envelope
from frazil.format.flexbuffer import dumps
from frazil.repository.settings.manifest_config import split_sizes_for

pytestmark = [pytest.mark.deep, pytest.mark.interop]

PACKAGES = (frazil, icechunk)
#: The reference has no public name of it.
RETRIES: dict[Any, Any] = {
    frazil: frazil.config.RepoUpdateRetryConfig,
    icechunk: icechunk._icechunk_python.RepoUpdateRetryConfig,
}
STORES: dict[str, Callable[[Any], Any]] = {
    "s3://b/p/": lambda p: p.s3_store(region="us-east-1"),
    "s3://c/": lambda p: p.s3_store(
        region="yes", endpoint_url="http://127.0.0.1:1", allow_http=True, s3_compatible=True
    ),
    "s3://t/": lambda p: p.ObjectStoreConfig.Tigris(p.S3Options(region="r")),
    "gs://g/": lambda p: p.gcs_store({"timeout": "1", "read_timeout": "null", "base_url": "0x1"}),
    "az://c/": lambda p: p.ObjectStoreConfig.Azure({"account": "1e3"}),
    "http://h/": lambda p: p.http_store({"timeout": "3s"}),
    "file:///tmp/1/": lambda p: p.local_filesystem_store("/tmp/1/"),
}
#: Of the containers above. In version 1, the file is YAML.
NAMES = ("on", "2020-01-01", "~", "1:30", "é #: !x", "null", None)


def full(package: Any) -> Any:
    split, dim, preload = (
        package.ManifestSplitCondition,
        package.ManifestSplitDimCondition,
        package.ManifestPreloadCondition,
    )
    config = package.RepositoryConfig(
        inline_chunk_threshold_bytes=24,
        max_concurrent_requests=9,
        num_updates_per_repo_info_file=7,
        compression=package.CompressionConfig(package.CompressionAlgorithm.Zstd, 1),
        caching=package.CachingConfig(1, 2),
        repo_update_retries=RETRIES[package](package.StorageRetriesSettings(4)),
        storage=package.StorageSettings(
            concurrency=package.StorageConcurrencySettings(1),
            retries=package.StorageRetriesSettings(1, 2),
            timeouts=package.StorageTimeoutSettings(1, 2),
            storage_class="cold",
        ),
        manifest=package.ManifestConfig(
            splitting=package.ManifestSplittingConfig.from_dict(
                {
                    split.or_conditions([split.name_matches("^big$"), split.path_matches("0o17")]): {
                        dim.DimensionName("12"): 3,
                        dim.DimensionName(""): 2,
                        dim.Axis(1): 1,
                    },
                    split.path_matches("q") & split.name_matches("r"): {dim.Any(): 1},
                    split.AnyArray(): {dim.Any(): 4},
                }
            ),
            preload=package.ManifestPreloadConfig(
                max_total_refs=5,
                preload_if=preload.or_conditions(
                    [
                        preload.name_matches("a'b\"c:#\n\t"),
                        preload.num_refs(1, 2),
                        preload.num_refs(None, None),
                        preload.and_conditions([preload.true(), preload.false()]),
                    ]
                ),
            ),
            virtual_chunk_location_compression=package.ManifestVirtualChunkLocationCompressionConfig(10),
        ),
    )
    for (prefix, store), name in zip(STORES.items(), NAMES, strict=True):
        config.set_virtual_chunk_container(package.VirtualChunkContainer(prefix, store(package), name))
    return config


def storage_of(package: Any, path: Path) -> Any:
    return package.local_filesystem_storage(str(path))


@pytest.mark.parametrize("spec_version", [1, 2])
@pytest.mark.parametrize("writer", PACKAGES, ids=lambda package: package.__name__)
@pytest.mark.parametrize("how", ["create", "save"])
def test_configurations_are_read_by_both(writer: Any, how: str, spec_version: int, tmp_path: Path) -> None:
    storage, config = storage_of(writer, tmp_path), full(writer)
    if how == "create":
        writer.Repository.create(storage, config, spec_version=spec_version)
    else:
        old = writer.RepositoryConfig(inline_chunk_threshold_bytes=1)
        writer.Repository.create(storage, old, spec_version=spec_version)
        before = [file.read_bytes() for file in tmp_path.glob("config.yaml")]
        writer.Repository.open(storage, config).save_config()
        assert [file.read_bytes() for file in tmp_path.glob("overwritten/config.yaml*")] == before
    for package in PACKAGES:
        saved = package.Repository.fetch_config(storage_of(package, tmp_path))
        wanted = full(package)
        for name in (
            "inline_chunk_threshold_bytes",
            "max_concurrent_requests",
            "num_updates_per_repo_info_file",
            "compression",
            "caching",
            "repo_update_retries",
            "virtual_chunk_containers",
            "manifest",
        ):
            assert getattr(saved, name) == getattr(wanted, name), name
        # The reference merges the defaults of its storage into the settings of the storage.
        assert (saved.storage.storage_class, saved.storage.timeouts) == ("cold", wanted.storage.timeouts)


def test_the_reference_ignores_and_preserves_our_own_settings(tmp_path: Path) -> None:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=33)
    config.packing = frazil.PackingConfig(True, 7)
    config.chunks = frazil.ChunksConfig(deduplicate=True)
    config.fast_forward_timeout = timedelta(seconds=9)
    config.session_lifetime = timedelta(hours=2)
    frazil.Repository.create(storage_of(frazil, tmp_path), config)
    repo = icechunk.Repository.open(storage_of(icechunk, tmp_path))
    assert repo.config.inline_chunk_threshold_bytes == 33
    repo.create_tag("t", repo.lookup_branch("main"))
    repo.writable_session("main").commit("empty", allow_empty=True)
    repo.set_metadata({"a": 1})
    saved = frazil.Repository.fetch_config(storage_of(frazil, tmp_path))
    assert saved is not None
    for name in ("packing", "chunks", "fast_forward_timeout", "session_lifetime"):
        assert getattr(saved, name) == getattr(config, name)


def test_metadata_values_have_the_same_bytes(tmp_path: Path) -> None:
    values = {
        "ints": [[0, 255, 256, -1, 2**40], [1, 2, 3], [7], [-5, -6]],
        "floats": [0.5, 0.1, [1.5, 2.5], [1, 2.5]],
        "nested": {"z": {"a": None, "b": [True, False]}, "a": [{"k": "v"}, {"k": "w"}, []], "é": {}},
        "text": ["x" * 300, "", "é"],
    }
    icechunk.Repository.create(storage_of(icechunk, tmp_path)).set_metadata(values)
    body = bytes(open_envelope((tmp_path / "repo").read_bytes(), FileType.REPO_INFO)[1])
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
    splitting = frazil.ManifestSplittingConfig.from_dict(rules)
    shape, names = (7, 6, 5), ["t", "y", "x"]
    config = frazil.RepositoryConfig(manifest=frazil.ManifestConfig(splitting=splitting))
    frazil.Repository.create(storage_of(frazil, tmp_path), config)
    repo = icechunk.Repository.open(storage_of(icechunk, tmp_path))
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="g/a", shape=shape, chunks=(1, 1, 1), dtype="i1", dimension_names=names
    )
    array[...] = 1
    snapshot = repo.inspect_snapshot(session.commit("all"))
    nodes = snapshot["nodes"]
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
    split, dim = icechunk.ManifestSplitCondition, icechunk.ManifestSplitDimCondition
    rules: dict[Any, dict[Any, int]] = {
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
    ("prefix", "kind", "name"),
    [
        *((prefix, "s3_store", None) for prefix in ("s3://b/", "s3://b", "s3:///", "gs://b/")),
        ("s3://b/", "s3_store", "a/b"),
        ("s3://b/", "s3_store", ""),
        ("file:///x/", "local_filesystem_store", "a b"),
    ],
)
def test_the_same_containers_are_refused(prefix: str, kind: str, name: str | None) -> None:
    refused = []
    for package in PACKAGES:
        store = getattr(package, kind)(*(["/x"] if kind == "local_filesystem_store" else []))
        try:
            container = package.VirtualChunkContainer(prefix, store, name)
            package.RepositoryConfig().set_virtual_chunk_container(container)
        except ValueError:
            refused.append(package)
    assert refused in ([], list(PACKAGES))


def test_merging_is_the_same() -> None:
    merged = []
    for package in PACKAGES:
        one = full(package)
        two = package.RepositoryConfig(
            caching=package.CachingConfig(None, 77, 78),
            compression=package.CompressionConfig(package.CompressionAlgorithm.Zstd),
            manifest=package.ManifestConfig(preload=package.ManifestPreloadConfig(None, None, 7)),
            storage=package.StorageSettings(retries=package.StorageRetriesSettings(None, None, 9)),
        )
        merged.append([_simple(each) for each in (one.merge(two), two.merge(one))])
    assert merged[0] == merged[1]


def _simple(config: Any) -> list[str]:
    preload = config.manifest.preload
    parts: tuple[Any, ...] = (config.caching, config.compression.level, config.storage.retries)
    parts += (preload.max_total_refs, preload.max_arrays_to_scan)
    return [repr(each).replace("icechunk", "frazil") for each in parts]
