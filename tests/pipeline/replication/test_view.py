"""Views: the values of the selection by both libraries, what is copied, refreshes, and protection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.loopback_http import serve_folder
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket
from tests.support.virtual_chunks import allow_folder

import frazil
from frazil.errors import ErrorKind, IcechunkError
from frazil.format.manifest import ChunkKind
from frazil.pipeline import Version, ViewSummary, lineage, view_repository
from frazil.storage.foreign_objects import access_of, address_of
from frazil.storage.object_store import ObjectStorage

FAR = datetime(2100, 1, 1, tzinfo=UTC)
INLINE: Any = {"engine": "inline"}


@pytest.fixture(autouse=True)
def unequal_chunks() -> Any:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield


def archive(folder: Path, *, inline: int = 0, **settings: Any) -> frazil.Repository:
    config = settings.pop("config", None) or frazil.RepositoryConfig()
    config.inline_chunk_threshold_bytes = inline
    return frazil.Repository.create(folder, config, **settings)


def write(
    repo: frazil.Repository,
    shape: tuple[int, int] = (20, 12),
    chunks: tuple[int, int] = (4, 3),
    **settings: Any,
) -> None:
    """Write ``/g/t`` with coordinates. The first chunks along ``time`` are missing."""
    with repo.transaction("main", message="an archive") as store:
        array = zarr.create_array(
            store,
            name="g/t",
            shape=shape,
            chunks=chunks,
            dtype="f4",
            fill_value=-1,
            dimension_names=["time", "x"],
            attributes={"units": "K"},
            **settings,
        )
        values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
        values[: shape[0] // 4] = -1
        array[:] = values
        for name, length in zip(("time", "x"), shape, strict=True):
            zarr.create_array(store, name=f"g/{name}", data=np.arange(length) * 2.0, dimension_names=[name])


def change(repo: frazil.Repository, edit: Callable[[Any], object]) -> None:
    with repo.transaction("main", message="a change") as store:
        edit(zarr.open_group(store, path="g", mode="r+"))


def put(repo: frazil.Repository, index: Any, value: float) -> None:
    change(repo, lambda group: group["t"].__setitem__(index, value))


def dataset(store: Any, group: str = "g") -> xr.Dataset:
    stored: xr.Dataset = xr.open_zarr(store, group=group, consolidated=False, chunks=None)
    return stored.load()


def by_reference(folder: Path, view: ViewSummary) -> xr.Dataset:
    import icechunk

    access: Any = dict.fromkeys(view.containers, icechunk.credentials.LocalFileSystemAccess)
    storage = icechunk.local_filesystem_storage(str(folder))
    repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    return dataset(repo.readonly_session("main").store)


def check(
    repo: frazil.Repository, folder: Path, isel: Mapping[str, slice] | None = None, **settings: Any
) -> ViewSummary:
    """Make or refresh a view. Compare its values with the selection of the source, by both libraries."""
    storage = frazil.local_filesystem_storage(folder)
    view = view_repository(repo, storage, isel=isel, **INLINE, **settings)
    wanted = dataset(repo.readonly_session("main").store).isel(isel or {})
    assert view.version is not None
    xr.testing.assert_identical(dataset(view.version.session().store), wanted)
    if find_spec("icechunk") is not None:
        xr.testing.assert_identical(by_reference(folder, view), wanted)
    return view


def kinds(view: ViewSummary, path: str = "/g/t") -> list[ChunkKind]:
    assert view.version is not None
    return [ChunkKind(kind) for kind in view.version.session().chunk_table(path).kind.tolist()]


def commits(folder: Path) -> int:
    return len(list(frazil.Repository.open(folder).ancestry(branch="main")))


def test_copied_chunks_have_no_elements_behind_the_end(tmp_path: Path) -> None:
    repo = archive(tmp_path / "source", inline=100)
    with repo.transaction("main", message="longer") as store:
        values = np.arange(1000, 1010)
        zarr.create_array(
            store, name="g/t", data=values, chunks=(5,), dimension_names=["x"], compressors=None
        )
    with repo.transaction("main", message="shorter") as store:
        zarr.open_array(store, path="g/t").resize((7,))
    view = check(repo, tmp_path / "view", {"x": slice(5, 9)})
    assert kinds(view) == [ChunkKind.INLINE]
    assert view.version is not None
    chunk = view.version.session().chunk_table("/g/t").inline.bytes(0)
    assert np.frombuffer(chunk, "i8").tolist() == [1005, 1006, 0, 0, 0]


def test_whole_chunks_are_references(tmp_path: Path) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)
    view = check(repo, tmp_path / "view", {"time": slice(8, 20), "x": slice(3, 9)})
    assert set(kinds(view)) == {ChunkKind.VIRTUAL}
    assert len(kinds(view)) == 6
    assert view.containers == ((tmp_path / "ice" / "chunks").as_uri() + "/",)
    files = list((tmp_path / "view" / "chunks").glob("*"))
    assert sum(each.stat().st_size for each in files) < 1000  # only coordinates


def test_chunks_that_the_box_cuts_are_copied_without_what_is_outside(tmp_path: Path) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)
    view = check(repo, tmp_path / "view", {"time": slice(8, 18), "x": slice(0, 12)})
    assert kinds(view).count(ChunkKind.VIRTUAL) == 2 * 4
    assert kinds(view).count(ChunkKind.INLINE) == 4  # of the rows 16 and 17
    assert view.version is not None
    session = view.version.repo.writable_session("main")
    zarr.open_array(session.store, path="g/t").resize((12, 12))
    assert (frazil.read(session, "g/t")[10:] == -1).all()  # the fill value, not the rows 18 and 19


@pytest.mark.deep
def test_a_box_that_begins_inside_of_a_chunk(tmp_path: Path) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)
    box = {"time": slice(6, 20)}
    copied = check(repo, tmp_path / "copied", box)
    assert ChunkKind.VIRTUAL not in kinds(copied)
    unequal = check(repo, tmp_path / "unequal", box, rectilinear=True)
    assert kinds(unequal).count(ChunkKind.VIRTUAL) == 3 * 4
    assert kinds(unequal).count(ChunkKind.INLINE) == 4
    grow = check(repo, tmp_path / "unequal", {"time": slice(6, 18)}, rectilinear=True)
    assert kinds(grow).count(ChunkKind.VIRTUAL) == 2 * 4


BOX = st.tuples(st.integers(0, 11), st.integers(1, 12), st.sampled_from((1, 1, 2, 3)))


@pytest.mark.deep
@settings(max_examples=examples(15))
@given(
    st.tuples(BOX, BOX),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.booleans(),
    st.sampled_from((None, 2)),
    st.sampled_from((0, 60)),
    st.sampled_from((1, 2)),
)
def test_random_boxes(
    tmp_path_factory: pytest.TempPathFactory,
    boxes: Any,
    chunks: tuple[int, int],
    rectilinear: bool,
    shard: int | None,
    inline: int,
    spec_version: int,
) -> None:
    folder = tmp_path_factory.mktemp("random")
    repo = archive(folder / "ice", inline=inline, spec_version=spec_version)
    shards = {} if shard is None else {"shards": (chunks[0] * shard, chunks[1] * shard)}
    write(repo, (13, 12), chunks, **shards)
    isel = {
        name: slice(start, start + count, step)
        for name, (start, count, step) in zip(("time", "x"), boxes, strict=True)
    }
    check(repo, folder / "view", isel, rectilinear=rectilinear)

    def grow(group: Any) -> None:
        group["t"].resize((16, 12))
        group["t"][12:] = 7
        group["time"].resize((16,))
        group["time"][13:] = [5, 6, 7]

    change(repo, grow)
    check(repo, folder / "view", isel, rectilinear=rectilinear)
    shape = {name: slice(None) for name in isel}
    check(repo, folder / "view", shape, rectilinear=rectilinear)


@pytest.mark.deep
def test_a_refresh_writes_what_has_changed(tmp_path: Path) -> None:
    repo, folder = archive(tmp_path / "ice"), tmp_path / "view"
    write(repo)
    box = {"time": slice(8, None), "x": slice(3, 11)}
    first = check(repo, folder, box)
    assert first.copied >= 3
    again = check(repo, folder, box)
    assert again.done_before
    assert again.version is not None
    assert again.tag == first.tag

    def append(group: Any) -> None:
        group["t"].resize((22, 12))
        group["t"][20:] = 3
        group["time"].resize((22,))
        group["time"][20:] = [40, 42]

    before = commits(folder)
    change(repo, append)
    appended = check(repo, folder, box)
    assert appended.copied == 2  # one cell of `t`, and the coordinate `time`
    put(repo, (9, 3), 99)
    assert check(repo, folder, box).copied == 0  # a whole chunk
    put(repo, (9, 10), 98)
    assert check(repo, folder, box).copied == 1  # a chunk at the edge
    put(repo, (0, 0), 97)
    check(repo, folder, box)  # outside of the box
    change(repo, lambda group: group["t"].resize((18, 12)) or group["time"].resize((18,)))
    check(repo, folder, box)
    assert commits(folder) == before + 5
    change(repo, lambda group: group["t"].attrs.update(units="C"))
    check(repo, folder, box)
    session = repo.rearrange_session("main")
    session.move("/g/t", "/g/temperature")
    session.commit("a rename")
    check(repo, folder, box)


@pytest.mark.deep
def test_a_view_of_a_tag_stays(tmp_path: Path) -> None:
    repo, storage = archive(tmp_path / "ice"), frazil.local_filesystem_storage(tmp_path / "view")
    write(repo)
    repo.create_tag("v1", repo.lookup_branch("main"))
    first = view_repository(Version.of(repo, tag="v1"), storage, **INLINE)
    put(repo, ..., 5)
    assert view_repository(Version.of(repo, tag="v1"), storage, **INLINE).done_before
    moved = view_repository(repo, storage, **INLINE)
    assert moved.version is not None
    assert first.version is not None
    assert (frazil.read(moved.version.session(), "g/t") == 5).all()
    back = view_repository(Version.of(repo, tag="v1"), storage, **INLINE)
    assert back.version is not None
    assert frazil.read(back.version.session(), "g/t")[5, 0] == 60


@pytest.mark.deep
def test_collections_of_the_source_spare_the_view(tmp_path: Path) -> None:
    repo, folder = archive(tmp_path / "ice"), tmp_path / "view"
    write(repo)
    view = check(repo, folder)
    [tag] = repo.list_tags()
    assert tag == view.tag
    assert repo.lookup_tag(tag) == repo.lookup_branch("main")
    assert "view" not in [each.check for each in repo.upkeep.doctor().findings]
    put(repo, ..., 5)
    assert view.version is not None
    before = dataset(view.version.session().store)
    [finding] = repo.upkeep.doctor().findings
    assert (finding.check, finding.subject) == ("view", f"tag `{tag}`")
    assert finding.command == f"repo.delete_tag(tag='{tag}')"
    repo.expire_snapshots(FAR)
    repo.garbage_collect(FAR)
    xr.testing.assert_identical(dataset(view.version.session().store), before)
    refreshed = check(repo, folder)
    assert repo.list_tags() == {refreshed.tag} != {tag}
    repo.delete_tag(str(refreshed.tag))
    put(repo, ..., 6)
    repo.expire_snapshots(FAR)
    repo.garbage_collect(FAR)
    assert refreshed.version is not None
    with pytest.raises(IcechunkError) as error:
        frazil.read(refreshed.version.session(), "g/t")
    assert error.value.kind == ErrorKind.VIRTUAL_CHUNK_FETCH
    check(repo, folder)  # the next refresh protects the new version again
    assert len(repo.list_tags()) == 1


def test_a_withdrawal_names_the_views_of_its_data(tmp_path: Path) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)
    view = check(repo, tmp_path / "view", {"time": slice(8, 20), "x": slice(3, 9)})
    plan = repo.upkeep.forget({"g/t": (slice(9, 10), slice(0, 6))})
    (sentence,) = plan.report.unresolved
    assert str(view.tag) in sentence
    assert plan.apply().ok
    assert check(repo, tmp_path / "view", {"time": slice(8, 20), "x": slice(3, 9)}).tag in repo.list_tags()


def test_views_of_one_source_have_their_own_tags(tmp_path: Path) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)
    targets = [frazil.in_memory_storage(), frazil.in_memory_storage()]
    views = [view_repository(repo, target, **INLINE) for target in targets]
    assert repo.list_tags() == {view.tag for view in views}
    put(repo, (8, 0), 1)
    again = view_repository(repo, targets[0], **INLINE)
    assert repo.list_tags() == {again.tag, views[1].tag}


def test_a_failure_leaves_no_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)

    def fail(*_args: Any, **_settings: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr("frazil.pipeline.replication.view.run_job", fail)
    with pytest.raises(OSError, match="no space"):
        view_repository(repo, frazil.local_filesystem_storage(tmp_path / "view"), **INLINE)
    assert repo.list_tags() == set()


@pytest.mark.deep
def test_virtual_and_inline_chunks_and_packs_and_a_view_of_a_view(tmp_path: Path) -> None:
    source = archive(tmp_path / "ice", **allow_folder(tmp_path / "files"))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "data").write_bytes(np.arange(8, dtype="<f4").tobytes())
    write(source)  # one pack has many chunks
    with source.transaction("main", message="virtual") as store:
        array = zarr.create_array(
            store, name="g/v", shape=(8,), chunks=(2,), dtype="f4", compressors=None, dimension_names=["n"]
        )
        url = (tmp_path / "files" / "data").as_uri()
        for number in range(4):
            store.set_virtual_ref(f"g/v/c/{number}", url, offset=8 * number, length=8)
        assert array.shape == (8,)
    view = check(source, tmp_path / "view", {"n": slice(2, 8), "x": slice(3, 12)})
    assert set(view.containers) == {
        (tmp_path / "ice" / "chunks").as_uri() + "/",
        (tmp_path / "files").as_uri() + "/",
    }
    assert view.version is not None
    table = view.version.session().chunk_table("/g/t").prune()
    assert len(table.foreign) < len(table)  # ranges of a pack
    second = check(view.version.repo, tmp_path / "second", {"n": slice(2, 6), "x": slice(0, 6)})
    assert set(kinds(second)) == set(kinds(second, "/g/v")) == {ChunkKind.VIRTUAL}
    assert set(view.containers) < set(second.containers)


def test_paths_labels_and_lineage(tmp_path: Path) -> None:
    repo, storage = archive(tmp_path / "ice"), frazil.local_filesystem_storage(tmp_path / "view")
    write(repo)
    view = view_repository(repo, storage, paths=["g/t"], sel={"time": slice(16, 30)}, **INLINE)
    assert view.version is not None
    got = dataset(view.version.session().store)
    wanted = dataset(repo.readonly_session("main").store).sel(time=slice(16, 30))
    xr.testing.assert_identical(got, wanted)
    step = lineage(view.version.repo)
    assert step.job == "view"
    assert step.inputs[0]["snapshot"] == repo.lookup_branch("main")
    assert set(step.inputs[0]["paths"]) == {"/g/t", "/g/time", "/g/x"}
    record = zarr.open_group(view.version.session().store, mode="r").attrs["frazil_view"]
    assert isinstance(record, dict)
    assert record["boxes"]["/g/t"] == [[8, 16, 1], [0, 12, 1]]
    assert str(tmp_path) not in str({name: each for name, each in record.items() if name != "name"})


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)
    storage = frazil.local_filesystem_storage(tmp_path / "view")
    plan = view_repository(repo, storage, isel={"time": slice(8, 18)}, dry_run=True)
    assert (plan.version, plan.tag, plan.copied) == (None, None, 4 + 1)
    assert not frazil.Repository.exists(storage)
    assert not repo.list_tags()


@pytest.mark.parametrize(
    ("isel", "message"),
    [
        ({"time": slice(5, 5)}, "which selects none"),
        ({"time": slice(30, 40)}, "which selects none"),
        ({"time": slice(9, 2)}, "which selects none"),
        ({"time": slice(9, 2, -1)}, "which selects others"),
        ({"time": 3}, "must be a slice along 'time'"),
        ({"time": [1, 2]}, "must be a slice along 'time'"),
        ({"y": slice(1, 2)}, "A dimension must be one of the arrays'"),
    ],
)
def test_boxes_that_are_refused(tmp_path: Path, isel: Any, message: str) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)
    with pytest.raises(IcechunkError, match=message) as error:
        view_repository(repo, frazil.in_memory_storage(), isel=isel, **INLINE)
    assert error.value.kind == ErrorKind.INVALID_ARRAY_METADATA
    assert not repo.list_tags()


def test_a_copy_of_too_much_is_refused(tmp_path: Path) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)
    with pytest.raises(IcechunkError, match=r"at most 100 B of values, got .* `/g/t`.*rectilinear=True"):
        view_repository(repo, frazil.in_memory_storage(), isel={"x": slice(1, 9)}, max_copy=100, **INLINE)


@pytest.mark.deep
def test_sources_without_urls_and_other_targets(tmp_path: Path) -> None:
    memory = frazil.Repository.create(
        frazil.in_memory_storage(), frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    )
    write(memory)
    with pytest.raises(IcechunkError, match=r"must have URLs.*Copy the repository") as error:
        view_repository(memory, frazil.in_memory_storage(), **INLINE)
    assert error.value.kind == ErrorKind.UNSUPPORTED_ARRAY
    repo = archive(tmp_path / "ice")
    write(repo)
    with pytest.raises(IcechunkError, match="a repository that is no view") as error:
        view_repository(repo, memory.storage, **INLINE)
    assert error.value.kind == ErrorKind.REPO_INFO_UPDATED
    folder = tmp_path / "view"
    view = check(repo, folder)
    assert view.version is not None
    with view.version.repo.transaction("main", message="own data") as store:
        zarr.create_array(store, name="own", shape=(2,), dtype="i4")
    put(repo, (8, 0), 1)
    view = check(repo, folder)  # other arrays stay
    assert view.version is not None
    assert view.version.session().workspace.is_array("/own")
    with view.version.repo.transaction("main", message="an edit") as store:
        zarr.open_array(store, path="g/t", mode="r+")[8, 0] = 2
    put(repo, (8, 0), 3)
    with pytest.raises(IcechunkError, match="arrays were changed"):
        check(repo, folder)


def test_a_read_only_source_needs_a_consent(tmp_path: Path) -> None:
    repo = archive(tmp_path / "ice")
    write(repo)
    with serve_folder(tmp_path / "ice") as server:
        source = frazil.Repository.open(frazil.http_storage(server.url))
        with pytest.raises(IcechunkError, match=r"read-only.*unprotected=True") as error:
            view_repository(source, frazil.in_memory_storage(), **INLINE)
        assert error.value.kind == ErrorKind.READ_ONLY_STORAGE
        view = view_repository(source, frazil.in_memory_storage(), unprotected=True, **INLINE)
    assert view.tag is None
    assert view.containers == (f"{server.url}/chunks/",)
    assert set(kinds(view)) == {ChunkKind.VIRTUAL}
    assert not repo.list_tags()


@pytest.mark.deep
def test_a_source_and_a_view_in_buckets() -> None:
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        server.make_bucket("bucket")
        storages = [ObjectStorage(s3_bucket("bucket", server.port), prefix=name) for name in ("ice", "share")]
        repo = frazil.Repository.create(storages[0], frazil.RepositoryConfig(inline_chunk_threshold_bytes=0))
        write(repo)
        view = view_repository(repo, storages[1], isel={"time": slice(8, 20)}, **INLINE)
        assert view.containers == ("s3://bucket/ice/chunks/",)
        config = frazil.RepositoryConfig()  # a repository may not choose an endpoint for its readers
        address = address_of(repo.storage, "chunks")
        assert address is not None
        config.set_virtual_chunk_container(frazil.VirtualChunkContainer(*address))
        access: Any = {address[0]: access_of(repo.storage)}
        reader = frazil.Repository.open(storages[1], config, access)
        got = dataset(reader.readonly_session("main").store)
        xr.testing.assert_identical(got, dataset(repo.readonly_session("main").store).isel(time=slice(8, 20)))
