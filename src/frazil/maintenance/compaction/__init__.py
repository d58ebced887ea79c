"""Compaction: packs with few live bytes, and runs of small files, become full packs.

`design/044-compaction.md` describes the decisions.
"""
