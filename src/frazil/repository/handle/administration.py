"""A repository as a whole: its saved configuration, metadata, status and features."""

from __future__ import annotations

from functools import partial
from typing import Any

from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import presentation, repo_changes
from frazil.repository.catalog.version_info import FeatureFlag, RepoStatus
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.opening import saved_config
from frazil.repository.settings.config_secrets import document_to_save
from frazil.repository.settings.feature_flags import FLAGS, flag_named, setting_of


class Administration(RepositoryBase):
    """Methods of ``Repository``."""

    def save_config(self, *, store_secrets: bool = False) -> None:
        """Save the configuration in the repository: it is what others open it with.

        Raises ``InvalidInputError`` (``secret-in-config``) if an option or a header of a virtual chunk
        container may hold a secret that is not saved already, since everybody who can read the repository
        can read it. With ``store_secrets`` it is saved all the same.
        """
        document = document_to_save(
            self._context.config, store_secrets, partial(saved_config, self._context.storage)
        )
        self._context.catalog.update_repo_info(repo_changes.save_config(document))

    def get_metadata(self) -> dict[str, Any]:
        """Metadata of the repository as a whole."""
        return dict(self._info_v2().metadata)

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the repository's metadata."""
        self._context.catalog.update_repo_info(repo_changes.set_metadata(lambda _: dict(metadata)))

    def update_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Add to the repository's metadata; what it is then."""
        info = self._context.catalog.update_repo_info(
            repo_changes.set_metadata(lambda current: {**current, **metadata})
        )
        return dict(info.metadata)

    @property
    def metadata(self) -> dict[str, Any]:
        return self.get_metadata()

    def get_status(self) -> RepoStatus:
        """Whether the repository takes changes."""
        return presentation.repo_status(self._info_v2().status)

    @property
    def status(self) -> RepoStatus:
        return self.get_status()

    def set_status(self, status: RepoStatus) -> None:
        """Open the repository for changes, or close it; a closed one can still be read, and opened again."""
        self._context.catalog.update_repo_info(
            repo_changes.set_status(
                presentation.stored_availability(status.availability), status.limited_availability_reason
            )
        )

    def feature_flags(self) -> list[FeatureFlag]:
        """All features that can be turned off."""
        info = self._info_v2()
        return [
            FeatureFlag(flag.id, flag.name, flag.default_enabled, setting_of(info, flag)) for flag in FLAGS
        ]

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        """The features that are on, by a setting of the repository or by default."""
        return [flag for flag in self.feature_flags() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        """The features that are off, by a setting of the repository or by default."""
        return [flag for flag in self.feature_flags() if not flag.enabled]

    def set_feature_flag(self, name: str, setting: bool | None) -> None:
        """Turn a feature on or off; None: as by default."""
        self._context.require_version_2()
        self._context.catalog.update_repo_info(
            repo_changes.set_flag(flag_named(name), None if setting is None else bool(setting))
        )

    def default_commit_metadata(self) -> dict[str, Any]:
        """The metadata that commits of new sessions get, from ``set_default_commit_metadata``."""
        return dict(self._default_metadata)

    def set_default_commit_metadata(self, metadata: dict[str, Any]) -> None:
        """Metadata for every commit of sessions that are opened from now on with this handle."""
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
