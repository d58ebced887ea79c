"""A small repository of each older format, imported: history, refs, arrays, logs, interruptions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zarr
from importer.tests.writer import CHUNK, LOCATION, NAMES, T_META, Maker, packed, repository, time_of
from tests.maintenance.schedules import Seen
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.object_server import Conditions, ObjectServer

import frazil
from frazil.cli import main
from frazil.errors import FormatError
from frazil.format import msgpack
from frazil.format.envelope import FileType
from frazil.format.ids import id_to_text
from frazil.format.manifest import VirtualRef
from frazil.repository.settings.config_document import to_document
from frazil.storage.base import Storage
from frazil.storage.memory import MemoryStorage
from frazil.threads import SIZES, Purpose
from frazil_import import upgrade
from frazil_import.generations import GENERATIONS, payload

MODES = ("copy", "reference", "in place")
generations = pytest.mark.parametrize("name", NAMES)


def stored(files: dict[str, bytes], storage: Storage | None = None) -> Storage:
    storage = MemoryStorage() if storage is None else storage
    for key, data in files.items():
        storage.put(key, data)
    return storage


def everything(storage: Storage) -> dict[str, bytes]:
    return {info.key: bytes(storage.get(info.key)) for info in storage.list("")}


def check(storage: Storage, name: str, **access: Any) -> frazil.Repository:
    """The repository holds what the writer put into it."""
    repo = frazil.Repository.open(storage, **access)
    assert repo.list_branches() == {"main", "dev"}
    assert repo.list_tags() == {"v 1!"}
    assert sorted(repo._info().deleted_tags) == (["gone"] if name == "M8" else [])
    histories = {branch: list(repo.ancestry(branch=branch)) for branch in ("main", "dev")}
    assert [entry.message for entry in histories["main"]] == ["second", "first", "Repository initialized"]
    assert [entry.message for entry in histories["dev"]] == ["side", "first", "Repository initialized"]
    assert repo.lookup_tag("v 1!") == histories["main"][1].id == histories["dev"][1].id
    assert histories["main"][1].metadata == {"author": "me"}
    times = [entry.written_at.isoformat() for entry in (histories["main"][1], histories["dev"][0])]
    # Times rise: the files of both say the same time.
    assert times == ["2024-10-02T12:00:00.000001+00:00", "2024-10-02T12:00:00.000002+00:00"]
    first: Any = zarr.open_group(repo.readonly_session(tag="v 1!").store, mode="r")
    assert first.attrs.asdict() == {"title": "é", "n": [1, 2.5, None, True]}
    t = first["t"]
    assert t.metadata.dimension_names == ("y", None)
    assert t[0].tolist() == CHUNK.tolist()
    assert t[1, 3:].tolist() == (CHUNK[3:] * 10).tolist()
    assert first["s"][()] == 2.5
    assert repo.readonly_session(tag="v 1!").workspace.ref("/t", (1, 0)) == VirtualRef(
        LOCATION, 1 << 33, 12, "e" if name >= "M3" else None
    )
    second: Any = zarr.open_group(repo.readonly_session("main").store, mode="r")
    assert second["t"][0].tolist() == [0, 1, 2, 300, 400, 500]
    assert second["t"][1].tolist() == [-1, -1, -1, 30, 40, 50]
    assert second["t"].attrs.asdict() == {"new": 1}
    assert second["g/new"][:].tolist() == [1.5 - 2j] * 2
    array = repo.readonly_session("main").workspace.require_array("/g/new").array
    assert array is not None
    assert array.manifests == ()
    assert set(zarr.open_group(repo.readonly_session("dev").store, mode="r").members()) == set()
    check_logs(repo)
    kinds = [type(op.kind).__name__ for op in repo.ops_log()]
    assert (kinds[0], kinds[-1]) == ("RepoMigrated", "RepoInitialized")
    assert sorted(kinds[1:-1]) == ["BranchCreated", "NewCommit", "NewCommit", "NewCommit", "TagCreated"]
    return repo


def check_logs(repo: frazil.Repository) -> None:
    main, dev = ([entry.id for entry in repo.ancestry(branch=branch)] for branch in ("main", "dev"))
    diff = repo.diff(from_snapshot_id=main[1], to_snapshot_id=main[0])
    assert (diff.new_arrays, diff.updated_arrays, diff.new_groups) == ({"/g/new"}, {"/t"}, set())
    assert diff.updated_groups == {"/g"}
    assert {path: sorted(at) for path, at in diff.updated_chunks.items()} == {"/t": [[0, 1], [1, 0]]}
    diff = repo.diff(from_snapshot_id=main[2], to_snapshot_id=main[1])
    assert (diff.new_arrays, diff.new_groups, diff.updated_arrays) == ({"/t", "/s"}, {"/", "/g"}, set())
    assert {path: len(at) for path, at in diff.updated_chunks.items()} == {"/t": 4, "/s": 1}
    diff = repo.diff(from_snapshot_id=dev[1], to_snapshot_id=dev[0])
    assert (diff.deleted_arrays, diff.deleted_groups) == ({"/t", "/s"}, {"/g"})


@pytest.mark.sample(8)
@generations
def test_copied(name: str) -> None:
    files = repository(name)
    source, target = stored(files), MemoryStorage()
    report = frazil.upgrade(source, target)
    assert everything(source) == files
    assert report.generation.startswith(f"{name}, ")
    assert (report.snapshots, report.arrays, report.groups) == (4, 3, 2)
    assert (report.manifests, report.chunk_references, report.chunk_files) == (2, 9, 3)
    assert (report.chunks_copied, report.bytes_copied) == (3, 40)
    assert (report.left_out, report.was_there) == ((), False)
    assert report.virtual_prefixes == ("s3://bucket/",)
    repo = check(target, name)
    assert repo.config.inline_chunk_threshold_bytes == (99 if name >= "M3" else None)
    again = frazil.upgrade(source, target)
    assert again.was_there
    assert again.snapshot_ids == report.snapshot_ids
    assert all(old == new for old, new in report.snapshot_ids.items()) == (name != "D")


@pytest.mark.sample(7)
@generations
def test_in_place(name: str) -> None:
    files = repository(name)
    storage = stored(files)
    report = frazil.upgrade(storage)
    assert report.chunks_copied == (3 if name == "D" else 0)
    after = everything(storage)
    assert after.items() >= files.items()
    repo = check(storage, name)
    again = frazil.upgrade(storage)
    assert (report.left_out, again.left_out, again.was_there) == ((), (), True)
    assert "references" not in str(again)
    with repo.transaction("main", message="third") as store:
        zarr.create_group(store, path="third")
    assert frazil.upgrade(storage).was_there
    assert repo.lookup_branch("main") == next(iter(repo.ancestry(branch="main"))).id
    assert everything(storage).items() >= files.items()


@pytest.mark.sample(3)
@generations
def test_referenced(name: str, tmp_path: Path) -> None:
    source = stored(repository(name), frazil.local_filesystem_storage(str(tmp_path / "old")))
    target = MemoryStorage()
    report = frazil.upgrade(source, target, chunks="reference")
    assert report.chunks_copied == 0
    assert not list(target.list("chunks"))
    folder = f"file://{tmp_path}/old/{'c' if name == 'D' else 'chunks'}/"
    assert sorted(report.virtual_prefixes) == sorted([folder, "s3://bucket/"])
    access = {folder: frazil.credentials.LocalFileSystemAccess}
    check(target, name, authorize_virtual_chunk_access=access)


class Interrupted(Exception):
    pass


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize(("name", "in_place"), [("M1", True), ("D", False), ("M8", False)])
def test_interrupted_at_every_call(name: str, in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was done: the old files are there, no half repository is, and the next try ends it."""
    # One thread: the calls have an order.
    for purpose in (Purpose.FILE_COPIES, Purpose.COMMIT_UPLOADS):
        monkeypatch.setitem(SIZES, purpose, 1)
    files = repository(name)
    at, finished = 0, 0
    wanted: dict[str, bytes] = {}
    while finished < 2:
        for after in (False, True):
            source = stored(files)
            target = source if in_place else MemoryStorage()
            requests = 0

            @contextmanager
            def meet(what: str, at: int = at, after: bool = after) -> Iterator[None]:
                """Stop at the request number ``at``, before or after it took effect."""
                nonlocal requests
                requests += 1
                is_last_write = after and requests == at + 1 and what.startswith("put")
                if requests > at and not is_last_write:
                    raise Interrupted
                yield
                if is_last_write:
                    raise Interrupted

            broken = Seen(target, meet)
            try:
                frazil.upgrade(broken if in_place else source, None if in_place else broken)
                finished += 1
            except Interrupted:
                assert target.head("repo") is None or after
            assert everything(source).items() >= files.items()
            frazil.upgrade(source, None if in_place else target)
            whole = everything(target)
            del whole["repo"]
            assert whole == (wanted := wanted or whole)
        at += 1
    check(target, name)
    assert at > 15


