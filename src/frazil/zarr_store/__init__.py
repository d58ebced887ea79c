"""A zarr Store over a session."""


class IcechunkStore:
    """Placeholder until the room is furnished."""

    def __init__(self, session: object) -> None:
        self.session = session


__all__ = ["IcechunkStore"]
