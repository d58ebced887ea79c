"""The methods of ``Repository`` for the repository as a whole: configuration, metadata, status, features."""

from __future__ import annotations

from functools import partial
from typing import Any

from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import presentation, repo_changes
from frazil.repository.catalog.repo_update import OPS_START
from frazil.repository.catalog.version_info import FeatureFlag, RepoStatus
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.opening import saved_config
from frazil.repository.history.repo_state import OWN_PREFIX, UNDO
from frazil.repository.settings.config_document import document_to_save
from frazil.repository.settings.resolved import FLAGS, flag_named, setting_of


class Administration(RepositoryBase):
    """Methods of ``Repository`` for its saved configuration, metadata, status and features."""

    def save_config(self, *, store_secrets: bool = False) -> None:
        """Save the configuration of this handle in the repository.

        Handles that are opened later use the saved configuration, unless their caller overrides it.

        Args:
            store_secrets: Whether to save options and headers of virtual chunk containers that may hold a
                secret. Everybody who can read the repository can read them.

        Raises:
            InvalidInputError: ``secret-in-config`` if the configuration may hold a secret that is not saved
                already, without ``store_secrets``.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.

        Examples:
            >>> import frazil
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> repo.reconfigure(frazil.RepositoryConfig(inline_chunk_threshold_bytes=1024))
            >>> repo.save_config()
            >>> frazil.Repository.open(storage).config.inline_chunk_threshold_bytes
            1024
        """
        document = document_to_save(
            self._context.config, store_secrets, partial(saved_config, self._context.storage)
        )
        self._context.catalog.update_repo_info(repo_changes.save_config(document))

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of the repository as a whole.

        The items in which Frazil records undos and the start of the ops log are left out.

        Returns:
            A dictionary of values that JSON can hold.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.get_metadata()
            {}
        """
        return _shown(self._info_v2().metadata)

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the metadata of the repository.

        The items of Frazil stay, unless ``metadata`` has other ones: their names begin with ``frazil.``. They
        are the protections of branches, and records of undos, jobs, streaming queries and copies.

        Args:
            metadata: The new metadata: a dictionary that JSON can hold.

        Raises:
            InvalidMetadataError: If JSON cannot hold the metadata.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.set_metadata({"owner": "climate team"})
            >>> repo.metadata
            {'owner': 'climate team'}
        """

        def replace_items(current: dict[str, Any]) -> dict[str, Any]:
            own = {name: value for name, value in current.items() if name.startswith(OWN_PREFIX)}
            return {**own, **metadata}

        self._context.catalog.update_repo_info(repo_changes.set_metadata(replace_items))

    def update_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Add items to the metadata of the repository, and replace those of the same name.

        Args:
            metadata: The items: a dictionary that JSON can hold.

        Returns:
            The whole metadata after the update.

        Raises:
            InvalidMetadataError: If JSON cannot hold the metadata.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.set_metadata({"owner": "climate team"})
            >>> repo.update_metadata({"stage": "test"})
            {'owner': 'climate team', 'stage': 'test'}
        """
        info = self._context.catalog.update_repo_info(
            repo_changes.set_metadata(lambda current: {**current, **metadata})
        )
        return _shown(info.metadata)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the repository as a whole, as ``get_metadata`` returns them."""
        return self.get_metadata()

    def get_status(self) -> RepoStatus:
        """Return whether the repository accepts changes, since when, and why not.

        Returns:
            The status.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Specification: *RepoStatus*.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.get_status().availability.name
            'online'
        """
        return presentation.repo_status(self._info_v2().status)

    @property
    def status(self) -> RepoStatus:
        """Whether the repository accepts changes, as ``get_status`` returns it."""
        return self.get_status()

    def set_status(self, status: RepoStatus) -> None:
        """Make the repository read-only, or writable again.

        A read-only repository can be read, and this method can make it writable again. All other changes
        raise ``ReadOnlyError`` (``read-only-repository``).

        Args:
            status: The new status. The repository records the time of the change, and ignores ``set_at``.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Specification: *RepoStatus*.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> closed = frazil.RepoStatus(
            ...     frazil.RepoAvailability.read_only, limited_availability_reason="archived"
            ... )
            >>> repo.set_status(closed)
            >>> repo.status.limited_availability_reason
            'archived'
        """
        self._context.catalog.update_repo_info(
            repo_changes.set_status(
                presentation.stored_availability(status.availability), status.limited_availability_reason
            )
        )

    def feature_flags(self) -> list[FeatureFlag]:
        """Return all features that can be turned off.

        Returns:
            The features, with their defaults and settings.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> [flag.name for flag in repo.feature_flags()]
            ['create_tag', 'delete_tag', 'move_node']
        """
        info = self._info_v2()
        return [
            FeatureFlag(flag.id, flag.name, flag.default_enabled, setting_of(info, flag)) for flag in FLAGS
        ]

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the features that are on, by a setting of the repository or by default.

        Returns:
            The features, with their defaults and settings.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.set_feature_flag("delete_tag", False)
            >>> [flag.name for flag in repo.enabled_feature_flags()]
            ['create_tag', 'move_node']
        """
        return [flag for flag in self.feature_flags() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the features that are off, by a setting of the repository or by default.

        Returns:
            The features, with their defaults and settings.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.set_feature_flag("delete_tag", False)
            >>> [flag.name for flag in repo.disabled_feature_flags()]
            ['delete_tag']
        """
        return [flag for flag in self.feature_flags() if not flag.enabled]

    def set_feature_flag(self, name: str, setting: bool | None) -> None:
        """Turn a feature on or off, or reset it to its default.

        Args:
            name: The feature: ``create_tag``, ``delete_tag`` or ``move_node``.
            setting: True for on, False for off, None for the default.

        Raises:
            InvalidInputError: ``invalid-feature-flag`` if there is no feature of this name.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.set_feature_flag("create_tag", False)
            >>> repo.create_tag("v1", "main")
            Traceback (most recent call last):
            ...
            frazil.errors.SessionStateError: the feature `create_tag` is disabled in this repository...
        """
        self._context.require_version_2()
        self._context.catalog.update_repo_info(
            repo_changes.set_flag(flag_named(name), None if setting is None else bool(setting))
        )

    def default_commit_metadata(self) -> dict[str, Any]:
        """Return the metadata that all commits of new sessions of this handle get.

        Returns:
            A copy of the metadata from ``set_default_commit_metadata``.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.default_commit_metadata()
            {}
        """
        return dict(self._default_metadata)

    def set_default_commit_metadata(self, metadata: dict[str, Any]) -> None:
        """Set the metadata that all commits get, in sessions that this handle opens from now on.

        The metadata of a commit override items of the same name.

        Args:
            metadata: The metadata: a dictionary that JSON can hold.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.set_default_commit_metadata({"author": "Ada"})
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> repo.lookup_snapshot(repo.lookup_branch("main")).metadata
            {'author': 'Ada'}
        """
        self._default_metadata = dict(metadata)

    save_config_async = awaitable(save_config)
    get_metadata_async = awaitable(get_metadata)
    set_metadata_async = awaitable(set_metadata)
    update_metadata_async = awaitable(update_metadata)
    get_status_async = awaitable(get_status)
    set_status_async = awaitable(set_status)
    feature_flags_async = awaitable(feature_flags)
    enabled_feature_flags_async = awaitable(enabled_feature_flags)
    disabled_feature_flags_async = awaitable(disabled_feature_flags)
    set_feature_flag_async = awaitable(set_feature_flag)


def _shown(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata without the items that only Frazil uses."""
    return {name: value for name, value in metadata.items() if name not in (UNDO, OPS_START)}