@pytest.mark.parametrize("fault", Fault)
def test_lost_answers(fault: Fault) -> None:
    source, target = stored(repository("M8")), MemoryStorage()
    lost = iter([fault])
    faulty = FaultyStorage(target, lambda key, condition: next(lost, None) if key == "repo" else None)
    report = frazil.upgrade(source, faulty)
    assert (report.snapshots, report.was_there) == (4, False)
    assert frazil.upgrade(source, faulty).was_there
    check(target, "M8")


@pytest.mark.parametrize(
    "key", ["readme.txt", "snapshots/00000000000000000000", "chunks/00000000000000000000"]
)
def test_a_place_with_something_else_is_refused(key: str) -> None:
    target = stored({key: b"x"})
    with pytest.raises(frazil.InvalidInputError, match=f"got `{key}`") as error:
        frazil.upgrade(stored(repository("M3")), target)
    assert error.value.kind == frazil.ErrorKind.PARENT_DIRECTORY_NOT_CLEAN
    assert target.head("repo") is None


def test_nothing_to_import() -> None:
    with pytest.raises(frazil.RepositoryNotFoundError):
        frazil.upgrade(MemoryStorage())
    newer = MemoryStorage()
    frazil.Repository.create(newer)
    with pytest.raises(frazil.FormatError, match="got version 2"):
        frazil.upgrade(newer)
    with pytest.raises(frazil.FormatError, match="got version 1"):
        frazil.upgrade(stored({"refs/branch.main/ref.json": b"{}"}))
    with pytest.raises(frazil.InvalidInputError, match="Copy the chunks instead") as error:  # no address
        frazil.upgrade(stored(repository("M8")), MemoryStorage(), chunks="reference")
    assert error.value.kind == frazil.ErrorKind.STORAGE_CONFIG
    bucket = frazil.s3_storage(bucket="b", prefix=None, region="eu-west-1", anonymous=True)
    with pytest.raises(frazil.InvalidInputError, match="must have a prefix in the bucket") as error:
        frazil.upgrade(stored(repository("M8")), bucket)
    assert error.value.kind == frazil.ErrorKind.EMPTY_PREFIX_CREATION
    with pytest.raises(ValueError, match="must be auto, copy or reference"):
        frazil.upgrade(stored(repository("M3")), chunks="move")  # type: ignore[arg-type]


