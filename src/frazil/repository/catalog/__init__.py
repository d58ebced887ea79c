"""The catalog of a repository: refs, snapshots, history and leases, for both spec versions."""
