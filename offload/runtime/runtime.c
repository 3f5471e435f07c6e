/* The whole runtime as one translation unit, because a link compiles it, and starting the compiler takes longer
 * than compiling any of these files. Each file can also be compiled separately. */
#define _GNU_SOURCE 1

#include "catch.c"
#include "device_name.c"
#include "error.c"
#include "launch_memory.c"
#include "mgpu.c"
#include "offload_entry.c"
#include "sanitizer.c"

#ifdef MLIR_OFFLOAD_EMBEDDED
#include "memref_copy.c"
#endif

#if defined MLIR_OFFLOAD_HAVE_CUDA || defined MLIR_OFFLOAD_HAVE_HIP || \
    defined MLIR_OFFLOAD_HAVE_SYCL
#include "stream_pool.c"
#endif

#if defined MLIR_OFFLOAD_HAVE_CUDA || defined MLIR_OFFLOAD_HAVE_OPENMP
#include "tensor_map.c"
#endif

#ifdef MLIR_OFFLOAD_HAVE_CUDA
#include "cuda.c"
#include "cuda_error.c"
#include "cuda_stream.c"
#include "cuda_tensor_map.c"
#endif

#ifdef MLIR_OFFLOAD_HAVE_HIP
#include "hip.c"
#include "hip_error.c"
#include "hip_stream.c"
#ifdef MLIR_OFFLOAD_HIP_LIBRARY
#include "hip_load.c"
#endif
#endif

#ifdef MLIR_OFFLOAD_HAVE_SYCL
#include "sycl.c"
#include "sycl_assert.c"
#include "sycl_device.c"
#include "sycl_error.c"
#include "sycl_image.c"
#include "sycl_launch.c"
#include "sycl_load.c"
#include "sycl_spirv.c"
#include "sycl_stream.c"
#endif

#ifdef MLIR_OFFLOAD_HAVE_OPENMP
#include "host_entry.c"
#include "host_tensor_map.c"
#include "openmp.c"
#include "pool.c"
#include "watch.c"
#include "omptarget_fallback.c"
#ifndef MLIR_OFFLOAD_OMPTARGET_FALLBACK
#include "registration.c"
#endif
#endif
