"""Errors: the class determines what to do next, and the kind names the exact cause.

Run it:  python examples/how_to/error_handling.py
"""

from __future__ import annotations

import zarr

import frazil


def main() -> None:
    storage = frazil.in_memory_storage()

    # Every error is an IcechunkError with a message and a kind. Some are also builtin errors.
    try:
        frazil.Repository.open(storage)
    except frazil.RepositoryNotFoundError as error:
        print(f"{error.kind}: a KeyError too: {isinstance(error, KeyError)}")
    repo = frazil.Repository.create(storage)
    try:
        repo.create_tag("v 1", snapshot_id="no id")
    except frazil.InvalidInputError as error:  # also a ValueError
        print(f"{error.kind}: {error}")

    # The call does not fit the state of the session.
    session = repo.writable_session("main")
    try:
        session.commit("nothing")
    except frazil.SessionStateError as error:
        print(f"{error.kind}: pass allow_empty=True to make an empty commit")

    # zarr and xarray raise the same errors.
    readonly = repo.readonly_session("main")
    try:
        zarr.create_group(readonly.store)
    except (frazil.ReadOnlyError, ValueError) as error:
        print("read only:", type(error).__name__)

    # Two sessions commit to one branch: the second commit raises an error, and its session keeps the changes.
    with repo.transaction("main", message="An array") as store:
        zarr.create_array(store, name="a", shape=(4,), chunks=(1,), dtype="i4")
    first, second = repo.writable_session("main"), repo.writable_session("main")
    zarr.open_array(first.store, path="a")[0] = 1
    zarr.open_array(second.store, path="a")[1] = 2
    first.commit("first")
    try:
        second.commit("second")
    except frazil.ConflictError as error:
        print(f"{error.kind}: expected {error.expected_parent!s:.4}..., found {error.actual_parent!s:.4}...")
    print("still there:", second.has_uncommitted_changes)

    # Retry in a new session after a conflict.
    for attempt in range(3):
        try:
            session = repo.writable_session("main")
            zarr.open_array(session.store, path="a")[1] = 2
            session.commit("second, again")
            print("committed in attempt", attempt + 1)
            break
        except frazil.ConflictError:
            continue

    # Use kinds in logs and dashboards, because their meaning never changes.
    kinds = [frazil.ErrorKind.COMMIT_CONFLICT, frazil.ErrorKind.OBJECT_STORE, frazil.ErrorKind.THROTTLED]
    print("kinds:", *kinds)


if __name__ == "__main__":
    main()
