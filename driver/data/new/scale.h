/* Made by mlir-offload --emit-header; changes here are lost.
 *
 * A memref argument is a pointer to its descriptor. Sizes, strides and the offset count elements.
 * Memory that a function returns is the caller's: free(result.allocated) gives it back, unless the
 * function returned memory that it was given, or a constant.
 */
#ifndef MLIR_OFFLOAD_SCALE_H
#define MLIR_OFFLOAD_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#ifndef MLIR_MEMREF_1D_F32
#define MLIR_MEMREF_1D_F32
typedef struct mlir_memref_1d_f32 {
  float *allocated; /* what to free */
  float *aligned;   /* where the data is */
  int64_t offset;   /* of the first element, from aligned */
  int64_t sizes[1];
  int64_t strides[1];
} mlir_memref_1d_f32;

/* Describes memory that holds its elements row by row, without gaps. */
static inline mlir_memref_1d_f32 mlir_memref_1d_f32_of(float *data, int64_t size0) {
  mlir_memref_1d_f32 memref = {data, data, 0, {size0}, {1}};
  return memref;
}
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The stream of the calling thread; see mlir_offload.h. */
void mlir_offload_set_stream(void *stream);
void *mlir_offload_get_stream(void);

/* scale.mlir:2: scale(factor: f32, x: memref<?xf32>) */
void _mlir_ciface_scale(float factor, mlir_memref_1d_f32 *x);

/* The same, its GPU work in order on a stream (cudaStream_t, hipStream_t, cl_command_queue). */
static inline void scale_on_stream(void *stream, float factor, mlir_memref_1d_f32 *x) {
  void *before = mlir_offload_get_stream();
  mlir_offload_set_stream(stream);
  _mlir_ciface_scale(factor, x);
  mlir_offload_set_stream(before);
}

#ifdef __cplusplus
}
#endif

#endif
