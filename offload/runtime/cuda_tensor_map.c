/* Tensor maps, the descriptors of TMA on sm_90 and later, as upstream's CUDA runtime wrappers make them. */
#include <stdio.h>

#include "cuda.h"

enum { MOST_DIMENSIONS = 5, MAP_BYTES = 128 };

/* CUtensorMap of cuda.h. */
typedef struct tensor_map {
  _Alignas(64) char bytes[MAP_BYTES];
} tensor_map;

/* Of CUtensorMapDataType, by number: u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16, f32 with flush to
 * zero, tf32, tf32 with flush to zero. */
static const int element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
enum { ELEMENT_TYPES = sizeof element_bytes / sizeof *element_bytes };

static const char map_cure[] =
    "see cuTensorMapEncodeTiled: addresses are multiples of 16, strides of 16 bytes below 2^40, boxes have "
    "1 to 256 elements in each dimension, the innermost as many bytes as the swizzle takes";

/* Writes "name 1 2 3" behind what the text has already. */
static void add_numbers(char *text, size_t size, const char *name, const uint64_t *numbers, uint32_t count) {
  size_t used = strlen(text);
  used += (size_t)snprintf(text + used, size - used, "%s", name);
  for (uint32_t i = 0; i < count && used < size; ++i)
    used += (size_t)snprintf(text + used, size - used, " %llu", (unsigned long long)numbers[i]);
}

MO_NORETURN static void stop_encoding(int status, uint32_t rank, const void *address, const uint64_t *sizes,
                                      const uint64_t *strides, const uint32_t *box) {
  char text[512] = "";
  uint64_t wide_box[MOST_DIMENSIONS] = {0};
  for (uint32_t i = 0; i < rank; ++i)
    wide_box[i] = box[i];
  add_numbers(text, sizeof text, "sizes", sizes, rank);
  add_numbers(text, sizeof text, ", box", wide_box, rank);
  add_numbers(text, sizeof text, ", strides in bytes", strides, rank - 1);
  mo_error("cuTensorMapEncodeTiled failed (%s): a tensor map of rank %u at %p, %s", cudaGetErrorName(status),
           rank, address, text);
  mo_cure("%s", map_cure);
}

static void check_map(int64_t rank, int32_t type) {
  if (rank >= 1 && rank <= MOST_DIMENSIONS && type >= 0 && type < ELEMENT_TYPES)
    return;
  mo_error("cannot encode a tensor map of rank %lld with elements of CUtensorMapDataType %d",
           (long long)rank, type);
  mo_cure("tensor maps have 1 to %d dimensions and elements of the types 0 to %d", MOST_DIMENSIONS,
          ELEMENT_TYPES - 1);
}

MO_CONTRACT void mgpuTensorMapEncodeTiled(void *map, int32_t type, uint32_t rank, void *address,
                                          const uint64_t *sizes, const uint64_t *strides,
                                          const uint32_t *box, const uint32_t *element_strides,
                                          int32_t interleave, int32_t swizzle, int32_t promotion,
                                          int32_t fill) {
  typedef int encode_function(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                              const uint32_t *, const uint32_t *, int, int, int, int);
  mo_require_kind("cuda", "mgpuTensorMapEncodeTiled");
  check_map(rank, type);
  encode_function *encode = (encode_function *)mo_cuda_driver_function("cuTensorMapEncodeTiled");
  int status = encode(map, type, rank, address, sizes, strides, box, element_strides, interleave, swizzle,
                      promotion, fill);
  if (status != CUDA_SUCCESS)
    stop_encoding(status, rank, address, sizes, strides, box);
}

/* The map stays in the memory of the device: nobody says when the last kernel has read it. */
static void *map_on_device(const tensor_map *map) {
  void *copy = mo_cuda.allocate(sizeof *map, false, NULL);
  mo_cuda.copy(copy, map, sizeof *map, NULL);
  CUDA_CHECK(cudaStreamSynchronize(NULL), "cudaStreamSynchronize", "copying a tensor map to the device");
  return copy;
}

/* A memref has its outermost dimension first, a tensor map its innermost, whose stride is 1. */
MO_CONTRACT void *mgpuTensorMapEncodeTiledMemref(int64_t rank, void *descriptor, int32_t type,
                                                 int32_t interleave, int32_t swizzle, int32_t promotion,
                                                 int32_t fill, const int64_t *box) {
  check_map(rank, type);
  const struct {
    char *allocated, *aligned;
    int64_t offset, sizes_and_strides[];
  } *memref = descriptor;
  const int64_t *sizes = memref->sizes_and_strides, *strides = sizes + rank;
  uint64_t map_sizes[MOST_DIMENSIONS], map_strides[MOST_DIMENSIONS];
  uint32_t map_box[MOST_DIMENSIONS], ones[MOST_DIMENSIONS];
  for (int64_t i = 0; i < rank; ++i) {
    int64_t outer = rank - 1 - i;
    map_sizes[i] = (uint64_t)sizes[outer];
    map_box[i] = (uint32_t)box[outer];
    ones[i] = 1;
    if (outer > 0)
      map_strides[i] = (uint64_t)(strides[outer - 1] * element_bytes[type]);
  }
  tensor_map map;
  mgpuTensorMapEncodeTiled(&map, type, (uint32_t)rank,
                           memref->aligned + memref->offset * element_bytes[type], map_sizes, map_strides,
                           map_box, ones, interleave, swizzle, promotion, fill);
  return map_on_device(&map);
}
