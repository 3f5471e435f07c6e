# The compile rule for .mlir files in a directory that has not enabled MLIR: an error.

cmake_minimum_required(VERSION 3.25)
message(FATAL_ERROR
  "${SOURCE}: MLIR is not enabled in the directory of this target.\n"
  "Write in its CMakeLists.txt, or in that of the project:\n"
  "  find_package(MLIROffload REQUIRED)\n  enable_language(MLIR)")
