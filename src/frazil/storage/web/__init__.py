"""The client of web servers."""
