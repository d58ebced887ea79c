"""The client of web servers: requests, URLs, answers, options, and causes of failures."""

from frazil.storage.web.client import WebClient

__all__ = ["WebClient"]
