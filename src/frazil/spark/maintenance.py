"""Maintenance by tasks, under the name of the package for Spark: see `frazil.pipeline.maintenance`."""

from frazil.pipeline.maintenance import garbage_collect, rewrite_manifests, storage_stats, verify

__all__ = ["garbage_collect", "rewrite_manifests", "storage_stats", "verify"]
