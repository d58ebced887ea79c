"""What users read when something is wrong: situations, the class and kind of the error, and words of it.

Storages have their own table in ``tests/storage/test_failures.py``.
"""

from __future__ import annotations

import pickle
import re
import runpy
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import xarray
import zarr
from tests.messages import check

import frazil
import frazil.pipeline
import frazil.xarray
from frazil.display import suggest
from frazil.errors import ErrorKind, IcechunkError

ROOT: Final = Path(__file__).parents[1]
ERROR_PAGES: Final = runpy.run_path(str(ROOT / "scripts" / "site" / "error_pages.py"))
NEVER_RAISED: Final = "A kind of icechunk, which Frazil never raises."
EARLY: Final = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    """With a branch ``dev``, a tag ``v1`` and an array ``/air/t2m``."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="air/t2m", shape=(4,), chunks=(1,), dtype="i4")
    tip = repo.lookup_branch("main")
    repo.create_branch("dev", tip)
    repo.create_tag("v1", tip)
    repo.create_tag("gone", tip)
    repo.delete_tag("gone")
    return repo


def _config(**fields: Any) -> Callable[[frazil.Repository], object]:
    return lambda _: frazil.RepositoryConfig(**fields)


_K: Final = ErrorKind
_REF: Final = (frazil.RefNotFoundError, _K.REF_NOT_FOUND)
_METADATA: Final = (frazil.InvalidMetadataError, _K.BAD_METADATA)
_NOT_CLEAN: Final = (frazil.InvalidInputError, _K.PARENT_DIRECTORY_NOT_CLEAN)
_COMMITS: Final = (frazil.InvalidInputError, _K.INVALID_COMMIT_CONFIGURATION)
_TYPE: Final = (TypeError, None)


def _reading(*args: Any, **keywords: Any) -> Callable[[frazil.Repository], object]:
    return lambda repo: repo.readonly_session(*args, **keywords)


#: A call, the class and the kind of its error, and words of its text.
ROWS: Final[dict[str, tuple[Any, ...]]] = {
    # Branches, tags and snapshots
    "tag as branch": (_reading("v1"), *_REF, "`v1`"),
    "misspelled branch": (lambda repo: repo.writable_session("mian"), *_REF, "`mian`"),
    "unknown tag": (lambda repo: repo.lookup_tag("quite-another"), *_REF, "tags: `v1`"),
    "deleted tag": (lambda repo: repo.lookup_tag("gone"), *_REF, "`gone`"),
    "short id": (
        _reading(snapshot_id="not an id!"),
        frazil.InvalidInputError,
        _K.INVALID_SNAPSHOT_ID,
        "characters",
    ),
    "too early": (
        _reading("main", as_of=EARLY),
        *(frazil.SnapshotNotFoundError, _K.NO_SNAPSHOT_AT_TIME),
        "2020-01-01T00",
    ),
    "time without zone": (_reading("main", as_of=datetime(2020, 1, 1)), *_TYPE, "tzinfo=datetime.UTC"),
    "two versions": (_reading("main", tag="v1"), ValueError, None, "snapshot_id"),
    # Nodes
    "misspelled path": (
        lambda repo: repo.readonly_session("main").get_node_id("/air/t2n"),
        *(frazil.NodeNotFoundError, _K.NODE_NOT_FOUND),
        "`/air/t2n`",
    ),
    # Creating
    "create twice": (lambda repo: frazil.Repository.create(repo.storage), *_NOT_CLEAN, "Repository.open"),
    # Configuration
    "lifetime": (_config(session_lifetime=timedelta(days=9)), *_COMMITS, "session_lifetime"),
    "option of a storage": (lambda _: frazil.s3_storage(buckte="b", prefix="p"), *_TYPE, "'buckte'"),  # type: ignore[call-arg]
    "feature flag": (
        lambda repo: repo.set_feature_flag("create_tga", setting=True),
        *(frazil.InvalidInputError, _K.INVALID_FEATURE_FLAG),
        "`create_tga`",
    ),
    # Metadata
    "set": (lambda repo: repo.update_metadata({"a": {1, 2}}), *_METADATA, "`a`"),
    "of a commit": (
        lambda repo: repo.writable_session("main").commit("m", {"c": {"d": EARLY}}, allow_empty=True),
        *_METADATA,
        "`c`",
    ),
    # One thing in place of another
    "path as storage": (lambda repo: repo.upkeep.backups("/data"), *_TYPE, "local_filesystem_storage"),
    "repository as session": (
        lambda repo: frazil.xarray.to_icechunk(xarray.Dataset(), repo),
        *_TYPE,
        "repo.writable_session",
    ),
    "session as repository": (
        lambda repo: frazil.pipeline.Target(repo.readonly_session("main")),
        *_TYPE,
        "Pass the repository",
    ),
    # Sessions
    "nothing to commit": (
        lambda repo: repo.writable_session("main").commit("m"),
        *(frazil.SessionStateError, _K.NO_CHANGES_TO_COMMIT),
        "allow_empty=True",
    ),
    "other version of zarr": (
        lambda repo: zarr.create_array(
            repo.writable_session("main").store, name="b", shape=(1,), dtype="i4", zarr_format=2
        ),
        *(frazil.NodeNotFoundError, _K.KEY_NOT_FOUND),
        "zarr_format=3",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_message_says_what_to_do(name: str, repo: frazil.Repository) -> None:
    call, *wanted = ROWS[name]
    check(lambda: call(repo), *wanted)


def test_a_place_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "data.csv").touch()
    check(
        lambda: frazil.Repository.create(frazil.local_filesystem_storage(tmp_path)),
        frazil.InvalidInputError,
        ErrorKind.PARENT_DIRECTORY_NOT_CLEAN,
        f"got `data.csv` in the directory {tmp_path}",
        "Use an empty directory",
        "check_clean_root=False",
    )


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_creation_that_fails_is_no_race(
    version: int, is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = frazil.in_memory_storage()
    monkeypatch.setattr(type(storage), "is_local", is_local)
    put = type(storage).put

    def refuse(self: Any, key: str, *args: Any) -> Any:
        if key in ("repo", "refs/branch.main/ref.json"):
            raise frazil.StorageError("no space left", ErrorKind.STORAGE_FULL)
        return put(self, key, *args)

    monkeypatch.setattr(type(storage), "put", refuse)
    check(
        lambda: frazil.Repository.create(storage, spec_version=version),
        frazil.StorageError,
        ErrorKind.STORAGE_FULL,
        "no space left",
    )


def test_refs_of_spec_version_1() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
    repo.create_tag("v1", repo.lookup_branch("main"))
    check(lambda: repo.readonly_session("v1"), *_REF, "a tag `v1` exists")
    check(lambda: repo.readonly_session(tag="main"), *_REF, "a branch `main` exists")
    check(lambda: repo.readonly_session("mian"), *_REF, "Did you mean `main`?")


def test_a_failed_rebase_names_its_conflicts(repo: frazil.Repository) -> None:
    mine, theirs = repo.writable_session("dev"), repo.writable_session("dev")
    for session in (theirs, mine):
        root = zarr.open_group(session.store)
        for name in "abcde":
            root.create_array(name, shape=(1,), dtype="i4")
    theirs.commit("theirs")
    with pytest.raises(frazil.RebaseFailedError) as caught:
        mine.commit("mine", rebase_with=frazil.ConflictDetector())
    error = caught.value
    text = str(error)
    assert len(error.conflicts) == 5
    assert "5 conflicts: " in text
    assert "and 2 more" in text
    assert all(f"NewNodeConflictsWithExistingNode at /{name}" in text for name in "abc")
    assert "/d" not in text
    assert str(pickle.loads(pickle.dumps(error))) == text
    assert error.args == (error.snapshot, error.conflicts)
    many = frazil.Conflict(frazil.ConflictType.ChunkDoubleUpdate, "/t", [[number, 1] for number in range(9)])
    advised = str(frazil.RebaseFailedError(error.snapshot, [many], "Ask Ann"))
    assert advised.endswith("1 conflict: ChunkDoubleUpdate at /t, chunks [0, 1], [1, 1], [2, 1], ... Ask Ann")


# Near names


def test_a_near_name_among_many_is_suggested_soon() -> None:
    names = [f"experiment/{number:06}" for number in range(100_000)]
    start = time.process_time()
    assert "`experiment/031415`" in suggest("experiment/o31415", names)
    assert suggest("nothing-like-that", names) == ""
    assert time.process_time() - start < 5


# Operations on Spark, without Spark


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("brunch", "Did you mean `branch`?"),
        ("endpoint", "use `endpoint-url`"),
        ("overwriteSchema", "delete the arrays first"),
        ("quiteAnother", "the options for reading are access-key-id"),
    ],
)
def test_an_unknown_option_of_the_data_source(option: str, advice: str) -> None:
    source = pytest.importorskip("frazil.spark.data_source")
    data_source = source.FrazilDataSource({"path": "/data", option: "x"})
    wanted = (frazil.InvalidInputError, ErrorKind.INVALID_ARGUMENT, f"unknown option `{option.lower()}`")
    error = check(data_source.schema, *wanted, advice)
    assert error.__cause__ is None  # Spark prints the causes before the message


def test_an_error_of_a_plan_is_raised_by_the_reader(tmp_path: Path) -> None:
    source = pytest.importorskip("frazil.spark.data_source")
    repo = frazil.Repository.create(frazil.local_filesystem_storage(tmp_path))
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(
            store, name="t", data=np.arange(200), chunks=(100,), dimension_names=["x"], compressors=None
        )
    for manifest in (tmp_path / "manifests").iterdir():
        manifest.unlink()
    data_source = source.FrazilDataSource({"path": str(tmp_path)})
    schema = data_source.schema()
    wanted = (frazil.StorageError, ErrorKind.OBJECT_NOT_FOUND, "manifests/", "not found")
    check(lambda: data_source.reader(schema), *wanted)


# The page


def test_every_kind_has_a_cause_and_what_frazil_raises_a_remedy() -> None:
    texts = dict(item[1] for item in ERROR_PAGES["kinds"]())
    assert texts.keys() == {str(kind) for kind in ErrorKind}
    sources = "".join(path.read_text() for path in (ROOT / "src" / "frazil").rglob("*.py"))
    used = {kind for kind in ErrorKind if re.search(rf"ErrorKind\.{kind.name}\b", sources)}
    assert used == {kind for kind, text in texts.items() if text != NEVER_RAISED}
    without_remedy = {kind for kind in used if ". " not in texts[kind]}
    assert without_remedy == {"cannot-delete-main", "invalid-repository-migration"}


def test_the_page_has_every_class() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    names = {each.__name__ for each in vars(frazil).values() if _is_error(each)}
    assert {name for name in names if f"`{name}`" not in page} <= {"NotFoundError"}


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, IcechunkError)
