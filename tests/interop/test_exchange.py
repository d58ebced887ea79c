"""What one implementation writes, the other one reads: data, history, settings; and goes on from there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.expected import array_at
from tests.interop.both import Side, check_same, references_of, sides
from zarr.core.sync import sync

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


@pytest.mark.deep
def test_data_of_all_kinds(turns: tuple[Side, Side]) -> None:
    """Chunks are bytes to both: what differs is their size, their number and the names of nodes."""
    writer, reader = turns
    writer.create(writer.config())
    arrays: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "scalar": (np.int32(7), (), {}),
        "empty": (np.zeros((3, 0, 2), "i4"), (1, 1, 1), {}),
        "text": (np.array(["a", "bé", "", "☃" * 200], dtype=np.dtypes.StringDType()), (2,), {}),
        "sharded": (np.arange(128, dtype="i4").reshape(8, 16), (2, 4), {"shards": (4, 8)}),
        "inline": (np.full(512, 3, "u1"), (512,), {"compressors": None}),
        "packed": (np.full(513 * 3, 3, "u1"), (513,), {"compressors": None}),
        "own": (np.random.default_rng(0).random(300_000), (150_000,), {"compressors": None}),
        "many": (np.random.default_rng(1).random((60, 400)), (1, 100), {"compressors": None}),
        "Ünï cödé/子 x/t": (np.arange(4, dtype="i2"), (3,), {"dimension_names": ["temps é"]}),
    }
    with writer.repo.transaction("main", message="all") as store:
        for path, (values, chunks, more) in arrays.items():
            array = zarr.create_array(
                store, name=path, shape=values.shape, chunks=chunks, dtype=values.dtype, **more
            )
            array[...] = values
        sparse = zarr.create_array(store, name="sparse", shape=(100, 100), chunks=(10, 10), dtype="f4")
        sparse[55:65, 5] = 1
        for name in (
            "a",
            "a-b",
            "a.b",
            "a0",
            "a b",
            "Z",
            "é",
            "a/b",
            "a/b-c",
            "a/b/c",
            "a-b/x",
            "ab",
            "\U0001f9ca",
        ):
            zarr.create_group(store, path=name)  # readers search them in the order of bytes
        zarr.create_group(store, path="Ünï cödé/empty", attributes={"å": [1, {"b": None}], "big": 2**60})
    seen = agree(writer, reader)
    session = reader.open().repo.readonly_session("main")
    for path, (values, _, _) in arrays.items():
        np.testing.assert_array_equal(np.asarray(array_at(session, path)[...]), values)
    content = seen["content"][session.snapshot_id]
    kinds = {kind for node in content.values() for _, kind, _, _ in node.get("chunks", [])}
    assert kinds == {1, 3}
    assert [at for at, *_ in content["/sparse"]["chunks"]] == [(5, 0), (6, 0)]
    files = [where[0] for _, _, where, _ in content["/many"]["chunks"]]
    assert len(files) == 240
    assert len(set(files)) == (1 if writer.name == "frazil" else 240)


def test_flags_status_and_deleted_tags(turns: tuple[Side, Side]) -> None:
    """What ``turns`` does not change."""
    writer, reader = turns
    repo = writer.create(writer.config(num_updates_per_repo_info_file=3)).repo
    tip = repo.lookup_branch("main")
    repo.create_tag("tag é", tip)
    repo.delete_tag("tag é")
    repo.set_feature_flag("create_tag", False)
    repo.set_feature_flag("delete_tag", True)
    repo.set_feature_flag("delete_tag", None)
    status, available = writer.package.RepoStatus, writer.package.RepoAvailability
    for each in (available.read_only, available.online, available.read_only):
        repo.set_status(status(each, None, "again é"))
    seen = agree(writer, reader)
    kinds = [op["kind"].partition("(")[0] for op in seen["ops"]]
    changes = [*["RepoStatusChanged"] * 3, *["FeatureFlagChanged"] * 3, "TagDeleted", "TagCreated"]
    assert kinds == [*changes, "RepoInitialized"]
    assert all(op["backup_path"] for op in seen["ops"][1:])
    assert "again é" in seen["status"]
    other = reader.open().repo
    with pytest.raises(reader.package.ReadOnlyError):
        other.writable_session("main")
    other.set_status(reader.package.RepoStatus(reader.package.RepoAvailability.online))
    with pytest.raises(reader.package.SessionStateError) as disabled:
        other.create_tag("new", tip)
    assert disabled.value.kind == "feature-flag-disabled"
    other.set_feature_flag("create_tag", None)
    with pytest.raises(reader.package.AlreadyExistsError) as deleted:
        other.create_tag("tag é", tip)
    assert deleted.value.kind == "tag-previously-deleted"
    info = decode_repo_info((writer.path / "repo").read_bytes(), "repo")
    assert len(info.ops) == 3
    agree(writer, reader)


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
        results.append(
            {path: sync(references_of(session, path)) for path in ("/one", "/grid", "/specs", "/names")}
        )
    assert results[0] == results[1]
    return results[0]


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
