"""Files of this machine: how a local storage reads and writes them, and why it cannot."""
