include(CMakeFindDependencyMacro)
find_dependency(MLIROffload)
enable_language(MLIR)
include("${CMAKE_CURRENT_LIST_DIR}/kernels-targets.cmake")
