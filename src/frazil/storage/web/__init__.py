"""Requests to web servers: the client, addresses, answers, options, and why a request fails."""

from frazil.storage.web.client import WebClient

__all__ = ["WebClient"]
