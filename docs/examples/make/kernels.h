// What scale.mlir and shift.mlir export to C.

#ifndef KERNELS_H
#define KERNELS_H

#include <stdint.h>

// memref<?xf32> as MLIR lays it out; sizes and strides count elements, not bytes.
struct memref_1d_f32 {
  float *allocated; // what to free
  float *aligned;   // where the data is
  int64_t offset;   // of the first element, from aligned
  int64_t sizes[1];
  int64_t strides[1];
};

void _mlir_ciface_scale(struct memref_1d_f32 *x);
void _mlir_ciface_shift(struct memref_1d_f32 *x);

#endif
