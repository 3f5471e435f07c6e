"""From objects to programs: what clang-linker-wrapper is given, and what came of it."""
