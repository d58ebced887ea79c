"""What values look like: ``repr`` and ``str`` of what a user can make or get, in both libraries.

One table makes each value with either module. Compared after the package's name, and what differs from run to
run (ids, times), have been replaced. Credentials and virtual chunk specifications are not in
it: the reference prints them as plain objects with an address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zarr

import frazil

ic = pytest.importorskip("icechunk")
pytestmark = [pytest.mark.deep, pytest.mark.interop]

THEN = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
Make = Callable[[Any], Any]

VALUES: dict[str, Make] = {
    "attribution": lambda m: m.Attribution(client="a/1", workload="w", principal="p"),
    "caching": lambda m: m.CachingConfig(num_chunk_refs=3),
    "compression": lambda m: m.CompressionConfig(level=3),
    "preload": lambda m: m.ManifestPreloadConfig(
        max_total_refs=3, preload_if=m.ManifestPreloadCondition.name_matches("a.*")
    ),
    "preload condition, or": lambda m: m.ManifestPreloadCondition.or_conditions(
        [m.ManifestPreloadCondition.true(), m.ManifestPreloadCondition.num_refs(1, 3)]
    ),
    "preload condition, and": lambda m: (
        m.ManifestPreloadCondition.path_matches("x") & m.ManifestPreloadCondition.false()
    ),
    "split dimension": lambda m: m.ManifestSplitDimCondition.Axis(2),
    "split condition": lambda m: (
        m.ManifestSplitCondition.name_matches("a") | (m.ManifestSplitCondition.path_matches("b"))
    ),
    "split condition, any": lambda m: m.ManifestSplitCondition.AnyArray(),
    "splitting": lambda m: m.ManifestSplittingConfig.from_dict(
        {m.ManifestSplitCondition.AnyArray(): {m.ManifestSplitDimCondition.Any(): 3}}
    ),
    "location compression": lambda m: m.ManifestVirtualChunkLocationCompressionConfig(min_num_chunks=5),
    "config": lambda m: m.RepositoryConfig(
        inline_chunk_threshold_bytes=3, caching=m.CachingConfig(), compression=m.CompressionConfig(level=1)
    ),
    "config, containers": lambda m: m.RepositoryConfig(
        virtual_chunk_containers={
            "s3://b/": m.VirtualChunkContainer("s3://b/", m.s3_store(region="r"), name="n")
        }
    ),
    "storage settings": lambda m: m.StorageSettings(
        retries=m.StorageRetriesSettings(max_tries=3),
        concurrency=m.StorageConcurrencySettings(3, 4),
        timeouts=m.StorageTimeoutSettings(connect_timeout_ms=5),
        storage_class="X",
    ),
    "s3 options": lambda m: m.S3Options(region="r", checksum_algorithm=m.ChecksumAlgorithm.Crc32),
    "container": lambda m: m.VirtualChunkContainer("s3://b/", m.s3_store(region="r", anonymous=True)),
    "store, s3 compatible": lambda m: m.s3_store(
        region="r", endpoint_url="http://h", s3_compatible=True, allow_http=True, force_path_style=True
    ),
    "store, http with headers": lambda m: m.http_store({"timeout": "3s"}, {"A": "b"}),
    "store, local": lambda m: m.local_filesystem_store("/x"),
    "store, azure": lambda m: m.ObjectStoreConfig.Azure({"account": "b"}),
    "store, tigris": lambda m: m.ObjectStoreConfig.Tigris(m.S3Options(region="r")),
    "status": lambda m: m.RepoStatus(
        m.RepoAvailability.read_only, set_at=THEN, limited_availability_reason="x"
    ),
    "chunk type": lambda m: m.ChunkType.virtual,
    "spec version": lambda m: m.SpecVersion.v1,
    "error kind": lambda m: m.ErrorKind.BRANCH_NOT_FOUND,
    "storage, s3 object store": lambda m: m.Storage.new_s3_object_store(m.S3Options(region="r"), "b", "p"),
    "storage, redirect": lambda m: m.Storage.new_redirect("http://127.0.0.1/x"),
}


def _history(m: Any) -> Any:
    repo = m.Repository.create(m.in_memory_storage())
    with repo.transaction("main", message="first & <b>", metadata={"who": "me"}) as store:
        group = zarr.create_group(store)
        array = group.create_array("a", shape=(40,), chunks=(1,), dtype="i4")
        array[:] = 1
    with repo.transaction("main", message="second") as store:
        array = zarr.open_array(store, path="a")
        array[1:14] = 2
        array.attrs["x"] = 1
        zarr.create_group(store, path="g")
    tip = repo.lookup_branch("main")
    repo.create_branch("dev", tip)
    repo.create_tag("v1", tip)
    repo.delete_tag("v1")
    repo.reset_branch("dev", next(iter(repo.ancestry(branch="main"))).parent_id)
    repo.delete_branch("dev")
    repo.save_config()
    repo.set_metadata({"a": 1})
    repo.set_feature_flag("create_tag", False)
    repo.set_status(m.RepoStatus(m.RepoAvailability.read_only, limited_availability_reason="x"))
    repo.set_status(m.RepoStatus(m.RepoAvailability.online))
    return repo


@pytest.fixture(scope="module")
def repositories() -> dict[Any, Any]:
    return {m: _history(m) for m in (ic, frazil)}


def _session(repo: Any) -> Any:
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="new")
    return session


OBTAINED: dict[str, Make] = {
    "repository": lambda r: r,
    "attribution": lambda r: r.attribution,
    "config": lambda r: r.config,
    "storage": lambda r: r.storage,
    "status": lambda r: r.get_status(),
    "flags": lambda r: min(r.feature_flags(), key=lambda flag: flag.id),
    "read-only session": lambda r: r.readonly_session("main"),
    "read-only store": lambda r: r.readonly_session("main").store,
    "session": _session,
    "store": lambda r: _session(r).store,
    "fork": lambda r: r.writable_session("main").fork(),
    "session status": lambda r: _session(r).status(),
    "snapshot": lambda r: next(iter(r.ancestry(branch="main"))),
    "diff": lambda r: r.diff(
        from_snapshot_id=next(iter(r.ancestry(branch="main"))).parent_id, to_branch="main"
    ),
    "manifest file": lambda r: r.list_manifest_files(r.lookup_branch("main"))[0],
    "graph": lambda r: r.ancestry_graph(plain=True),
}


#: Where Frazil deliberately prints something else: what the reference prints, and what ours is made to be.
DIFFERENT = [
    # an expression that can be typed in
    (r"ManifestSplitDimCondition\.axis\(", "ManifestSplitDimCondition.Axis("),
    (r"ManifestSplitDimCondition\.dimension_name\(", "ManifestSplitDimCondition.DimensionName("),
    (r"ManifestSplitDimCondition\.any\(\)", "ManifestSplitDimCondition.Any()"),
    (r"ManifestSplitCondition\.any_array\(\)", "ManifestSplitCondition.AnyArray()"),
    (r"algorithm=Zstd,", "algorithm=frazil.CompressionAlgorithm.Zstd,"),
    # the defaults that hold
    (r"(get_partial_values_concurrency:\D*)10 \(default\)", r"\1all (default)"),
    (r"(max_concurrent_requests:\D*)256 \(default\)", r"\g<1>64 (default)"),
    # not words of another language
    (r"PySnapshotProperties\(\{\}\)", "{}"),
    (r"Some\((\{[^}]*\})\)", r"\1"),
    (r"Some\(\"x\"\)", "x"),
    (r"set_at=2\d{3}-[\dT:.-]+Z", "set_at=datetime.datetime(<now>, tzinfo=datetime.timezone.utc)"),
    # never the value of a header
    (r'\{"A": "b"\}', '{"A": "****"}'),
    # an array may have millions of chunks
    (r'\{"/a": \[\[1\].*\[13\]\]\}', '{"/a": 13 chunks}'),
]
#: Settings that only Frazil has.
OURS = [
    r"(?m)^ *(?:packing|chunks|fast_forward_timeout|session_lifetime|on_changed)=None,\n",
    r"(?m)^ *on_changed: raise \(default\)\n",
    r"(?m)^( *)(?:packing|chunks):\n(?:\1 +.*\n)+",
    r"(?m)^ *(?:fast_forward_timeout|session_lifetime): .*\n",
]
VARIES = [
    (r"\b[0-9A-HJKMNP-TV-Z]{20}\b", "<id>"),
    (r"● [0-9A-Z]{8}", "● <id>"),
    (r"datetime\.datetime\(2026,1[12],[\d,]+, tz", "datetime.datetime(<now>, tz"),
    (r"(size_bytes: )\d+", r"\1<n>"),
    (r"repo\.\d+\.<id>", "repo.<backup>"),
]


def _normal(text: str) -> str:
    text = text.replace("icechunk", "frazil")
    for pattern, replacement in VARIES:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    return text


def _replaced(text: str) -> str:
    for pattern, replacement in DIFFERENT:
        text = re.sub(pattern, replacement, text)
    return text


def _texts(value: Any) -> dict[str, str]:
    texts = {"repr": _normal(repr(value)), "str": _normal(str(value))}
    if type(value).__module__.startswith("frazil"):
        for pattern in OURS:
            texts = {name: re.sub(pattern, "", text) for name, text in texts.items()}
        return texts
    return {name: _replaced(text) for name, text in texts.items()}


#: The splitting of a new repository, which is "auto" only here.
SPLITTING = [
    r"manifest=(?:None|frazil\.config\.ManifestConfig\((?:.|\n)*?\n\s*\)),",
    r"splitting: *(?:\"auto\"|\n *<.*>\n *split_sizes.*)",
]


def _without_splitting(texts: dict[str, str]) -> dict[str, str]:
    for pattern in SPLITTING:
        texts = {name: re.sub(pattern, "", text) for name, text in texts.items()}
    return texts


@pytest.mark.parametrize("name", VALUES)
def test_values_look_the_same(name: str) -> None:
    theirs, ours = _texts(VALUES[name](ic)), _texts(VALUES[name](frazil))
    assert ours == theirs


@pytest.mark.parametrize("name", OBTAINED)
def test_what_a_repository_gives_looks_the_same(name: str, repositories: dict[Any, Any]) -> None:
    theirs, ours = (_without_splitting(_texts(OBTAINED[name](repositories[m]))) for m in (ic, frazil))
    assert ours == theirs


def test_the_log_of_operations_looks_the_same(repositories: dict[Any, Any]) -> None:
    theirs, ours = ([_texts(each) for each in repositories[m].ops_log()] for m in (ic, frazil))
    assert ours == theirs
    theirs, ours = ([_texts(each.kind) for each in repositories[m].ops_log()] for m in (ic, frazil))
    assert ours == theirs


def test_objects_of_a_storage_look_the_same(tmp_path: Path) -> None:
    def objects(m: Any) -> Iterator[tuple[str, dict[str, str]]]:
        storage = m.local_filesystem_storage(str(tmp_path / m.__name__))
        m.Repository.create(storage)
        for prefix in (None, "", "snapshots", "snapshots/", "snap", "nowhere"):
            for each in storage.list_objects_metadata(prefix=prefix):
                yield f"{prefix}: {each.key}", _texts(each)
            assert sorted(storage.list_objects(prefix=prefix)) == sorted(
                (each.key, each.size_bytes) for each in storage.list_objects_metadata(prefix=prefix)
            )

    assert dict(objects(frazil)) == dict(objects(ic))
