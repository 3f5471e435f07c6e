# find_package(MLIROffload) makes MLIR a language that project() and enable_language() accept.
# `mlir-offload --cmake-dir` prints where this file is.

if(NOT CMAKE_CURRENT_LIST_DIR IN_LIST CMAKE_MODULE_PATH)
  list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
endif()

# mlir_offload.h, for C and C++ that choose the stream or the device of kernels. There is no library
# to go with it: mlir-offload links the runtime into whatever holds device code.
if(NOT TARGET MLIROffload::headers)
  get_filename_component(_mlir_offload_headers "${CMAKE_CURRENT_LIST_DIR}/../../offload/runtime" ABSOLUTE)
  add_library(MLIROffload::headers INTERFACE IMPORTED)
  set_target_properties(MLIROffload::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_mlir_offload_headers}")
  unset(_mlir_offload_headers)
endif()
