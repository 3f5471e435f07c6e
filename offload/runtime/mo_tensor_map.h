/* The content of a CUtensorMap for kernels on the CPU, from mgpuTensorMapEncodeTiled. NVIDIA's own format is
 * undocumented. */
#ifndef MO_TENSOR_MAP_H
#define MO_TENSOR_MAP_H

#include <stdint.h>

enum { MO_MOST_DIMENSIONS = 5, MO_TENSOR_MAP_BYTES = 128 };
#define MO_TENSOR_MAP_MAGIC UINT32_C(0x6d746d6f)

/* The innermost dimension comes first; its stride is the size of an element. */
typedef struct mo_tensor_map {
  uint32_t magic;
  uint8_t rank, element_bytes, swizzle, unused; /* swizzle: 0, or 1 to 3 for 32, 64 and 128 bytes */
  char *address;
  uint64_t sizes[MO_MOST_DIMENSIONS], strides[MO_MOST_DIMENSIONS - 1];
  uint16_t box[MO_MOST_DIMENSIONS];
} mo_tensor_map;

#endif
