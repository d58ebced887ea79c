"""Hold-backs: readers of a branch do not see data until a date, and no value is lost."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.maintenance.schedules import Killed, killing
from tests.repository.version_1 import copy_of
from tests.support.errors import of_kind
from tests.support.judge import reference, reference_storage
from tests.support.virtual_chunks import allow_folder

import frazil
from frazil import ErrorKind, maintenance
from frazil.maintenance import doctor, hold_backs
from frazil.repository.clock import from_datetime
from frazil.storage.memory import MemoryStorage

UNTIL = datetime(2199, 6, 1, tzinfo=UTC)
#: Chunks of up to 16 bytes are inline.
CONFIG = frazil.RepositoryConfig(inline_chunk_threshold_bytes=16)
VALUES = np.arange(1, 17)


def filled(repo: frazil.Repository) -> frazil.Repository:
    """`t` has chunks in files, `inline` inline chunks, `g/text` texts, and `g/zero` no dimensions."""
    with repo.transaction("main", message="four arrays") as store:
        for name, length in (("t", 4), ("inline", 1)):
            zarr.create_array(store, name=name, data=VALUES, chunks=(length,), compressors=None)
        text = zarr.create_array(store, name="g/text", shape=(4,), chunks=(3,), dtype=str, fill_value="")
        text[:] = np.array(["a", "b", "c", "d"], object)
        zarr.create_array(store, name="g/zero", shape=(), dtype="f8", fill_value=np.nan)[...] = 5.0
    return repo


@pytest.fixture
def repo() -> frazil.Repository:
    return filled(frazil.Repository.create(MemoryStorage(), CONFIG))


def read(repo: Any, path: str = "t", **version: Any) -> Any:
    store = repo.readonly_session(**(version or {"branch": "main"})).store
    return np.asarray(zarr.open_array(store, path=path, mode="r")[...]).tolist()


def write(repo: Any, path: str, at: Any, value: Any, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    zarr.open_array(session.store, path=path)[at] = value
    return str(session.commit(f"write {path}"))


def hold(repo: frazil.Repository, data: Any, name: str = "season", **further: Any) -> Any:
    return repo.upkeep.hold(data, until=UNTIL, name=name, **further).apply()


def without(values: Any, *parts: slice) -> list[Any]:
    """The values with the fill value in some parts."""
    out = np.array(values)
    for part in parts:
        out[part] = 0
    return list(out.tolist())


def test_both_libraries_read_the_fill_value_and_then_the_values(tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path))
    repo = filled(frazil.Repository.create(storage, CONFIG))
    tip = repo.lookup_branch("main")
    plan = repo.upkeep.hold({"t": slice(3, 9), "inline": slice(2, 4)}, until=UNTIL, name="season")
    assert (plan.report.chunks, plan.as_dict()["until"]) == (5, "2199-06-01T00:00:00Z")
    assert (repo.lookup_branch("main"), repo.list_tags()) == (tip, set())
    held = plan.apply()
    assert (held.tag, held.what, held.until) == ("hold.season.1", ("/t[3:9]", "/inline[2:4]"), UNTIL)
    assert repo.upkeep.holds() == [held]
    assert repo.lookup_tag("hold.season.1") == held.snapshot_id == repo.lookup_branch("main")
    assert repo.lookup_tag("hold.season.1.before") == tip
    theirs = reference().Repository.open(reference_storage(tmp_path))
    for each in (repo, theirs):
        assert read(each) == without(VALUES, slice(3, 9))
        assert read(each, "inline") == without(VALUES, slice(2, 4))
    write(theirs, "t", 2, 70)  # in a chunk with elements of the hold-back
    write(theirs, "t", slice(12, 14), 80)
    repo.upkeep.end_hold("season").apply()
    expected = VALUES.copy()
    expected[2], expected[12:14] = 70, 80
    for each in (repo, reference().Repository.open(reference_storage(tmp_path))):
        assert read(each) == expected.tolist()
        assert read(each, "inline") == VALUES.tolist()
        assert set(each.list_tags()) == set()
    assert repo.upkeep.holds() == []
    assert repo.upkeep.verify(level="decode").ok


@pytest.mark.parametrize("by_reference", [False, True])
def test_expirations_and_collections_keep_the_values(tmp_path: Path, by_reference: bool) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path))
    repo = filled(frazil.Repository.create(storage, CONFIG))
    hold(repo, {"t": slice(3, 9)})
    write(repo, "t", 0, 50)
    write(repo, "t", 1, 60)
    future = datetime.now(UTC) + timedelta(days=1)
    if by_reference:
        theirs = reference().Repository.open(reference_storage(tmp_path))
        assert theirs.expire_snapshots(future)
        theirs.garbage_collect(future)
        repo = frazil.Repository.open(storage)
    else:
        assert repo.upkeep.expire(future, delete_expired_tags=True).apply()
        repo.upkeep.collect(future).apply()
    assert len(list(repo.ancestry(branch="main"))) < 5
    repo.upkeep.end_hold("season").apply()
    assert read(repo) == [50, 60, *VALUES[2:].tolist()]
    assert repo.upkeep.verify(level="decode").ok


@pytest.mark.parametrize(
    ("conflicts", "expected"), [("keep", [500, 600]), ("restore", [6, 7])], ids=["keep", "restore"]
)
def test_who_wrote_into_the_box_is_a_conflict(
    repo: frazil.Repository, conflicts: Any, expected: list[int]
) -> None:
    hold(repo, {"t": slice(3, 9)})
    write(repo, "t", slice(5, 7), [500, 600])
    tip = repo.lookup_branch("main")
    for step in (lambda: repo.upkeep.end_hold("season").report, repo.upkeep.end_hold("season").apply):
        with pytest.raises(frazil.RebaseFailedError, match="conflicts='keep' keeps what others") as caught:
            step()
        (conflict,) = caught.value.conflicts
        assert (conflict.path, conflict.conflicted_chunks) == ("/t", [[1]])
    assert (repo.lookup_branch("main"), len(repo.upkeep.holds())) == (tip, 1)
    plan = repo.upkeep.end_hold("season", conflicts=conflicts)
    assert plan.report.name == "season"
    plan.apply()
    assert read(repo) == [*range(1, 6), *expected, *range(8, 17)]


@pytest.mark.parametrize("path", ["g/text", "g/zero", "g", "t", "/"])
def test_whole_arrays_and_groups(repo: frazil.Repository, path: str) -> None:
    paths = ["t", "inline", "g/text", "g/zero"]
    before = {each: read(repo, each) for each in paths}
    hold(repo, path)
    for each in paths:
        if path in ("/", each, each.rpartition("/")[0]):
            assert not repo.readonly_session("main").chunk_table(f"/{each}")
            assert str(read(repo, each)) != str(before[each])
        else:
            assert read(repo, each) == before[each]
    repo.upkeep.end_hold("season").apply()
    assert {each: read(repo, each) for each in paths} == before


def test_a_box_of_texts_and_of_an_array_without_dimensions(repo: frazil.Repository) -> None:
    hold(repo, {"g/text": slice(1, 4), "g/zero": ()})
    assert read(repo, "g/text") == ["a", "", "", ""]
    assert np.isnan(read(repo, "g/zero"))
    write(repo, "g/text", 0, "A")
    repo.upkeep.end_hold("season").apply()
    assert read(repo, "g/text") == ["A", "b", "c", "d"]
    assert read(repo, "g/zero") == 5


def test_the_ledger_of_an_ingest_stays(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="a ledger") as store:
        zarr.create_array(store, name="g/.frazil/size", data=VALUES)
    hold(repo, "g")
    assert read(repo, "g/.frazil/size") == VALUES.tolist()


def test_virtual_chunks(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "f.bin").write_bytes(VALUES.astype("<i8").tobytes())
    repo = frazil.Repository.create(MemoryStorage(), **allow_folder(data))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="v", shape=(16,), chunks=(4,), dtype="i8", compressors=None)
    for number in range(4):
        session.store.set_virtual_ref(f"v/c/{number}", f"file://{data}/f.bin", offset=number * 32, length=32)
    session.commit("references")
    hold(repo, {"v": slice(3, 12)})
    assert read(repo, "v") == without(VALUES, slice(3, 12))
    repo.upkeep.end_hold("season").apply()
    assert read(repo, "v") == VALUES.tolist()
    table = repo.readonly_session("main").chunk_table("/v")
    assert table.kind.tolist() == [2] * 4


def test_several_overlap_and_end_in_another_order(repo: frazil.Repository) -> None:
    hold(repo, {"t": slice(2, 9)}, "first")
    hold(repo, {"t": slice(6, 14)}, "second")
    hold(repo, {"t": [slice(0, 1), slice(15, 16)]}, "third")
    assert read(repo) == without(VALUES, slice(2, 14), slice(0, 1), slice(15, 16))
    assert [each.name for each in repo.upkeep.holds()] == ["first", "second", "third"]
    repo.upkeep.end_hold("first").apply()
    # What both have held back comes back with the first end.
    assert read(repo) == without(VALUES, slice(9, 14), slice(0, 1), slice(15, 16))
    repo.upkeep.end_hold("third").apply()
    repo.upkeep.end_hold("second").apply()
    assert read(repo) == VALUES.tolist()


def test_the_array_was_moved_and_resized(repo: frazil.Repository) -> None:
    hold(repo, {"t": slice(3, 9)})
    session = repo.rearrange_session("main")
    session.move("/t", "/g/renamed")
    session.commit("rename")
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="g/renamed")
    array.resize(20)
    array[16:] = 7
    array.attrs["units"] = "K"
    session.commit("grow")
    repo.upkeep.end_hold("season").apply()
    assert read(repo, "g/renamed") == [*VALUES.tolist(), 7, 7, 7, 7]


@pytest.mark.parametrize("conflicts", ["refuse", "keep", "restore"])
def test_the_array_became_shorter(repo: frazil.Repository, conflicts: Any) -> None:
    hold(repo, {"t": slice(3, 9)})
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="t").resize(6)
    session.commit("cut")
    if conflicts == "refuse":
        with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.REBASE_FAILED)):
            repo.upkeep.end_hold("season").apply()
        return
    repo.upkeep.end_hold("season", conflicts=conflicts).apply()
    assert read(repo) == VALUES[:6].tolist()
    assert repo.upkeep.verify(level="decode").ok


@pytest.mark.parametrize("conflicts", ["keep", "restore"])
def test_the_array_was_deleted(repo: frazil.Repository, conflicts: Any) -> None:
    hold(repo, {"t": slice(3, 9)})
    session = repo.writable_session("main")
    session.workspace.delete_node("/t")
    session.commit("delete")
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.REBASE_FAILED)):
        repo.upkeep.end_hold("season").apply()
    repo.upkeep.end_hold("season", conflicts=conflicts).apply()
    if conflicts == "restore":
        assert read(repo) == VALUES.tolist()
    else:
        assert repo.readonly_session("main").workspace.node("/t") is None
    assert repo.upkeep.holds() == []
    assert repo.upkeep.verify(level="decode").ok


def test_a_withdrawal_reaches_what_is_held_back(repo: frazil.Repository) -> None:
    hold(repo, {"t": slice(3, 9)})
    plan = repo.upkeep.forget({"t": slice(5, 7)})
    assert plan.report.tags == ("hold.season.1", "hold.season.1.before")
    certificate = plan.apply()
    assert certificate.ok
    (each,) = repo.upkeep.holds()
    assert each.snapshot_id == repo.lookup_branch("main")
    # The version without the data has a new id, too: `g/text` is in a manifest with the data.
    assert {each.snapshot_id, repo.lookup_tag("hold.season.1.before")} == {*certificate.snapshots.values()}
    assert read(repo, tag="hold.season.1.before") == without(VALUES, slice(5, 7))
    repo.upkeep.end_hold("season").apply()
    assert read(repo) == without(VALUES, slice(5, 7))


def test_merges_of_branches_with_the_data(repo: frazil.Repository) -> None:
    repo.create_branch("old", "main")
    repo.create_branch("wrote", "main")
    repo.create_tag("v1", "main")
    write(repo, "t", 4, 400, "wrote")
    empty = frazil.Repository.create(MemoryStorage())
    repo.create_branch("empty", list(repo.ancestry(branch="main"))[-1].id)
    visible = repo.upkeep.hold({"t": slice(3, 9)}, until=UNTIL, name="season").report.visible
    assert visible == ("branch `old`", "branch `wrote`", "tag `v1`")
    hold(repo, {"t": slice(3, 9)})
    write(repo, "t", 15, 1, "old")
    repo.merge("old")  # it did not change the data, so they stay hidden
    assert read(repo) == [*without(VALUES, slice(3, 9))[:15], 1]
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.REBASE_FAILED)):
        repo.merge("wrote")
    assert empty.upkeep.holds() == []


def test_names_and_dates(repo: frazil.Repository) -> None:
    data = {"t": slice(3, 9)}
    hold(repo, data)
    tip = repo.lookup_branch("main")
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.TAG_ALREADY_EXISTS)):
        hold(repo, {"t": slice(10, 12)})
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.REF_NOT_FOUND)):
        repo.upkeep.end_hold("other").apply()
    for wrong, text in (
        ({"until": datetime(2020, 1, 1, tzinfo=UTC)}, "until must be in the future"),
        ({"name": ""}, "must not be empty"),
        ({"data": {"t": slice(3, 4)}}, "has only the fill value"),
        ({"data": {"g": slice(3, 4)}}, "is a group"),
        ({"data": {"t": slice(-3, None)}}, "from 0 on"),
    ):
        arguments: dict[str, Any] = {"data": {"inline": 0}, "until": UNTIL, "name": "x", **wrong}
        with pytest.raises(frazil.InvalidInputError, match=text):
            repo.upkeep.hold(**arguments).apply()
    with pytest.raises(TypeError, match="until must be a datetime with a time zone"):
        repo.upkeep.hold("t", until=UNTIL.replace(tzinfo=None), name="x")
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.NODE_NOT_FOUND)):
        repo.upkeep.hold("none", until=UNTIL, name="x").apply()
    assert repo.lookup_branch("main") == tip
    repo.upkeep.end_hold("season").apply()
    east = UNTIL.astimezone(timezone(timedelta(hours=9)))
    held = repo.upkeep.hold(data, until=east, name="season").apply()
    assert (held.tag, held.until) == ("hold.season.2", UNTIL)
    assert hold(repo, {"inline": 0}, "season.2").tag == "hold.season.2.1"
    assert [each.name for each in repo.upkeep.holds()] == ["season", "season.2"]


def test_tags_of_others_are_no_hold_backs(repo: frazil.Repository) -> None:
    repo.create_tag("hold.season.1.before", "main")
    for metadata in ({"hold": 3}, {"hold": {"name": "season"}}):
        with repo.transaction("main", message="x", metadata={"__frazil": metadata}, allow_empty=True):
            pass
        repo.create_tag(f"hold.x.{len(repo.list_tags())}", "main")
    assert repo.upkeep.holds() == []
    assert hold(repo, "t").tag == "hold.season.2"


def test_spec_version_1() -> None:
    repo = filled(frazil.Repository.create(MemoryStorage(), CONFIG, spec_version=1))
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.UNSUPPORTED_SPEC_VERSION)):
        hold(repo, "t")
    assert repo.upkeep.holds() == []
    assert repo.upkeep.doctor().ok


def test_another_writer_comes_first(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another writer adds to the box during the call is hidden, too."""
    original, calls = hold_backs.hide, list[Any]()

    def late(work: Any, *arguments: Any, **further: Any) -> int:
        count = original(work, *arguments, **further)
        if further.get("writes", True) and not calls:
            calls.append(write(repo, "t", slice(3, 5), 44))
        return count

    monkeypatch.setattr(maintenance, "hide", late)
    held = hold(repo, {"t": slice(3, 9)})
    assert repo.lookup_tag(f"{held.tag}.before") == calls[0]
    assert read(repo) == without(VALUES, slice(3, 9))
    repo.upkeep.end_hold("season").apply()
    assert read(repo) == [1, 2, 3, 44, 44, *range(6, 17)]


