# Find mlir-offload and query its version. CMake includes this file when a project enables MLIR.

if(NOT CMAKE_GENERATOR MATCHES "Ninja|Makefiles")
  message(FATAL_ERROR
    "The language MLIR works with the Ninja and Makefiles generators, not with \"${CMAKE_GENERATOR}\".")
endif()

# The order is the same as for C: cache or toolchain file, environment, PATH. The value may contain options, such
# as "mlir-offload --llvm=19".
set(_mlir_options ${CMAKE_MLIR_COMPILER})
if(NOT _mlir_options)
  separate_arguments(_mlir_options NATIVE_COMMAND "$ENV{MLIROFFLOAD}")
endif()
if(NOT _mlir_options)
  set(_mlir_options mlir-offload)
endif()
list(POP_FRONT _mlir_options _mlir_compiler)
include("${CMAKE_CURRENT_LIST_DIR}/MLIROffloadLLVM.cmake")
mlir_offload_llvm_options("${_mlir_options}" _mlir_llvm)
list(APPEND _mlir_options ${_mlir_llvm})
list(JOIN _mlir_options " " _mlir_options)
if(_mlir_options)
  set(CMAKE_MLIR_COMPILER_ARG1 "${_mlir_options}" CACHE STRING "Options of every call of the MLIR compiler")
  mark_as_advanced(CMAKE_MLIR_COMPILER_ARG1)
endif()

# pip installs this file in PREFIX/lib/pythonX.Y/site-packages/mlir_offload/toolchain/cmake.
find_program(_mlir_path NAMES "${_mlir_compiler}"
  HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../../../../bin" NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
if(NOT _mlir_path)
  message(FATAL_ERROR
    "No MLIR compiler: there is no program \"${_mlir_compiler}\".\n"
    "Install mlir-offload so that it is on PATH, or name it: -DCMAKE_MLIR_COMPILER=/path/to/mlir-offload, "
    "or the environment variable MLIROFFLOAD.")
endif()
set(CMAKE_MLIR_COMPILER "${_mlir_path}")
set(CMAKE_MLIR_COMPILER "${_mlir_path}" CACHE FILEPATH "MLIR compiler" FORCE)
mark_as_advanced(CMAKE_MLIR_COMPILER)

if(NOT CMAKE_MLIR_COMPILER_ID)
  execute_process(COMMAND "${CMAKE_MLIR_COMPILER}" --version
    OUTPUT_VARIABLE _mlir_printed ERROR_VARIABLE _mlir_printed RESULT_VARIABLE _mlir_status)
  if(NOT _mlir_printed MATCHES "^mlir-offload ([0-9][0-9.]*)")
    string(STRIP "${_mlir_printed}" _mlir_printed)
    if(_mlir_status EQUAL 0)
      string(REGEX REPLACE "\n.*" "" _mlir_printed "${_mlir_printed}")
    endif()
    message(FATAL_ERROR
      "The MLIR compiler\n  \"${CMAKE_MLIR_COMPILER}\"\nis not mlir-offload: "
      "with --version it ends with status ${_mlir_status} and prints\n  ${_mlir_printed}")
  endif()
  set(CMAKE_MLIR_COMPILER_ID MLIROffload)
  set(CMAKE_MLIR_COMPILER_VERSION "${CMAKE_MATCH_1}")
  message(STATUS "The MLIR compiler identification is mlir-offload ${CMAKE_MLIR_COMPILER_VERSION}")
endif()

# Find ar and ranlib, which a project without C does not do.
set(_CMAKE_PROCESSING_LANGUAGE MLIR)
include(CMakeFindBinUtils)
unset(_CMAKE_PROCESSING_LANGUAGE)

configure_file("${CMAKE_CURRENT_LIST_DIR}/CMakeMLIRCompiler.cmake.in"
  "${CMAKE_PLATFORM_INFO_DIR}/CMakeMLIRCompiler.cmake" @ONLY)

foreach(_mlir_name llvm options compiler path printed status)
  unset(_mlir_${_mlir_name})
endforeach()
unset(_mlir_name)