@generations
def test_missing_files_are_reported(name: str) -> None:
    """Chunk files, manifests and snapshots that somebody deleted; a snapshot that no ref reaches."""
    files = repository(name)
    chunk = next(key for key in files if key.startswith(("chunks/", "c/")))
    del files[chunk]
    snapshot = next(key for key in files if key.startswith(("snapshots/", "s/")))
    lonely = snapshot.rpartition("/")[0] + "/" + id_to_text(b"lonely".ljust(16 if name == "D" else 12, b"."))
    files[lonely + (".json" if name == "D" else "")] = files[snapshot]
    report = frazil.upgrade(stored(files), target := MemoryStorage())
    texts = sorted(report.left_out)
    assert texts[0].startswith("chunk files ")
    assert texts[1].endswith("no branch or tag ever reached it")
    assert len(texts) == 2
    assert frazil.Repository.open(target).list_branches() == {"main", "dev"}


def _dated(files: dict[str, bytes], key: str, at: str, **properties: Any) -> None:
    files[key] = json.dumps(json.loads(files[key]) | {"timestamp": at, "properties": properties}).encode()


@pytest.mark.parametrize("name", ["D", "M1"])
def test_refs_have_their_times_in_the_operations_log(name: str) -> None:
    """Times that rise, are later than the snapshots, and are not in the future; else the next microsecond.

    The creation of the repository is first, also if a tag says an earlier time.
    """
    files = repository(name)
    make = Maker(next(each for each in GENERATIONS if each.name == name))
    _dated(files, make.sequence("main", 0), "2024-10-01T13:00:00Z")
    _dated(files, make.sequence("main", 1), "2024-10-05T00:00:00Z", author="ada")
    _dated(files, make.sequence("main", 2), "2024-10-04T00:00:00Z")  # a clock was wrong
    _dated(files, make.sequence("dev", 0), "2024-10-06T00:00:00Z")
    _dated(files, make.sequence("dev", 1), "9999-01-01T00:00:00Z")
    _dated(files, make.tag("v 1!"), "2025-01-01T00:00:00Z", who="ada", n=[1, None])
    files[make.tag("first")] = make.ref("start")
    report = frazil.upgrade(stored(files), target := MemoryStorage())
    none = "branches of spec version 2 have none"
    assert report.left_out == (
        f"properties in 1 of 3 ref files of branch main, the last are {{'author': 'ada'}}: {none}",
        "properties of tag v 1!, {'who': 'ada', 'n': [1, None]}: tags of spec version 2 have none",
    )
    log = [*frazil.Repository.open(target).ops_log()][::-1]
    kinds = [type(entry.kind).__name__ for entry in log]
    times = [entry.updated_at.isoformat() for entry in log]
    expected = {
        "RepoInitialized": "2024-10-01T13:00:00+00:00",
        "NewCommit": "2024-10-05T00:00:00+00:00",
        "BranchCreated": "2024-10-06T00:00:00+00:00",
        "TagCreated": "2024-10-01T13:00:00.000001+00:00",
    }
    for kind, time in expected.items():
        assert times[kinds.index(kind)] == time
    assert times[3] == "2024-10-05T00:00:00.000001+00:00"
    assert "2025-01-01T00:00:00+00:00" in times
    assert (kinds[0], kinds[-1]) == ("RepoInitialized", "RepoMigrated")
    moments = [entry.updated_at for entry in log]
    assert moments == sorted(set(moments))
    assert moments[-1] <= datetime.now(UTC) + timedelta(seconds=5)


