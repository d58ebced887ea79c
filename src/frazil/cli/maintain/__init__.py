"""Commands that look after a repository: expiration, collection, compaction, manifests, upgrade."""
