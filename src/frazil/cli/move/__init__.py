"""Commands that move data into other storages and other formats."""