def test_properties_of_a_ref_are_a_map() -> None:
    files = repository("M3")
    make = Maker(next(each for each in GENERATIONS if each.name == "M3"))
    files[make.tag("bad")] = json.dumps({"snapshot": make.text("first"), "properties": [1]}).encode()
    with pytest.raises(frazil.FormatError, match=r"tag\.bad.*expected a map"):
        frazil.upgrade(stored(files), MemoryStorage())


def test_fields_without_a_place_are_reported() -> None:
    """Of snapshots and of manifests, in a line for each kind."""
    files = repository("M3")
    make = Maker(next(each for each in GENERATIONS if each.name == "M3"))
    names = ("start", "first", "second")
    for name in names:
        key = f"snapshots/{make.text(name)}"
        fields = msgpack.loads(payload(files[key], FileType.SNAPSHOT))
        if name != "start":
            fields[1] = {"flag": 1}
            fields[3] = [["an attribute file"]]
            fields[4] += 7
            fields[5] += 1
        fields[8] = time_of(1)
        files[key] = make.file(fields, FileType.SNAPSHOT)
    key = f"manifests/{make.text('m1')}"
    body = payload(files[key], FileType.MANIFEST)
    assert body[:3] == b"\x93\x00\x80"  # version 0, no flags
    files[key] = body[:2] + packed({"flag": 1}) + body[3:]
    report = frazil.upgrade(stored(files), target := MemoryStorage())
    first = f"snapshot {make.text('first')} and 1 more"
    assert report.left_out == (
        f"started_at of {first}: a snapshot of spec version 2 has one time, and written_at is imported",
        f"total_parents of {first}: it is not the number of ancestors that are imported",
        f"short_term_parents of {first}: it is not the length of short_term_history",
        f"format_flags of {first}: their meaning was never defined",
        f"attribute_files of {first}: their kind was never defined",
        f"format_flags of manifest {make.text('m1')}: their meaning was never defined",
    )
    assert "left out: total_parents of" in str(report)
    check(target, "M3")


