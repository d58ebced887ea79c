"""The public handle ``Repository``: opening, refs, history, integration, recovery and upkeep."""
