# The rules that compile and link MLIR. CMake includes this file in each directory that enables MLIR.

set(CMAKE_MLIR_COMPILE_OPTIONS_PIC -fPIC)
set(CMAKE_MLIR_COMPILE_OPTIONS_PIE -fPIC)
set(CMAKE_MLIR_COMPILE_OPTIONS_TARGET --target=)
set(CMAKE_MLIR_COMPILE_OPTIONS_SYSROOT --sysroot=)
set(CMAKE_MLIR_VERBOSE_FLAG -v)

# Both generators read the dependency files of the compiler.
set(CMAKE_DEPFILE_FLAGS_MLIR "-MD -MT <DEP_TARGET> -MF <DEP_FILE>")
set(CMAKE_MLIR_DEPFILE_FORMAT gcc)
set(CMAKE_MLIR_DEPENDS_USE_COMPILER TRUE)

set(CMAKE_SHARED_LIBRARY_MLIR_FLAGS -fPIC)
set(CMAKE_SHARED_LIBRARY_CREATE_MLIR_FLAGS -shared)
set(CMAKE_SHARED_MODULE_CREATE_MLIR_FLAGS -shared)
set(CMAKE_SHARED_LIBRARY_SONAME_MLIR_FLAG -Wl,-soname,)
set(CMAKE_SHARED_LIBRARY_RUNTIME_MLIR_FLAG -Wl,-rpath,)
set(CMAKE_SHARED_LIBRARY_RUNTIME_MLIR_FLAG_SEP :)
set(CMAKE_SHARED_LIBRARY_RPATH_LINK_MLIR_FLAG -Wl,-rpath-link,)
set(CMAKE_EXECUTABLE_RUNTIME_MLIR_FLAG -Wl,-rpath,)
set(CMAKE_EXECUTABLE_RUNTIME_MLIR_FLAG_SEP :)
set(CMAKE_EXECUTABLE_RPATH_LINK_MLIR_FLAG -Wl,-rpath-link,)
set(CMAKE_EXE_EXPORTS_MLIR_FLAG -Wl,--export-dynamic)
set(CMAKE_MLIR_LINKER_WRAPPER_FLAG -Wl,)
set(CMAKE_MLIR_LINKER_WRAPPER_FLAG_SEP ,)
set(CMAKE_MLIR_RESPONSE_FILE_LINK_FLAG @)
# Flags for the values of CMAKE_LINKER_TYPE (CMake 3.29).
set(CMAKE_MLIR_USING_LINKER_MODE FLAG)
set(CMAKE_MLIR_USING_LINKER_SYSTEM "")
foreach(_mlir_name BFD GOLD LLD MOLD)
  string(TOLOWER "-fuse-ld=${_mlir_name}" CMAKE_MLIR_USING_LINKER_${_mlir_name})
endforeach()
# The rules below do not use this flag, but Ninja's response files for long command lines do.
set(CMAKE_INCLUDE_FLAG_MLIR -I)

string(APPEND CMAKE_MLIR_FLAGS_INIT " $ENV{MLIROFFLOADFLAGS}")
string(APPEND CMAKE_MLIR_FLAGS_DEBUG_INIT " -O0 -g")
string(APPEND CMAKE_MLIR_FLAGS_RELEASE_INIT " -O3")
string(APPEND CMAKE_MLIR_FLAGS_RELWITHDEBINFO_INIT " -O2 -g")
string(APPEND CMAKE_MLIR_FLAGS_MINSIZEREL_INIT " -O2")
cmake_initialize_per_config_variable(CMAKE_MLIR_FLAGS "Flags used by the MLIR compiler")

include(CMakeCommonLanguageInclude)

# CMake supports launchers only for its built-in languages.
if(NOT CMAKE_MLIR_COMPILER_LAUNCHER AND DEFINED ENV{CMAKE_MLIR_COMPILER_LAUNCHER})
  set(CMAKE_MLIR_COMPILER_LAUNCHER "$ENV{CMAKE_MLIR_COMPILER_LAUNCHER}" CACHE STRING "Launcher of the MLIR compiler")
endif()
set(_mlir_launcher "")
foreach(_mlir_name IN LISTS CMAKE_MLIR_COMPILER_LAUNCHER)
  if(_mlir_name MATCHES "[^A-Za-z0-9_./:=,+@%-]")
    string(REGEX REPLACE "([\\\"])" "\\\\\\1" _mlir_name "${_mlir_name}")
    set(_mlir_name "\"${_mlir_name}\"")
  endif()
  string(APPEND _mlir_launcher "${_mlir_name} ")
