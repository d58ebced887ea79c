"""Maintenance of a repository: garbage collection, expiration, statistics, compaction and verification."""