def test_an_initial_snapshot_under_another_name() -> None:
    """The first versions wrote another id into it than its name. Children quote that id, and here no ref."""
    files, make = repository("M1"), Maker(GENERATIONS[2])
    outer = id_to_text(b"another-name")
    files[f"snapshots/{outer}"] = files.pop(f"snapshots/{make.text('start')}")
    del files[make.sequence("main", 0)]
    assert frazil.upgrade(stored(files), target := MemoryStorage()).left_out == ()
    assert [entry.id for entry in frazil.Repository.open(target).ancestry(branch="main")][-1] == outer


def test_a_cycle_is_an_error() -> None:
    files = repository("M8")
    make = Maker(GENERATIONS[-1])
    for one, other in (("first", "second"), ("second", "first")):
        files[f"snapshots/{make.text(one)}"] = make.snapshot(one, 2, one, [make.entry(other, 1, "")], {}, [])
    with pytest.raises(frazil.FormatError, match="cycle"):
        frazil.upgrade(stored(files), MemoryStorage())


@pytest.mark.sample(7)
@generations
def test_damage_names_the_file(name: str) -> None:
    files = repository(name)
    for key in files:
        if key.startswith(("chunks/", "c/", "refs/tag.gone")):
            continue
        broken, target = stored(files | {key: files[key][: len(files[key]) // 2]}), MemoryStorage()
        with pytest.raises(frazil.FormatError, match=re.escape(key)):
            frazil.upgrade(broken, target)
        assert target.head("repo") is None


@pytest.mark.deep
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(repository("M7"), frazil.local_filesystem_storage(str(tmp_path / "old")))
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    command = [sys.executable, "-m", "frazil.cli", "import", old, new]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "imported from: M7" in done.stdout
    assert "virtual chunks below: s3://bucket/" in done.stdout
    check(frazil.local_filesystem_storage(new), "M7")
    assert main(["import", f"file://{old}", new]) == 0
    assert "was there already" in capsys.readouterr().out
    assert main(["import", old]) == 0
    check(frazil.local_filesystem_storage(old), "M7")
    assert main(["import", "--reference-chunks", old, str(tmp_path / "third")]) == 0
    assert f"virtual chunks below: file://{old}/chunks/" in capsys.readouterr().out
    assert main(["import", old, new, "--copy-chunks", "--reference-chunks"]) == 2


def test_one_manifest_for_arrays_of_different_rank() -> None:
    """An array that got another rank, and its manifest stayed: a new manifest has one rank for a node."""
    files, make = repository("M1"), Maker(GENERATIONS[2])
    line = [[4], *T_META[1:2], [2], *T_META[3:7], None]
    nodes = {"/": (1, None, "Group"), "/t": (3, None, make.array(line, {"m1": []}))}
    history = [make.entry("first", 2, "first"), make.entry("start", 1, "")]
    files[f"snapshots/{make.text('second')}"] = make.snapshot(
        "second", 3, "second", history, make.tree(nodes), ["m1"]
    )
    both = {
        (0, 0): make.payload("inline", CHUNK[:3].tobytes()),
        (1,): make.payload("inline", CHUNK[3:5].tobytes()),
    }
    files[f"manifests/{make.text('m1')}"] = make.manifest("m1", {3: both})
    report = frazil.upgrade(stored(files), target := MemoryStorage())
    assert (report.manifests, report.left_out[:-1]) == (2, ())
    repo = frazil.Repository.open(target)
    first, second = (
        repo.readonly_session(snapshot_id=e.id) for e in list(repo.ancestry(branch="main"))[1::-1]
    )
    assert frazil.read(first, "t")[0].tolist() == [0, 1, 2, -1, -1, -1]
    assert frazil.read(second, "t").tolist() == [-1, -1, 3, 4]
    assert frazil.upgrade(stored(files), target).was_there


def test_a_repository_that_appears_meanwhile_stays() -> None:
    target = MemoryStorage()

    def first(key: str, condition: object) -> None:
        if key == "repo" and target.head("repo") is None:
            frazil.Repository.create(target, check_clean_root=False)

    with pytest.raises(frazil.InvalidInputError, match="another repository"):
        frazil.upgrade(stored(repository("M8")), FaultyStorage(target, first))
    with pytest.raises(frazil.InvalidInputError, match="another repository"):
        frazil.upgrade(stored(repository("M8")), target)
    assert frazil.Repository.open(target).list_branches() == {"main"}


def test_secrets_of_the_old_configuration_are_saved_elsewhere_only_on_request() -> None:
    files, target = repository("M8"), MemoryStorage()
    files["config.yaml"] += b"      endpoint_url: https://me:do-not-tell@h\n"
    with pytest.raises(frazil.InvalidInputError) as error:
        frazil.upgrade(stored(files), target)
    assert error.value.kind == "secret-in-config"
    assert "do-not-tell" not in str(error.value)
    assert target.head("repo") is None
    frazil.upgrade(stored(files), target, store_secrets=True)
    config = frazil.Repository.fetch_config(target)
    assert config is not None
    assert "do-not-tell" in str(to_document(config))
    frazil.upgrade(stored(files))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["M0", "M8", "D"])
def test_on_an_object_store(name: str) -> None:
    """Names with spaces, ``!`` and ``:``; chunks copied, and referred to by the bucket's URL."""
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        server.make_bucket("ice")
        server_options: dict[str, Any] = {
            "region": "us-east-1",
            "endpoint_url": f"http://127.0.0.1:{server.port}",
            "allow_http": True,
            "force_path_style": True,
            "access_key_id": "a",
            "secret_access_key": "b",
        }
        old, copy, reference = (
            frazil.s3_storage(bucket="ice", prefix=prefix, **server_options)
            for prefix in ("old one", "copy", "reference")
        )
        stored(repository(name), old)
        frazil.upgrade(old, copy)
        check(copy, name)
        report = frazil.upgrade(old, reference, chunks="reference")
        folder = f"s3://ice/old one/{'c' if name == 'D' else 'chunks'}/"
        assert folder in report.virtual_prefixes
        keys = frazil.s3_credentials(access_key_id="a", secret_access_key="b")
        access = frazil.containers_credentials({folder: keys})
        config = frazil.Repository.fetch_config(reference)
        assert config is not None
        saved = config.get_virtual_chunk_container(folder)
        assert saved is not None
        config.set_virtual_chunk_container(saved.as_own())  # it names the server
        check(reference, name, config=config, authorize_virtual_chunk_access=access)
        frazil.upgrade(old)
        check(old, name)


def test_where_nothing_can_be_listed() -> None:
    class Blind(MemoryStorage):
        def list(self, prefix: str) -> Any:
            raise frazil.StorageError("cannot list", frazil.ErrorKind.OBJECT_STORE)

    with pytest.raises(frazil.StorageError, match="cannot list"):
        frazil.upgrade(Blind(), MemoryStorage())


@pytest.mark.parametrize("name", ["D", "M0", "M8"])
def test_names_in_percent(name: str, tmp_path: Path) -> None:
    """As the reference's library spells them in the names of local files."""
    make = Maker(next(each for each in GENERATIONS if each.name == name))
    files = repository(name) | {
        make.sequence("a%25b %C3%A9", 0): make.ref("first"),
        make.tag("50%25"): make.ref("first"),
    }
    source = stored(files, frazil.local_filesystem_storage(str(tmp_path)))
    report = frazil.upgrade(source, MemoryStorage())
    assert "a%b é" in report.branches
    assert "50%" in report.tags


@pytest.mark.parametrize("folder", ["snapshots", "manifests"])
@pytest.mark.parametrize("name", ["M7", "M8"])
def test_files_that_changed_places_are_refused(name: str, folder: str) -> None:
    files = repository(name)
    keys = sorted(key for key in files if key.startswith(f"{folder}/"))
    for one, other in pairwise(keys):
        changed = files | {one: files[other], other: files[one]}
        with pytest.raises(FormatError, match=f"{folder}/.*The file has the name of another file"):
            upgrade(stored(changed), MemoryStorage())
