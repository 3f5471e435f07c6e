# Compile and link a program with a kernel, so that a missing tool is reported at configure time.

separate_arguments(_mlir_command NATIVE_COMMAND "${CMAKE_MLIR_COMPILER_ARG1} ${CMAKE_MLIR_FLAGS}")
list(PREPEND _mlir_command "${CMAKE_MLIR_COMPILER}")
if(CMAKE_MLIR_COMPILER_TARGET)
  list(APPEND _mlir_command "${CMAKE_MLIR_COMPILE_OPTIONS_TARGET}${CMAKE_MLIR_COMPILER_TARGET}")
endif()
if(CMAKE_SYSROOT)
  list(APPEND _mlir_command "${CMAKE_MLIR_COMPILE_OPTIONS_SYSROOT}${CMAKE_SYSROOT}")
endif()
if(MLIR_OFFLOAD_ARCHITECTURES)
  list(JOIN MLIR_OFFLOAD_ARCHITECTURES "," _mlir_archs)
  list(APPEND _mlir_command "--offload-arch=${_mlir_archs}")
endif()
# A cross compiler without target libraries cannot link.
if(CMAKE_TRY_COMPILE_TARGET_TYPE STREQUAL STATIC_LIBRARY)
  list(APPEND _mlir_command -c)
endif()

# Find the directories of the runtime libraries, including those for kernels on the CPU. Otherwise an installed
# program would have an empty entry in its RUNPATH, which means the current directory.
macro(_mlir_find_libraries)
  execute_process(
    COMMAND ${_mlir_command} --offload-arch=host "-###" "${CMAKE_CURRENT_LIST_DIR}/CMakeTestMLIRCompiler.mlir"
    OUTPUT_VARIABLE _mlir_steps ERROR_VARIABLE _mlir_steps)
  separate_arguments(_mlir_steps UNIX_COMMAND "${_mlir_steps}")
  list(FILTER _mlir_steps INCLUDE REGEX "^-Wl,-rpath,")
  list(REMOVE_DUPLICATES _mlir_steps)
  list(TRANSFORM _mlir_steps REPLACE "^-Wl,-rpath," "" OUTPUT_VARIABLE CMAKE_MLIR_IMPLICIT_LINK_DIRECTORIES)
endmacro()

if(CMAKE_MLIR_COMPILER_FORCED)
  set(CMAKE_MLIR_COMPILER_WORKS TRUE)
  _mlir_find_libraries()
  unset(_mlir_archs)
  unset(_mlir_command)
  unset(_mlir_steps)
  return()
endif()

set(_mlir_program "${CMAKE_BINARY_DIR}/CMakeFiles/CMakeTestMLIRCompiler")
message(CHECK_START "Check for working MLIR compiler: ${CMAKE_MLIR_COMPILER}")
execute_process(
  COMMAND ${_mlir_command} "${CMAKE_CURRENT_LIST_DIR}/CMakeTestMLIRCompiler.mlir" -o "${_mlir_program}"
  OUTPUT_VARIABLE _mlir_printed ERROR_VARIABLE _mlir_printed RESULT_VARIABLE _mlir_status)
string(STRIP "${_mlir_printed}" _mlir_printed)
if(NOT _mlir_status EQUAL 0)
  message(CHECK_FAIL "broken")
  list(JOIN _mlir_command " " _mlir_command)
  string(REPLACE "\n" "\n  " _mlir_printed "${_mlir_printed}")
  message(FATAL_ERROR
    "The MLIR compiler\n  ${_mlir_command}\n"
    "cannot make a program with a kernel (status ${_mlir_status}). It says\n  ${_mlir_printed}")
endif()
message(CHECK_PASS "works")
set(CMAKE_MLIR_COMPILER_WORKS TRUE)

# Cache and print the architectures that the driver selects by default, for the whole build tree.
if(NOT DEFINED MLIR_OFFLOAD_ARCHITECTURES AND _mlir_printed MATCHES "note: ([^;(\n]*)[^(\n]*[(]--offload-arch=([^)\n]+)[)]")
  string(STRIP "${CMAKE_MATCH_1}" _mlir_reason)
  string(REPLACE "," ";" _mlir_archs "${CMAKE_MATCH_2}")
  set(MLIR_OFFLOAD_ARCHITECTURES "${_mlir_archs}" CACHE STRING "Devices to compile MLIR for: sm_NN, host, native")
  message(STATUS "MLIR_OFFLOAD_ARCHITECTURES: ${_mlir_archs} (${_mlir_reason})")
endif()

_mlir_find_libraries()

# The fifth byte of an ELF file is its class: 1 for 32 bits, 2 for 64 bits.
file(READ "${_mlir_program}" _mlir_class OFFSET 4 LIMIT 1 HEX)
math(EXPR CMAKE_MLIR_SIZEOF_DATA_PTR "0x${_mlir_class} * 4")
file(REMOVE "${_mlir_program}")

configure_file("${CMAKE_CURRENT_LIST_DIR}/CMakeMLIRCompiler.cmake.in"
  "${CMAKE_PLATFORM_INFO_DIR}/CMakeMLIRCompiler.cmake" @ONLY)
include("${CMAKE_PLATFORM_INFO_DIR}/CMakeMLIRCompiler.cmake")

foreach(_mlir_name command archs class printed program reason status steps)
  unset(_mlir_${_mlir_name})
endforeach()
unset(_mlir_name)
