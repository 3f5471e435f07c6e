"""What the tools of an unknown build of LLVM write and read, found out by small probes, one family in a module."""
