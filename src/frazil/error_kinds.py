"""The kinds of errors: the exact cause of each, and what to do about it.

The first sentence below a kind is its cause, and the rest is what to do. `scripts/site/error_pages.py` makes
a page of each. ``frazil.errors`` has the classes.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    """The exact cause of an error, as a stable text such as ``commit-conflict``.

    The names are the names of the reference implementation. A comment marks the kinds that only Frazil has.

    Examples:
        >>> ErrorKind.COMMIT_CONFLICT == "commit-conflict"
        True
    """

    # conflicts
    COMMIT_CONFLICT = "commit-conflict"
    """Another writer committed to the branch first. Rebase it (docs/conflicts.md), or repeat the work."""
    BRANCH_UPDATE_CONFLICT = "branch-update-conflict"
    """The branch does not point to the snapshot that the call expects. Look up the branch, and decide again.
    """
    REBASE_FAILED = "rebase-failed"
    """Changes of two writers conflict. Rebase with a solver (docs/conflicts.md), or repeat the work."""
    CONFIG_UPDATED = "config-updated"
    """Another writer changed the configuration. Open the repository again, and repeat the change."""
    REPO_INFO_UPDATED = "repo-info-updated"
    """The target of a copy changed during the copy, or has commits of its own; or the update to undo is not
    that of the plan. Copy again, or to another place; make a new plan."""
    UPDATE_ATTEMPTS_EXHAUSTED = "update-attempts-exhausted"
    """Other writers were first in every attempt. Try again later, or with fewer writers."""
    GC_DELETES_FAILING = "gc-deletes-failing"
    """The storage refused many deletions in a row. Collect garbage again when the storage works."""

    # not found
    NODE_NOT_FOUND = "node-not-found"
    """No group, array or column has this name. Correct the name."""
    ANCESTOR_NODE_NOT_FOUND = "ancestor-node-not-found"
    """A kind of icechunk, which Frazil never raises."""
    CHUNK_NOT_FOUND = "chunk-not-found"
    """A kind of icechunk, which Frazil never raises."""
    KEY_NOT_FOUND = "key-not-found"
    """No value has this key, or no file matches. Correct the key or the pattern."""
    SNAPSHOT_NOT_FOUND = "snapshot-not-found"
    """The snapshot was expired, or belongs to another repository. Look it up with `repo.ancestry`."""
    NO_SNAPSHOT_AT_TIME = "no-snapshot-at-time"
    """The history begins later. Ask for a later time."""
    REF_NOT_FOUND = "ref-not-found"
    """No branch or tag has this name. Correct the name; use `tag=` for a tag and `branch=` for a branch."""
    BRANCH_NOT_FOUND = "branch-not-found"
    """The branch of the session or job was deleted. Create the branch again, or use another one."""
    TAG_NOT_FOUND = "tag-not-found"
    """A kind of icechunk, which Frazil never raises."""
    REPOSITORY_NOT_FOUND = "repository-not-found"
    """There is no repository in this storage. Correct the place, or call `Repository.create`."""
    MANIFEST_INFO_NOT_FOUND = "manifest-info-not-found"
    """A snapshot refers to a manifest that it does not list. The repository is damaged:
    `Repository.upkeep.verify` shows what is lost."""

    # already exists
    NODE_ALREADY_EXISTS = "node-already-exists"
    """There is an array where a group should be, or the reverse. Delete it first."""
    BRANCH_ALREADY_EXISTS = "branch-already-exists"
    """The branch exists. Use another name, or `reset_branch`."""
    TAG_ALREADY_EXISTS = "tag-already-exists"
    """The tag exists, and tags cannot be moved. Use another name."""
    TAG_PREVIOUSLY_DELETED = "tag-previously-deleted"
    """A tag with this name was deleted. Use another name."""
    MOVE_WONT_OVERWRITE = "move-wont-overwrite"
    """There is a node at the target of a move. Delete it first, or move elsewhere."""

    # read only
    READ_ONLY_SESSION = "read-only-session"
    """The session is read-only. Open one with `Repository.writable_session`."""
    READ_ONLY_STORE = "read-only-store"
    """The session of the store is read-only, or has committed. Open a writable session."""
    READ_ONLY_STORAGE = "read-only-storage"
    """The storage is read-only (HTTP, redirects, weak consistency). Open the repository in a writable
    storage."""
    READ_ONLY_REPOSITORY = "read-only-repository"
    """The owner set the status of the repository to read-only or offline. The owner calls `set_status`."""

    # invalid input
    INVALID_KEY = "invalid-key"
    """Not a key of zarr, or an unknown name in an argument. Correct it."""
    INVALID_CHUNK_INDEX = "invalid-chunk-index"
    """Coordinates outside of the grid of an array. Correct them."""
    ZERO_LENGTH_CHUNK = "zero-length-chunk"
    """A chunk without bytes. Write at least one byte, or delete the chunk."""
    INVALID_MANIFEST_SPLIT_INDEX = "invalid-manifest-split-index"
    """A manifest split size that is not possible. Correct the configuration."""
    INVALID_REF_TYPE = "invalid-ref-type"
    """A kind of icechunk, which Frazil never raises."""
    INVALID_REF_NAME = "invalid-ref-name"
    """A name that a branch or tag cannot have. Use another name."""
    INVALID_SNAPSHOT_ID = "invalid-snapshot-id"
    """A text that is not the id of a snapshot, or that begins several ids. Give the whole id, or more of its
    first characters."""
    INVALID_PATH = "invalid-path"
    """A path with empty, `.` or `..` segments, or without a leading `/` where one is required. Correct the
    path."""
    BAD_KEY_PREFIX = "bad-key-prefix"
    """A key that a storage cannot have. Correct the key."""
    BAD_METADATA = "bad-metadata"
    """Metadata that JSON cannot hold, or an invalid `zarr.json`. Convert the value."""
    BAD_PREFIX = "bad-prefix"
    """A kind of icechunk, which Frazil never raises."""
    NOT_AN_ARRAY = "not-an-array"
    """A group where an array is expected. Name an array."""
    NOT_A_GROUP = "not-a-group"
    """An array where a group is expected. Name a group."""
    INVALID_BYTE_RANGE = "invalid-byte-range"
    """A range that ends before it begins. Correct the range."""
    INVALID_COMMIT_CONFIGURATION = "invalid-commit-configuration"
    """Options of a commit, rebase or solver that are not possible. Correct them."""
    INVALID_ARRAY_METADATA = "invalid-array-metadata"
    """Types, shapes or dimensions that do not fit. Correct them."""
    INVALID_FEATURE_FLAG = "invalid-feature-flag"
    """An unknown feature flag. Correct the name."""
    INVALID_VIRTUAL_REF = "invalid-virtual-ref"
    """An invalid location, length or checksum of a virtual chunk. Correct it."""
    INVALID_CREDENTIALS = "invalid-credentials"
    """Contradicting or incomplete credentials, or `get_credentials` failed. Give one complete set."""
    NO_CONTAINER_FOR_VIRTUAL_CHUNK = "no-container-for-virtual-chunk"
    """No virtual chunk container has this location. Add a `VirtualChunkContainer`."""
    UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER = "unauthorized-virtual-chunk-container"
    """The container is not authorised. Name it in `authorize_virtual_chunk_access`."""
    EMPTY_PREFIX_CREATION = "empty-prefix-creation"
    """A new repository without a prefix in a bucket. Give a prefix."""
    PARENT_DIRECTORY_NOT_CLEAN = "parent-directory-not-clean"
    """There is a repository, or another file, where a new one should be. Open it, or use another place."""
    BAD_SNAPSHOT_CHAIN_FOR_DIFF = "bad-snapshot-chain-for-diff"
    """A kind of icechunk, which Frazil never raises."""
    BAD_SOURCE = "bad-source"  # Frazil only
    """Files that cannot be one dataset. Read the report in the message."""
    INVALID_ARGUMENT = "invalid-argument"  # Frazil only
    """The value of an argument or option is out of its range, or names nothing that exists. Use a value that
    the message allows."""
    UNKNOWN_CHOICE = "unknown-choice"  # Frazil only
    """The word of an argument or option is not one of its choices, for example of `mode` or `how`. Use one of
    the choices in the message."""
    UNSUPPORTED_ARRAY = "unsupported-array"  # Frazil only
    """The operation is not defined for this array: its dtype, its dimensions or its coordinates; or no
    installed package reads its data type or a codec. See the message; choose other arrays."""
    CONFLICTING_ARGUMENTS = "conflicting-arguments"  # Frazil only
    """Two arguments or options exclude one another. Leave one of them out."""

    # session and repository state
    COMMIT_NOT_ALLOWED = "commit-not-allowed"
    """The session is read-only, is a fork, or has committed; tasks of a shared job have no result. Open a
    writable session; run the tasks that the message names."""
    MERGE_NOT_ALLOWED = "merge-not-allowed"
    """The fork belongs to another session or snapshot, or contains discarded changes. Fork again."""
    CANNOT_FORK_READ_ONLY_SESSION = "cannot-fork-read-only-session"
    """A read-only session was forked. Pickle it instead."""
    REARRANGE_SESSION_ONLY = "rearrange-session-only"
    """Writing in a session that can only move nodes, or amending a commit that moved nodes. Open the other
    kind of session."""
    NON_REARRANGE_SESSION = "non-rearrange-session"
    """Moving nodes in a writable session. Use `Repository.rearrange_session`."""
    MOVE_INTO_SELF_OR_DESCENDANT = "move-into-self-or-descendant"
    """A node cannot be moved below itself. Move it elsewhere."""
    MOVE_DESTINATION_PARENT_MISSING = "move-destination-parent-missing"
    """The group at the target of a move does not exist. Create and commit it first."""
    MOVE_DESTINATION_PARENT_NOT_GROUP = "move-destination-parent-not-group"
    """The parent at the target of a move is an array. Move it elsewhere."""
    NO_CHANGES_TO_COMMIT = "no-changes-to-commit"
    """The session has no changes. Write something, or pass `allow_empty=True`."""
    NO_AMEND_FOR_INITIAL_COMMIT = "no-amend-for-initial-commit"
    """The first snapshot cannot be replaced. Make a new commit."""
    NOT_ON_BRANCH = "not-on-branch"
    """A result has no branch to be committed to. Give `to=Target(repo, branch)`."""
    NO_SNAPSHOT = "no-snapshot"
    """A kind of icechunk, which Frazil never raises."""
    CANNOT_DELETE_MAIN = "cannot-delete-main"
    """Every repository has the branch `main`."""
    UNCOMMITTED_CHANGES = "uncommitted-changes"
    """A kind of icechunk, which Frazil never raises."""
    MERGE_FAILED = "merge-failed"
    """Two forks or detached snapshots changed the same chunk or node. Let each task write its own chunks."""
    NOT_ALLOWED = "not-allowed"
    """An argument or option that is not possible here. See the message."""
    UNIMPLEMENTED = "unimplemented"
    """Zarr version 2, partial writes, and other things that Frazil does not do. See the message."""
    REBASE_TX_LOG_PRUNED = "rebase-tx-log-pruned"
    """The transaction log of a commit was deleted, so its changes are not known. Repeat the work in a new
    session."""
    FEATURE_FLAG_DISABLED = "feature-flag-disabled"
    """The owner disabled this feature. The owner enables it with `Repository.set_feature_flag`."""
    TAG_ERROR = "tag-error"
    """A kind of icechunk, which Frazil never raises."""
    INVALID_REPOSITORY_MIGRATION = "invalid-repository-migration"
    """The repository has the new spec version already."""
    BRANCH_PROTECTED = "branch-protected"  # Frazil only
    """An update breaks the protection of a branch. See the message, and history
    (docs/history.md#protected-branches)."""
    CURSOR_LOST = "cursor-lost"  # Frazil only
    """The ops log does not reach back to the cursor of a watch. Compare the branch, and watch it without a
    cursor."""
    CANNOT_UNDO = "cannot-undo"  # Frazil only
    """An update cannot be undone or made again: by its kind, or because a snapshot or a state was expired or
    collected. See the message (docs/history.md#undo-and-redo)."""
    SESSION_EXPIRED = "session-expired"  # Frazil only
    """The session is older than its `session_lifetime`. Write again in a new session."""
    GARBAGE_COLLECTED = "garbage-collected"  # Frazil only
    """Garbage collection deleted chunks of the session. Write again in a new session."""
    GARBAGE_COLLECTION_RUNNING = "garbage-collection-running"  # Frazil only
    """A garbage collection is running that may delete chunks of the session. Commit again when it has ended.
    """

    # storage and environment
    OBJECT_NOT_FOUND = "object-not-found"
    """An object of the repository is missing. The repository is damaged, or garbage collection was too young.
    """
    OBJECT_STORE = "object-store"
    """Any other answer of the storage. See the message, which has the words of the storage."""
    IO = "io"
    """Any other error of the local file system. See the message."""
    STORAGE_CONFIG = "storage-config"
    """Invalid options: endpoint, region, `allow_http`, names. Correct them."""
    CANNOT_PARSE_URL = "cannot-parse-url"
    """An invalid URL. Correct it."""
    BAD_REDIRECT = "bad-redirect"
    """A redirect that leads to no storage. Correct the address."""
    SEMAPHORE_ACQUIRE = "semaphore-acquire"
    """Another process holds the lock of a file. Continue or end that process."""
    THROTTLED = "throttled"
    """Too many requests. Try again later."""
    STORAGE_OTHER = "storage-other"
    """Tigris without a region. Give the region."""
    VIRTUAL_CHUNK_FETCH = "virtual-chunk-fetch"
    """The object of a virtual chunk cannot be read. See the message."""
    VIRTUAL_CHUNK_MODIFIED = "virtual-chunk-modified"
    """The object of a virtual chunk changed since it was indexed. Restore it, write the references again, or
    allow changes with `on_changed="warn"`."""
    INVALID_OBJECT_SIZE = "invalid-object-size"
    """An object is shorter than a reference to it says. The repository is damaged."""
    CONDITIONS_NOT_SUPPORTED = "conditions-not-supported"  # Frazil only
    """The server ignores conditional writes, so commits would be lost. Use another storage."""
    FORKED_PROCESS = "forked-process"  # Frazil only
    """A storage was used before `os.fork()`. Use the start methods `spawn` or `forkserver`."""
    CREDENTIALS_MISSING = "credentials-missing"  # Frazil only
    """No credentials were given, and the machine has none. Give credentials, or `anonymous=True` for public
    data."""
    CREDENTIALS_REFUSED = "credentials-refused"  # Frazil only
    """Wrong or expired credentials, or a wrong clock. Correct or renew them."""
    STORAGE_PERMISSION = "storage-permission"  # Frazil only
    """The credentials, or the user of this process, may not do this. Ask the owner of the bucket or
    directory."""
    BUCKET_NOT_FOUND = "bucket-not-found"  # Frazil only
    """The bucket or container does not exist. Create it, or correct its name."""
    STORAGE_UNREACHABLE = "storage-unreachable"  # Frazil only
    """DNS, refused connection, TLS. Check the endpoint and the network."""
    STORAGE_TIMEOUT = "storage-timeout"  # Frazil only
    """No answer in time. Try again, or raise the timeouts."""
    STORAGE_FULL = "storage-full"  # Frazil only
    """No space or quota left. Free some."""
    PROCESS_LIMIT = "process-limit"  # Frazil only
    """The process cannot start another thread, or open another file. Raise its limits (`ulimit -u`,
    `ulimit -n`, those of its container), or let it do less at the same time."""
    OUTCOME_UNKNOWN = "outcome-unknown"  # Frazil only
    """The answer to a change was lost, and nothing tells whether it took effect. Find out
    (docs/handle-errors.md#when-the-outcome-is-unknown) before you repeat it."""

    # format
    SERIALIZATION = "serialization"
    """A file would be larger than the format allows. Split manifests."""
    DESERIALIZATION = "deserialization"
    """A damaged file. Restore the file that the message names."""
    CONFIG_DESERIALIZATION = "config-deserialization"
    """A damaged or invalid configuration. Correct the configuration."""
    INVALID_FILE_FORMAT = "invalid-file-format"
    """A file that is not of this format. Restore the file that the message names."""
    UNSUPPORTED_SPEC_VERSION = "unsupported-spec-version"
    """A newer or older format. Update Frazil, or upgrade (docs/upgrading.md) the repository."""
    UNSUPPORTED_OPERATION_FOR_VERSION = "unsupported-operation-for-version"
    """The operation does not exist in this spec version. Upgrade (docs/upgrading.md) the repository."""
    SNAPSHOT_TIMESTAMP = "snapshot-timestamp"
    """A kind of icechunk, which Frazil never raises."""
    DUPLICATE_SNAPSHOT_ID = "duplicate-snapshot-id"
    """Two snapshots have the same id. The repository is damaged."""

    # internal
    CONCURRENCY = "concurrency"
    """Spark could not run the tasks. See the message, which begins with the cause that Spark gives."""
    FLUSH = "flush"
    """A kind of icechunk, which Frazil never raises."""
    PARTIAL_VALUES_PANIC = "partial-values-panic"
    """A kind of icechunk, which Frazil never raises."""
    CONFLICTING_PATH_NOT_FOUND = "conflicting-path-not-found"
    """A kind of icechunk, which Frazil never raises."""
    INCONSISTENT_MANIFESTS = "inconsistent-manifests"
    """A kind of icechunk, which Frazil never raises."""
    POISON_LOCK = "poison-lock"
    """A kind of icechunk, which Frazil never raises."""
    PICKLE = "pickle"
    """A kind of icechunk, which Frazil never raises."""
    UNKNOWN = "unknown"
    """An error without a kind, or a defect. Report it if the class is `InternalError`."""

    # data
    VALIDATION_FAILED = "validation-failed"  # Frazil only
    """Data break rules. Look at `report`."""
    DATA_MISMATCH = "data-mismatch"  # Frazil only
    """The data to write do not fit what is stored. See the message, which names the variable and the
    difference."""

    # trust
    UNTRUSTED_VIRTUAL_CHUNK_CONTAINER = "untrusted-virtual-chunk-container"  # Frazil only
    """The container of the repository sets a server, a file or an option that could harm its readers. If you
    trust it, give a `VirtualChunkContainer` of your own in `config=`."""
    SECRET_IN_CONFIG = "secret-in-config"  # Frazil only
    """The configuration may hold a secret, which every reader of the repository could read. Give credentials
    in `authorize_virtual_chunk_access`, or `store_secrets=True`."""
    LINK_OUTSIDE = "link-outside"  # Frazil only
    """A symbolic link leads out of the directory of a storage or container. Move the file, or give the
    directory that it is in."""
    REDIRECT_REFUSED = "redirect-refused"  # Frazil only
    """A web server redirects to another server. Use the address of that server, or set the option
    `follow_redirects`."""

    # reads
    STALE_READ = "stale-read"  # Frazil only
    """Another writer changed what the session or job has read (docs/conflicts.md#stale-reads). Read and write
    again in a new session."""

    # installation
    MISSING_EXTRA = "missing-extra"  # Frazil only
    """A package is not installed that an optional part of Frazil needs. Install the extra that the message
    names."""

    # tasks
    TASK_FAILED = "task-failed"  # Frazil only
    """A function that a job calls raised an error that is none of Frazil's. Correct the function: the message
    has its error and its line."""
    WORKER_LOST = "worker-lost"  # Frazil only
    """The process of a task died: memory, a crash in a native library, `os._exit`. See the message: less
    memory for each task (`max_mem`), or fewer tasks at a time."""

    # chunks
    UNDECODABLE_CHUNK = "undecodable-chunk"  # Frazil only
    """The codecs of an array refuse the bytes of a chunk. Restore the object that the message names, or write
    the chunk again."""
