"""What one implementation writes, the other one reads: data, history, settings; and goes on from there."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from tests.expected import array_at, kind_text
from tests.interop.both import Side, check_same, content_of, diff_of, manifests_of, sides, splitting, state_of
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

import frazil
from frazil.format.repo_info import decode_repo_info

pytestmark = pytest.mark.interop


@pytest.fixture
def both(tmp_path: Path) -> tuple[Side, Side]:
    virtual = tmp_path / "files"
    virtual.mkdir()
    (virtual / "data.bin").write_bytes(bytes(range(256)) * 40)
    return sides(tmp_path / "repo", virtual)


@pytest.fixture(params=["frazil", "icechunk"])
def turns(request: pytest.FixtureRequest, both: tuple[Side, Side]) -> tuple[Side, Side]:
    """The one that writes, the one that reads."""
    return both if request.param == "frazil" else both[::-1]


def agree(one: Side, other: Side) -> dict[str, Any]:
    """Both, with new handles, see the same; what they see."""
    ours, theirs = sides(one.path, one.virtual)
    return check_same(ours.open(), theirs.open())


DTYPES = [
    "bool",
    "i1",
    "u1",
    "i2",
    "u2",
    "i4",
    "u4",
    "i8",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    "M8[s]",
    "m8[ms]",
]
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((0,), (1,)),
    ((1,), (1,)),
    ((7,), (3,)),
    ((5, 4), (2, 4)),
    ((3, 0, 2), (1, 1, 1)),
    ((3, 4, 5, 2), (2, 2, 3, 1)),
]
CODECS: dict[str, dict[str, Any]] = {
    "none": {"compressors": None},
    "zstd": {"compressors": ZstdCodec(level=1)},
    "gzip": {"compressors": GzipCodec()},
    "blosc": {"compressors": BloscCodec(cname="lz4", typesize=4)},
    "big": {"compressors": None, "serializer": BytesCodec(endian="big")},
    "checked": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "transposed": {"filters": [TransposeCodec(order=(1, 0))]},
}


def some(dtype: str, shape: tuple[int, ...]) -> Any:
    size = int(np.prod(shape))
    return (np.arange(size) % 120 + 1).astype("i8").astype(dtype).reshape(shape)


def fill(store: Any) -> dict[str, Any]:
    """Arrays of all kinds, by path."""
    out: dict[str, Any] = {}

    def array(path: str, values: Any, chunks: Any, **more: Any) -> None:
        values = np.asarray(values)
        array = zarr.create_array(
            store, name=path, shape=values.shape, chunks=chunks, dtype=values.dtype, **more
        )
        array[...] = values
        out[path] = values

    for dtype in DTYPES:
        array(f"dtypes/{dtype}", some(dtype, (5, 3)), (2, 2))
    for number, (shape, chunks) in enumerate(SHAPES):
        array(f"shapes/{number}", some("i4", shape), chunks)
    for name, codec in CODECS.items():
        array(f"codecs/{name}", some("i4", (6, 5)), (4, 5), **codec)
    array("codecs/sharded", some("i4", (8, 16)), (2, 4), shards=(4, 8))
    array("text", np.array(["a", "bé", "", "☃" * 200], dtype=np.dtypes.StringDType()), (2,))
    array("fixed", np.array(["ab", "c", "dé"], "U3"), (2,))
    array("raw", np.array([b"ab", b"c"], "S2"), (1,))
    array("record", np.array([(1, 2.5), (3, -1)], [("a", "i4"), ("b", "f8")]), (1,))
    array("sizes/inline", some("u1", (512,)), (512,), compressors=None)
    array("sizes/packed", some("u1", (513 * 3,)), (513,), compressors=None)
    array("sizes/own", np.random.default_rng(0).random(300_000), (150_000,), compressors=None)
    array("many", np.random.default_rng(1).random((60, 400)), (1, 100), compressors=None)
    zarr.create_array(store, name="sparse", shape=(100, 100), chunks=(10, 10), dtype="f4", fill_value=np.nan)[
        55:65, 5
    ] = 1
    sparse = np.full((100, 100), np.nan, "f4")
    sparse[55:65, 5] = 1
    out["sparse"] = sparse
    group = zarr.create_group(store, path="Ünï cödé/子 x", attributes={"å": [1, {"b": None}], "big": 2**60})
    group.create_group("empty")
    array("Ünï cödé/子 x/t", some("i2", (4,)), (3,), dimension_names=["temps é"], attributes={"n": 1.5})
    return out


@pytest.mark.deep
def test_data_of_all_kinds(turns: tuple[Side, Side]) -> None:
    writer, reader = turns
    writer.create(writer.config())
    with writer.repo.transaction("main", message="all") as store:
        wanted = fill(store)
    seen = agree(writer, reader)
    session = reader.open().repo.readonly_session("main")
    for path, values in wanted.items():
        stored_values = np.asarray(array_at(session, path)[...])
        assert stored_values.dtype == values.dtype or values.dtype.kind in "US"
        np.testing.assert_array_equal(stored_values, values.astype(stored_values.dtype))
    content = seen["content"][session.snapshot_id]
    kinds = {kind for node in content.values() for _, kind, _, _ in node.get("chunks", [])}
    assert kinds == {1, 3}
    files = [where[0] for _, _, where, _ in content["/many"]["chunks"]]
    assert len(files) == 240
    assert len(set(files)) == (1 if writer.name == "frazil" else 240)


def test_nodes_come_in_the_order_that_readers_search(both: tuple[Side, Side]) -> None:
    ours, theirs = both
    ours.create(ours.config())
    names = ["a", "a-b", "a.b", "a0", "a b", "Z", "é", "a/b", "a/b-c", "a/b/c", "a-b/x", "ab", "\U0001f9ca"]
    with ours.repo.transaction("main", message="order") as store:
        for name in names:
            zarr.create_group(store, path=name)
    id_ = ours.repo.lookup_branch("main")
    paths = [node["path"] for node in theirs.open().repo.inspect_snapshot(id_)["nodes"]]
    assert paths == sorted(["/", *(f"/{name}" for name in names)], key=str.encode)
    session = theirs.repo.readonly_session("main")
    for name in names:
        assert zarr.open_group(session.store, path=name, mode="r").path == name
    agree(ours, theirs)


METADATA: dict[str, Any] = {
    "null": None,
    "true": True,
    "ints": [0, 1, -1, 127, 128, -300, 2**31, -(2**31), 2**53, 2**63 - 1, -(2**63)],
    "floats": [0.5, 1.25, -2.5, 1e300, 1 / 3],
    "mixed": [1, "two", 2.5, None, [True], {"k": [{}]}],
    "text": 'ünï ☃ \n\t"',
    "empty": "",
    "nothing": [],
    "none": {},
    "é key": {"z": 1, "a": {"deep": [[], [1], ["x"]]}},
    "texts": ["a", "b"],
    "bools": [True, False],
}


def test_metadata_of_commits_and_repository(turns: tuple[Side, Side]) -> None:
    writer, reader = turns
    writer.create(writer.config())
    with writer.repo.transaction("main", message="a\nmessage ☃", metadata=METADATA) as store:
        zarr.create_group(store)
    writer.repo.set_metadata(METADATA)
    writer.repo.update_metadata({"text": "other", "more": 1})
    commit = next(iter(reader.open().repo.ancestry(branch="main")))
    assert (commit.message, commit.metadata) == ("a\nmessage ☃", METADATA)
    assert types_of(commit.metadata) == types_of(METADATA)
    assert reader.repo.get_metadata() == {**METADATA, "text": "other", "more": 1}
    agree(writer, reader)


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: types_of(each) for key, each in value.items()}
    return [types_of(each) for each in value] if isinstance(value, list) else type(value)


@pytest.mark.sample(1)
def test_refs_and_their_operations(turns: tuple[Side, Side]) -> None:
    writer, reader = turns
    repo = writer.create(writer.config(num_updates_per_repo_info_file=3)).repo
    ids = []
    for number in range(3):
        with repo.transaction("main", message=f"commit {number}") as store:
            zarr.create_group(store, path=f"g{number}")
        ids.append(repo.lookup_branch("main"))
    for name in ("dev", "b/c", "é", "x y"):
        repo.create_branch(name, ids[0])
        repo.create_tag(f"tag {name}", ids[1])
    repo.reset_branch("dev", ids[2])
    repo.reset_branch("b/c", ids[1], from_snapshot_id=ids[0])
    repo.delete_branch("é")
    repo.delete_tag("tag é")
    repo.delete_tag("tag dev")
    repo.writable_session("x y").commit("nothing", allow_empty=True)
    repo.set_feature_flag("create_tag", False)
    repo.set_feature_flag("delete_tag", True)
    repo.set_feature_flag("delete_tag", None)
    status = writer.package.RepoStatus
    available = writer.package.RepoAvailability
    repo.set_status(status(available.read_only, None, "why not"))
    repo.set_status(status(available.online))
    repo.set_status(status(available.read_only, None, "again é"))
    seen = agree(writer, reader)
    assert seen["refs"]["branches"].keys() == {"main", "dev", "b/c", "x y"}
    kinds = [op["kind"].partition("(")[0] for op in seen["ops"]]
    assert kinds == [
        *["RepoStatusChanged"] * 3,
        *["FeatureFlagChanged"] * 3,
        "NewCommit",
        *["TagDeleted"] * 2,
        "BranchDeleted",
        *["BranchReset"] * 2,
        *["TagCreated", "BranchCreated"] * 4,
        *["NewCommit"] * 3,
        "RepoInitialized",
    ]
    assert all(op["backup_path"] for op in seen["ops"][1:])
    assert "again é" in seen["status"]
    other = reader.open().repo
    with pytest.raises(reader.package.ReadOnlyError):
        other.writable_session("main")
    other.set_status(reader.package.RepoStatus(reader.package.RepoAvailability.online))
    with pytest.raises(reader.package.SessionStateError) as disabled:
        other.create_tag("new", ids[0])
    assert disabled.value.kind == "feature-flag-disabled"
    other.set_feature_flag("create_tag", None)
    with pytest.raises(reader.package.AlreadyExistsError) as deleted:
        other.create_tag("tag é", ids[0])
    assert deleted.value.kind == "tag-previously-deleted"
    info = decode_repo_info((writer.path / "repo").read_bytes(), "repo")
    assert len(info.ops) == 3
    agree(writer, reader)


def test_saved_configuration(turns: tuple[Side, Side]) -> None:
    writer, reader = turns
    package = writer.package
    config = writer.config(
        inline_chunk_threshold_bytes=100,
        num_updates_per_repo_info_file=7,
        manifest=splitting(package, 3),
        compression=package.CompressionConfig(level=7),
        caching=package.CachingConfig(num_chunk_refs=1000),
    )
    if writer.name == "frazil":
        config.packing = frazil.PackingConfig(threshold_bytes=5000)
        config.chunks = frazil.ChunksConfig(deduplicate=True)
        config.fast_forward_timeout = timedelta(seconds=9)
        config.session_lifetime = timedelta(hours=2)
    repo = writer.create(config).repo
    for number in range(2):
        config = reader.package.Repository.fetch_config(reader.storage())
        assert config.inline_chunk_threshold_bytes == 100
        assert config.num_updates_per_repo_info_file == 7
        assert config.compression.level == 7
        assert config.caching.num_chunk_refs == 1000
        assert config.manifest.splitting == splitting(reader.package, 3).splitting
        assert set(config.virtual_chunk_containers) == {writer.prefix}
        assert config.virtual_chunk_containers[writer.prefix].name == "files"
        if number == 0:
            repo.save_config()
    if writer.name == "frazil":
        saved = frazil.Repository.fetch_config(writer.storage())
        assert saved is not None
        assert saved.packing == frazil.PackingConfig(threshold_bytes=5000)
        assert saved.chunks == frazil.ChunksConfig(deduplicate=True)
        assert saved.fast_forward_timeout == timedelta(seconds=9)
        assert saved.session_lifetime == timedelta(hours=2)
    reader.open().repo.save_config()
    again = writer.package.Repository.fetch_config(writer.storage())
    assert again.inline_chunk_threshold_bytes == 100
    assert again.manifest.splitting == splitting(package, 3).splitting
    agree(writer, reader)


@pytest.mark.sample(3, 3)
@pytest.mark.deep
@pytest.mark.parametrize("split", [None, 2, 5])
def test_arrays_that_grow_and_shrink(turns: tuple[Side, Side], split: int | None) -> None:
    """Alternately by both, with and without splitting of manifests."""
    writer, reader = turns
    more = {} if split is None else {"manifest": splitting(writer.package, split)}
    writer.create(writer.config(inline_chunk_threshold_bytes=0, **more))
    with writer.repo.transaction("main", message="made") as store:
        zarr.create_array(store, name="a", shape=(9, 8), chunks=(1, 2), dtype="i4", compressors=None)[...] = 1
        zarr.create_array(store, name="b", shape=(9,), chunks=(1,), dtype="i4", compressors=None)[...] = 2
    model = np.ones((9, 8), "i4")
    rng = np.random.default_rng(split)
    for number, side in enumerate([reader.open(), writer, reader, writer, reader, writer]):
        with side.repo.transaction("main", message=f"turn {number}") as store:
            array = zarr.open_array(store, path="a", mode="a")
            shape = (int(rng.integers(3, 13)), int(rng.integers(2, 7)) * 2)
            array.resize(shape)
            grown = np.zeros(shape, "i4")
            both = tuple(slice(0, min(pair)) for pair in zip(shape, model.shape, strict=True))
            grown[both] = model[both]
            grown[number % 3 :: 4, 1::5] = number + 10
            array[number % 3 :: 4, 1::5] = number + 10
            model = grown
            if number == 2:
                store_delete(store, "b/c/3")
        for each in (writer, reader):
            stored_values = array_at(each.repo.readonly_session("main"), "a")[...]
            np.testing.assert_array_equal(stored_values, model)
    seen = agree(writer, reader)
    counts = [len(manifests_of(reader.repo, id_)) for id_ in seen["content"]]
    assert max(counts) > 5 if split == 2 else True
    content = seen["content"][reader.repo.lookup_branch("main")]
    assert [at for at, *_ in content["/b"]["chunks"]] == [(n,) for n in range(9) if n != 3]


def store_delete(store: Any, key: str) -> None:
    zarr.core.sync.sync(store.delete(key))


@pytest.mark.sample(1)
def test_virtual_chunks(turns: tuple[Side, Side]) -> None:
    """Of files, with all checksums; locations shared, many, and compressed with a dictionary."""
    writer, reader = turns
    assert writer.virtual is not None
    compression = writer.package.ManifestVirtualChunkLocationCompressionConfig(min_num_chunks=50)
    manifest = writer.package.ManifestConfig(virtual_chunk_location_compression=compression)
    writer.create(writer.config(manifest=manifest))
    file = writer.virtual / "data.bin"
    modified = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    later, before = modified + timedelta(hours=1), modified - timedelta(hours=1)
    session = writer.repo.writable_session("main")
    store = session.store
    for name, count in (("one", 6), ("grid", 400), ("specs", 3), ("names", 300)):
        zarr.create_array(store, name=name, shape=(count * 4,), chunks=(4,), dtype="u1", compressors=None)
    url = f"{writer.prefix}data.bin"
    store.set_virtual_ref("one/c/0", url, offset=3, length=4)
    store.set_virtual_ref("one/c/1", "vcc://files/data.bin", offset=7, length=4)
    store.set_virtual_ref("one/c/2", url, offset=0, length=4, checksum=later)
    store.set_virtual_ref("one/c/3", url, offset=0, length=4, checksum=before)
    store.set_virtual_ref("one/c/4", url, offset=0, length=4, checksum='"wrong"')
    store.set_virtual_ref("one/c/5", f"{writer.prefix}none.bin", offset=0, length=4)
    offsets, lengths = np.arange(400, dtype="u8") * 5, np.full(400, 4, "u8")
    assert store.set_virtual_refs_arr("grid", (400,), [url] * 400, offsets, lengths) is None
    names = [f"{writer.prefix}year={1990 + n // 12}/month-{n % 12}.nc" for n in range(300)]
    assert store.set_virtual_refs_arr("names", (300,), names, offsets[:300] + 2**40, lengths[:300]) is None
    spec = writer.package.VirtualChunkSpec
    specs = [
        spec([0], url, 10, 4),
        spec([1], "s3://nobody/x", 0, 4),
        spec([2], url, 14, 4, last_updated_at_checksum=later),
    ]
    assert store.set_virtual_refs("specs", specs) == [(1,)]
    snapshot = session.commit("virtual")
    seen = agree_without_values(writer, reader, snapshot)
    assert len(seen["/names"]) == 300
    assert sorted({where[0] for _, _, where, _ in seen["/names"]}) == sorted(names)
    data = file.read_bytes()
    for side in (writer, reader.open()):
        session = side.repo.readonly_session("main")
        one = array_at(session, "one")
        assert [bytes(one[n : n + 4].tolist()) for n in (0, 4, 8)] == [data[3:7], data[7:11], data[0:4]]
        for start, kind in ((12, "virtual-chunk-modified"), (16, "virtual-chunk-modified"), (20, None)):
            with pytest.raises(side.package.StorageError) as error:
                one[start : start + 4]
            assert kind is None or error.value.kind == kind
        wanted = b"".join(data[5 * n : 5 * n + 4] for n in range(400))
        assert bytes(array_at(session, "grid")[...].tolist()) == wanted
        assert bytes(array_at(session, "specs")[...].tolist()) == data[10:14] + bytes(4) + data[14:18]
        locations = session.all_virtual_chunk_locations()
        assert len(locations) == 6 + 400 + 300 + 2
        stranger = Side(side.name, side.package, side.path).open().repo.readonly_session("main")
        with pytest.raises(side.package.InvalidInputError) as refused:
            array_at(stranger, "grid")[0]
        assert refused.value.kind == "unauthorized-virtual-chunk-container"
    with reader.repo.transaction("main", message="goes on") as store:
        zarr.open_array(store, path="grid", mode="a")[8:12] = 1
        store.set_virtual_ref("grid/c/3", url, offset=9, length=4)
    seen = agree_without_values(writer, reader, reader.repo.lookup_branch("main"))
    assert [kind for _, kind, _, _ in seen["/grid"][:4]] == [2, 2, 3, 2]


def agree_without_values(one: Side, other: Side, snapshot: str) -> dict[str, Any]:
    """References of all arrays; some of them lead nowhere."""
    results = []
    for side in (one, other.open()):
        session = side.repo.readonly_session(snapshot_id=snapshot)
        results.append({path: references(session, path) for path in ("/one", "/grid", "/specs", "/names")})
    assert results[0] == results[1]
    return results[0]


def references(session: Any, path: str) -> list[Any]:
    async def collect() -> list[Any]:
        return [
            (tuple(at), int(kind), (where, int(offset)), int(length))
            async for index, kinds, places, offsets, lengths, _ in session.store.array_chunk_iterator(path)
            for at, kind, where, offset, length in zip(
                index.tolist(), kinds, places, offsets, lengths, strict=True
            )
        ]

    return sorted(zarr.core.sync.sync(collect()))


def test_forks_merged(both: tuple[Side, Side]) -> None:
    ours, theirs = both
    ours.create(ours.config())
    session = ours.repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(40, 100), chunks=(1, 100), dtype="f8")
    array[0] = -1
    forks = [pickle.loads(pickle.dumps(session.fork())) for _ in range(4)]
    for number, fork in enumerate(forks):
        part = zarr.open_array(fork.store, path="a", mode="a")
        part[number * 10 : number * 10 + 10] = np.arange(1000).reshape(10, 100) + number
        zarr.create_group(fork.store, path=f"made/by {number}")
    session.merge(*[pickle.loads(pickle.dumps(fork)) for fork in forks])
    session.commit("merged")
    stored_values = array_at(theirs.open().repo.readonly_session("main"), "a")[...]
    wanted = np.concatenate([np.arange(1000).reshape(10, 100) + n for n in range(4)])
    np.testing.assert_array_equal(stored_values, wanted)
    agree(ours, theirs)


def test_a_conflict_tells_both_parents(turns: tuple[Side, Side]) -> None:
    writer, reader = turns
    writer.create(writer.config())
    reader.open()
    first, second = writer.repo.writable_session("main"), reader.repo.writable_session("main")
    base = first.snapshot_id
    for session in (first, second):
        zarr.create_group(session.store)
    id_ = second.commit("second came first")
    with pytest.raises(writer.package.ConflictError) as error:
        first.commit("first came second")
    assert (error.value.expected_parent, error.value.actual_parent) == (base, id_)
    assert error.value.kind == "commit-conflict"
    assert first.has_uncommitted_changes
    agree(writer, reader)


@pytest.fixture
def with_packs(both: tuple[Side, Side]) -> tuple[Side, Side, Any]:
    """Three commits of ours: packs whose chunks are all, partly and not at all alive."""
    ours, theirs = both
    ours.create(ours.config(inline_chunk_threshold_bytes=0))
    model = np.arange(64 * 100, dtype="f8").reshape(64, 100)
    with ours.repo.transaction("main", message="packs") as store:
        zarr.create_array(store, name="a", shape=(64, 100), chunks=(1, 100), dtype="f8", compressors=None)[
            ...
        ] = model
        zarr.create_array(store, name="gone", shape=(50, 100), chunks=(1, 100), dtype="f8", compressors=None)[
            ...
        ] = 1
    for number in range(2):
        with ours.repo.transaction("main", message=f"half {number}") as store:
            model[number::2][:10] = number + 0.5
            array = zarr.open_array(store, path="a", mode="a")
            for row in range(number, number + 20, 2):
                array[row] = model[row]
            if number:
                del zarr.open_group(store, mode="a")["gone"]
    return ours, theirs.open(), model


@pytest.mark.deep
def test_the_reference_writes_where_chunks_share_files(with_packs: tuple[Side, Side, Any]) -> None:
    ours, theirs, model = with_packs
    with theirs.repo.transaction("main", message="theirs") as store:
        array = zarr.open_array(store, path="a", mode="a")
        array[5:9] = 100
        array.resize((70, 100))
        array[66] = 1
    grown = np.zeros((70, 100))
    grown[:64] = model
    grown[5:9], grown[66] = 100, 1
    for side in (ours, theirs):
        stored_values = array_at(side.repo.readonly_session("main"), "a")[...]
        np.testing.assert_array_equal(stored_values, grown)
    seen = agree(ours, theirs)
    content = seen["content"][ours.repo.lookup_branch("main")]
    files = [where[0] for _, _, where, _ in content["/a"]["chunks"]]
    assert len(set(files)) < len(files) / 4


@pytest.mark.deep
def test_garbage_collection_by_the_reference_keeps_live_packs(with_packs: tuple[Side, Side, Any]) -> None:
    """Expire all but the newest, collect all that it can, twice: the data are still there."""
    ours, theirs, model = with_packs
    later = datetime.now(UTC) + timedelta(seconds=5)
    before = {path.name for path in (ours.path / "chunks").iterdir()}
    expired = theirs.repo.expire_snapshots(later)
    assert len(expired) == 2
    summary = theirs.repo.garbage_collect(later)
    assert summary.snapshots_deleted == 2
    after = {path.name for path in (ours.path / "chunks").iterdir()}
    assert after < before or after == before
    for side in (ours, theirs, *(each.open() for each in sides(ours.path))):
        np.testing.assert_array_equal(array_at(side.repo.readonly_session("main"), "a")[...], model)
    seen = agree(ours, theirs)
    assert len(seen["history"]["branch:main"]) == 2
    root, tip = seen["history"]["branch:main"][-1]["id"], ours.repo.lookup_branch("main")
    assert diff_of(ours.repo, root, tip) == diff_of(theirs.repo, root, tip)
    with ours.repo.transaction("main", message="ours goes on") as store:
        zarr.open_array(store, path="a", mode="a")[3] = 3
    model[3] = 3
    theirs.repo.garbage_collect(datetime.now(UTC) + timedelta(seconds=5))
    for side in (ours, theirs):
        np.testing.assert_array_equal(array_at(side.repo.readonly_session("main"), "a")[...], model)
    agree(ours, theirs)


def test_the_reference_collects_our_garbage(both: tuple[Side, Side]) -> None:
    """Chunks that were made durable for forks and never committed: its collector deletes them."""
    ours, theirs = both
    ours.create(ours.config(inline_chunk_threshold_bytes=0))
    with ours.repo.transaction("main", message="live") as store:
        zarr.create_array(store, name="a", shape=(8, 100), chunks=(1, 100), dtype="f8")[...] = 5
    live = files_of(ours.path)
    session = ours.repo.writable_session("main")
    zarr.create_array(session.store, name="b", shape=(8, 100), chunks=(1, 100), dtype="f8")[...] = 6
    session.fork()
    with ours.repo.transaction("main", message="first") as store:
        zarr.create_group(store, path="g")
    live |= files_of(ours.path, "snapshots", "transactions", "manifests")
    with pytest.raises(frazil.ConflictError):
        session.commit("second")
    assert files_of(ours.path) > live
    theirs.open().repo.garbage_collect(datetime.now(UTC) + timedelta(seconds=5))
    assert files_of(ours.path) == live
    agree(ours, theirs)


def files_of(path: Path, *folders: str) -> set[str]:
    files = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    wanted = folders or ("snapshots", "transactions", "manifests", "chunks")
    return {str(file) for file in files if file.parts[0] in wanted}


@pytest.mark.deep
def test_amended_moved_flushed_and_rewritten_by_the_reference(both: tuple[Side, Side]) -> None:
    ours, theirs = both
    ours.create(ours.config())
    with ours.repo.transaction("main", message="ours") as store:
        group = zarr.create_group(store, path="g/sub")
        group.create_array("a", shape=(600,), chunks=(1,), dtype="i4", compressors=None)[...] = 7
    repo = theirs.open().repo
    session = repo.writable_session("main")
    zarr.open_group(session.store, mode="a")["g"].attrs["amended"] = True
    amended = session.amend("amended", metadata={"n": 1})
    agree(ours, theirs)
    session = repo.rearrange_session("main")
    session.move("/g/sub", "/moved")
    moved = session.commit("moved")
    assert diff_of(ours.repo, amended, moved) == diff_of(repo, amended, moved)
    assert array_at(ours.repo.readonly_session("main"), "moved/a")[3] == 7
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="detached")
    detached = session.flush("flushed")
    mine, yours = (side.repo.readonly_session(snapshot_id=detached) for side in (ours, theirs))
    assert content_of(mine) == content_of(yours)
    repo.rewrite_manifests("rewritten", branch="main")
    with ours.repo.transaction("main", message="ours again") as store:
        zarr.open_array(store, path="moved/a", mode="a")[:2] = 1
    seen = agree(ours, theirs)
    kinds = [op["kind"].partition("(")[0] for op in seen["ops"]]
    assert kinds[:4] == ["NewCommit", "NewCommit", "NewDetachedSnapshot", "NewCommit"]
    assert "CommitAmended" in kinds


def test_rectilinear_grids(turns: tuple[Side, Side]) -> None:
    writer, reader = turns
    writer.create(writer.config())
    with zarr.config.set({"array.rectilinear_chunks": True}):
        with writer.repo.transaction("main", message="uneven") as store:
            zarr.create_array(store, name="r", shape=(10, 6), chunks=[[2, 3, 5], [4, 2]], dtype="i4")[...] = 4
        with reader.open().repo.transaction("main", message="other") as store:
            zarr.open_array(store, path="r", mode="a")[4:7, 3:5] = 9
        stored_values = array_at(writer.repo.readonly_session("main"), "r")[...]
        agree(writer, reader)
    assert (stored_values[4:7, 3:5] == 9).all()
    assert stored_values.sum() == 4 * 54 + 9 * 6


def test_documents_are_stored_letter_by_letter(turns: tuple[Side, Side]) -> None:
    writer, reader = turns
    text = json.dumps(
        {"zarr_format": 3, "node_type": "group", "attributes": {"b": 1, "a": "é"}, "unknown": [1]}, indent=5
    )
    session = writer.create(writer.config()).repo.writable_session("main")
    prototype = zarr.core.buffer.default_buffer_prototype()
    zarr.core.sync.sync(session.store.set("zarr.json", prototype.buffer.from_bytes(text.encode())))
    session.commit("text")
    seen = agree(writer, reader)
    assert seen["content"][session.snapshot_id]["/"]["document"] == text.encode()


def test_the_same_document_again_is_no_change(both: tuple[Side, Side]) -> None:
    for side in both:
        if side.name == "frazil":
            side.create(side.config())
            with side.repo.transaction("main", message="a") as store:
                zarr.create_array(store, name="a", shape=(3,), chunks=(1,), dtype="i4", attributes={"k": 1})
        session = side.open().repo.writable_session("main")
        array = zarr.open_array(session.store, path="a", mode="a")
        array.attrs["k"] = 1
        array.resize((3,))
        assert not session.has_uncommitted_changes
        array.attrs["k"] = 2
        array.attrs["k"] = 1
        assert session.has_uncommitted_changes
        assert session.status().updated_arrays == {"/a"}


def test_history_is_longer_than_a_file_of_operations(turns: tuple[Side, Side]) -> None:
    """Both spill the ops log alternately, with room for three."""
    writer, reader = turns
    writer.create(writer.config(num_updates_per_repo_info_file=3))
    reader.open()
    for number, side in enumerate(alternating(writer, reader, 12)):
        side.repo.set_metadata({"n": number})
    seen = agree(writer, reader)
    assert len(seen["ops"]) == 13
    assert [op["kind"] for op in seen["ops"]] == ["MetadataChanged()"] * 12 + ["RepoInitialized()"]
    assert {kind_text(update.kind) for update in reader.repo.ops_log()} == {op["kind"] for op in seen["ops"]}
    assert state_of(writer.repo) == state_of(reader.repo)
    assert icechunk.__name__ == "icechunk"


def alternating(one: Side, other: Side, count: int) -> Iterator[Side]:
    return ((one, other)[n % 2] for n in range(count))
