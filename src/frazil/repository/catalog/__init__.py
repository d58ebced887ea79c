"""The catalog of a repository: refs, snapshots, history and leases, of both spec versions."""
