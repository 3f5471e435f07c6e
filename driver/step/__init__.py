"""The steps of a compilation: each a command, run here, in a process of its own or under a launcher."""
