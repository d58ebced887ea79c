"""Maintenance with tasks, under its name of the room of Spark: see `frazil.pipeline.maintenance`."""

from frazil.pipeline.maintenance import garbage_collect, rewrite_manifests, storage_stats, verify

__all__ = ["garbage_collect", "rewrite_manifests", "storage_stats", "verify"]
