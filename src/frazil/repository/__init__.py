"""Transactions: the only room that both decides and does I/O."""

from frazil.repository.repository import Repository

__all__ = ["Repository"]
