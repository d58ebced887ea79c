"""Sessions, which read one version of a repository, or change it and commit the changes."""
