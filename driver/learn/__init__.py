"""The subcommand `learn`: print the rows of a build of LLVM next to the nearest release, and as a patch."""
