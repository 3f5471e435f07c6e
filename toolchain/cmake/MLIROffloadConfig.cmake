# find_package(MLIROffload) makes MLIR a language that project() and enable_language() accept.
#
# `mlir-offload --cmake-dir` prints the directory of this file. A wheel also installs this file and the version file
# in PREFIX/share/cmake/MLIROffload, where CMake finds them if PREFIX/bin is on PATH.

set(_mlir_offload_dir "${CMAKE_CURRENT_LIST_DIR}")
if(NOT EXISTS "${_mlir_offload_dir}/CMakeMLIRInformation.cmake")
  execute_process(COMMAND "${CMAKE_CURRENT_LIST_DIR}/../../../bin/mlir-offload" --cmake-dir
    OUTPUT_VARIABLE _mlir_offload_dir ERROR_VARIABLE _mlir_offload_error
    RESULT_VARIABLE _mlir_offload_status OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT _mlir_offload_status EQUAL 0)
    set(MLIROffload_FOUND FALSE)
    set(MLIROffload_NOT_FOUND_MESSAGE
      "`mlir-offload --cmake-dir` fails (${_mlir_offload_status}): ${_mlir_offload_error}")
    return()
  endif()
endif()

if(NOT _mlir_offload_dir IN_LIST CMAKE_MODULE_PATH)
  list(APPEND CMAKE_MODULE_PATH "${_mlir_offload_dir}")
endif()

# mlir_offload.h, for C and C++ code that selects the stream or the device of kernels. It has no library, because
# mlir-offload links the runtime into each target with device code.
if(NOT TARGET MLIROffload::headers)
  get_filename_component(_mlir_offload_headers "${_mlir_offload_dir}/../../offload/runtime" ABSOLUTE)
  add_library(MLIROffload::headers INTERFACE IMPORTED)
  set_target_properties(MLIROffload::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_mlir_offload_headers}")
  unset(_mlir_offload_headers)
endif()
unset(_mlir_offload_dir)
