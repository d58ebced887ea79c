"""Sessions: a version of a repository to read, or a workspace to change and commit."""