def test_two_hold_back_under_one_name(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = hold_backs.hide, list[Any]()
    other = frazil.Repository.open(repo.storage)

    def late(work: Any, *arguments: Any, **further: Any) -> int:
        if further.get("writes", True) and not calls:
            calls.append(1)
            calls.append(hold(other, {"inline": 0}))
        return original(work, *arguments, **further)

    monkeypatch.setattr(maintenance, "hide", late)
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.TAG_ALREADY_EXISTS)):
        hold(repo, {"t": slice(3, 9)})
    assert repo.upkeep.holds() == [calls[1]]
    assert read(repo) == VALUES.tolist()


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_request(after: bool) -> None:
    """There is a hold-back with both tags, or there is none; the same for its end."""
    template = MemoryStorage()
    filled(frazil.Repository.create(template, CONFIG))
    for deadly in range(0, 1000, 2):
        storage, survived = copy_of(template), False
        repo = frazil.Repository.open(storage, CONFIG)
        with suppress(Killed):
            dying = frazil.Repository.open(killing(storage, deadly, after=after), CONFIG)
            hold(dying, {"t": slice(3, 9)})
            dying.upkeep.end_hold("season").apply()
            survived = True
        held = repo.upkeep.holds()
        assert read(repo) == (without(VALUES, slice(3, 9)) if held else VALUES.tolist())
        assert repo.list_tags() == ({held[0].tag, f"{held[0].tag}.before"} if held else set())
        if survived:
            return
    pytest.fail("the work needs more requests")


def test_the_doctor_names_a_date_that_has_passed(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(repo, {"t": slice(3, 9)})
    assert repo.upkeep.doctor().ok
    monkeypatch.setattr(doctor, "now_us", lambda: from_datetime(UNTIL))
    (finding,) = repo.upkeep.doctor().findings
    assert (finding.check, finding.subject) == ("hold", "hold-back `season`")
    assert "/t[3:9]` of the branch `main`" in finding.detail
    assert finding.remedy.for_shell("ice") == "frazil hold ice --end season"
    eval(finding.command, {"repo": repo})
    assert read(repo) == VALUES.tolist()
    assert repo.upkeep.doctor().ok
