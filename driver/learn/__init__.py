"""The verb `learn`: rows of a build of LLVM, beside the nearest release, and as a patch to the tables."""
