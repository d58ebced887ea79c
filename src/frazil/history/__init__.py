"""Questions about the history of a repository, and the undoing of its updates."""
