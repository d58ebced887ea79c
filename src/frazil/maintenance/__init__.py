"""Maintenance of a repository: garbage collection, expiration, statistics, rewrites and verification.

Each operation consists of a plan, pure pieces of work that any worker can do, and a finish.
"""
