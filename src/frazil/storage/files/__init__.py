"""How a local storage reads and writes files, and why a call to the operating system fails."""
