"""Upkeep of a repository. Each kind is a plan, a pure piece of work that any worker can do, and a finish."""
