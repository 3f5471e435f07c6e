/* Encode tensor maps for kernels on the CPU; cpu_async.c reads them. */
#include <string.h>

#include "mgpu.h"
#include "mo_tensor_map.h"

/* Checks the rules of cuTensorMapEncodeTiled, so that the program also runs on a GPU. Returns the violated rule. */
static const char *broken_rule(const mo_tensor_encoding *of) {
  uint64_t inner = (uint64_t)of->box[0] * of->element_bytes;
  if ((uintptr_t)of->address % 16)
    return "its address is not a multiple of 16";
  if (of->interleave)
    return "it is interleaved";
  if (of->swizzle < 0 || of->swizzle > 3)
    return "its swizzle is not one of 0 to 3";
  if (inner % 16 || (of->swizzle && inner > (16u << of->swizzle)))
    return "the innermost dimension of its box is not a multiple of 16 bytes, or is larger than its swizzle";
  for (uint32_t axis = 0; axis < of->rank; ++axis) {
    if (!of->sizes[axis] || !of->box[axis] || of->box[axis] > 256)
      return "a dimension is empty, or that of its box is not 1 to 256";
    if (of->element_strides[axis] != 1)
      return "it leaves elements out";
    if (axis && of->strides[axis - 1] % 16)
      return "a stride is not a multiple of 16 bytes";
  }
  return NULL;
}

void mo_host_encode_tensor_map(const mo_tensor_encoding *of) {
  const char *broken = broken_rule(of);
  if (broken) {
    mo_error("cannot encode a tensor map of rank %u at %p: %s", of->rank, of->address, broken);
    mo_hint("see cuTensorMapEncodeTiled; kernels on the CPU take maps without interleave and element strides");
  }
  mo_tensor_map made = {.magic = MO_TENSOR_MAP_MAGIC,
                        .rank = (uint8_t)of->rank,
                        .element_bytes = (uint8_t)of->element_bytes,
                        .swizzle = (uint8_t)of->swizzle,
                        .address = of->address};
  for (uint32_t axis = 0; axis < of->rank; ++axis) {
    made.sizes[axis] = of->sizes[axis];
    made.box[axis] = (uint16_t)of->box[axis];
    if (axis)
      made.strides[axis - 1] = of->strides[axis - 1];
  }
  memcpy(of->map, &made, sizeof made);
}