endforeach()

# MLIR has no preprocessor. Definitions and include directories apply only to the other sources of a target.
set(CMAKE_MLIR_COMPILE_OBJECT
  "${_mlir_launcher}<CMAKE_MLIR_COMPILER> <FLAGS> -o <OBJECT> -c <SOURCE>")
set(CMAKE_MLIR_LINK_EXECUTABLE
  "<CMAKE_MLIR_COMPILER> <FLAGS> <CMAKE_MLIR_LINK_FLAGS> <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
set(CMAKE_MLIR_CREATE_SHARED_LIBRARY
  "<CMAKE_MLIR_COMPILER> <CMAKE_SHARED_LIBRARY_MLIR_FLAGS> <LANGUAGE_COMPILE_FLAGS> <LINK_FLAGS> <CMAKE_SHARED_LIBRARY_CREATE_MLIR_FLAGS> <SONAME_FLAG><TARGET_SONAME> -o <TARGET> <OBJECTS> <LINK_LIBRARIES>")
set(CMAKE_MLIR_CREATE_SHARED_MODULE "${CMAKE_MLIR_CREATE_SHARED_LIBRARY}")
set(CMAKE_MLIR_ARCHIVE_CREATE "<CMAKE_AR> qc <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_MLIR_ARCHIVE_APPEND "<CMAKE_AR> q <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_MLIR_ARCHIVE_FINISH "<CMAKE_RANLIB> <TARGET>")
unset(_mlir_launcher)
unset(_mlir_name)

# Directory options apply in the directories that have the rules above, so that the property works wherever MLIR
# is enabled. The link requires the architectures for a program that uses the device and has no kernel.
define_property(TARGET PROPERTY MLIR_OFFLOAD_ARCHITECTURES
  BRIEF_DOCS "The devices that the MLIR sources are compiled for"
  FULL_DOCS "A list for --offload-arch of mlir-offload: sm_NN, host, native. False: what the driver chooses."
  INITIALIZE_FROM_VARIABLE MLIR_OFFLOAD_ARCHITECTURES)
set(_mlir_archs "$<TARGET_PROPERTY:MLIR_OFFLOAD_ARCHITECTURES>")
set(_mlir_option "$<$<BOOL:${_mlir_archs}>:--offload-arch=$<JOIN:${_mlir_archs},$<COMMA>>>")
add_compile_options("$<$<COMPILE_LANGUAGE:MLIR>:${_mlir_option}>")
add_link_options("$<$<LINK_LANGUAGE:MLIR>:${_mlir_option}>")
unset(_mlir_archs)
unset(_mlir_option)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MLIR_OFFLOAD_ARCHITECTURES)

# A project that is fetched with FetchContent enables MLIR in its own directory only. Targets of other directories
# may link its libraries; they read the link rules from the cache. They cannot compile MLIR, because the
# architectures above are directory options.
if(NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
  get_cmake_property(_mlir_names VARIABLES)
  list(FILTER _mlir_names INCLUDE REGEX
    "^CMAKE_(MLIR_(LINK|CREATE|ARCHIVE|IMPLICIT|USE_IMPLICIT|USING_LINKER|RESPONSE)|(SHARED_|EXE_|EXECUTABLE_).*MLIR_FLAG)")
  foreach(_mlir_name IN LISTS _mlir_names)
    set(${_mlir_name} "${${_mlir_name}}" CACHE INTERNAL "")
  endforeach()
  set(_mlir_script "${CMAKE_CURRENT_LIST_DIR}/MLIROffloadNotEnabled.cmake")
  set(_mlir_rule "\"${CMAKE_COMMAND}\" -D SOURCE=<SOURCE> -P \"${_mlir_script}\"")
  set(_mlir_own "${CMAKE_MLIR_COMPILE_OBJECT}")
  set(CMAKE_MLIR_COMPILE_OBJECT "${_mlir_rule}" CACHE INTERNAL "")
  set(CMAKE_MLIR_COMPILE_OBJECT "${_mlir_own}")
  foreach(_mlir_name names script rule own)
    unset(_mlir_${_mlir_name})
  endforeach()
  unset(_mlir_name)
endif()

set(CMAKE_MLIR_INFORMATION_LOADED 1)
