/* Create tensor maps, the descriptors of TMA, like upstream's CUDA runtime wrappers. */
#include <stdatomic.h>
#include <stdlib.h>

#include "mgpu.h"
#include "mo_tensor_map.h"

/* CUtensorMap of cuda.h. */
typedef struct tensor_map {
  _Alignas(64) char bytes[MO_TENSOR_MAP_BYTES];
} tensor_map;

/* The element sizes by CUtensorMapDataType: u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16, f32 with flush to
 * zero, tf32, tf32 with flush to zero. */
static const uint8_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
enum { ELEMENT_TYPES = sizeof element_bytes / sizeof *element_bytes };

static void check_map(int64_t rank, int32_t type) {
  if (rank >= 1 && rank <= MO_MOST_DIMENSIONS && type >= 0 && type < ELEMENT_TYPES)
    return;
  mo_error("cannot encode a tensor map of rank %lld with elements of CUtensorMapDataType %d",
           (long long)rank, type);
  mo_hint("tensor maps have 1 to %d dimensions and elements of the types 0 to %d", MO_MOST_DIMENSIONS,
          ELEMENT_TYPES - 1);
}

static const mo_backend *backend_with_tensor_maps(void) {
  const mo_backend *backend = mo_active_backend();
  if (!backend->encode_tensor_map) {
    mo_error("devices of kind '%s' have no tensor maps", backend->name);
    mo_hint("choose an NVIDIA GPU or the CPU, by MLIR_OFFLOAD_DEVICE or mlir_offload_set_device");
  }
  return backend;
}

MO_CONTRACT void mgpuTensorMapEncodeTiled(void *map, int32_t type, uint32_t rank, void *address,
                                          const uint64_t *sizes, const uint64_t *strides,
                                          const uint32_t *box, const uint32_t *element_strides,
                                          int32_t interleave, int32_t swizzle, int32_t promotion,
                                          int32_t fill) {
  const mo_backend *backend = backend_with_tensor_maps();
  check_map(rank, type);
  const mo_tensor_encoding encoding = {.map = map,
                                       .type = type,
                                       .rank = rank,
                                       .element_bytes = element_bytes[type],
                                       .address = address,
                                       .sizes = sizes,
                                       .strides = strides,
                                       .box = box,
                                       .element_strides = element_strides,
                                       .interleave = interleave,
                                       .swizzle = swizzle,
                                       .promotion = promotion,
                                       .fill = fill};
  backend->encode_tensor_map(&encoding);
}

/* Maps stay in device memory, because it is unknown when the last kernel has read them. This list prevents reports
 * of LeakSanitizer for maps of the CPU. */
typedef struct kept_map {
  void *map;
  struct kept_map *next;
} kept_map;
static kept_map *_Atomic mo_kept_maps;

static void keep_map(void *map) {
  kept_map *kept = malloc(sizeof *kept);
  if (!kept)
    return;
  *kept = (kept_map){map, atomic_load(&mo_kept_maps)};
  while (!atomic_compare_exchange_weak(&mo_kept_maps, &kept->next, kept))
    ;
}

static void *map_on_device(const tensor_map *map) {
  const mo_backend *backend = mo_active_backend();
  void *copy = backend->allocate(sizeof *map, false, NULL);
  keep_map(copy);
  backend->copy(copy, map, sizeof *map, NULL);
  backend->synchronize_stream(NULL);
  return copy;
}

/* The first dimension of a memref is the outermost, that of a tensor map the innermost, whose stride is 1. */
MO_CONTRACT void *mgpuTensorMapEncodeTiledMemref(int64_t rank, void *descriptor, int32_t type,
                                                 int32_t interleave, int32_t swizzle, int32_t promotion,
                                                 int32_t fill, const int64_t *box) {
  check_map(rank, type);
  const struct {
    char *allocated, *aligned;
    int64_t offset, sizes_and_strides[];
  } *memref = descriptor;
  const int64_t *sizes = memref->sizes_and_strides, *strides = sizes + rank;
  uint64_t map_sizes[MO_MOST_DIMENSIONS], map_strides[MO_MOST_DIMENSIONS];
  uint32_t map_box[MO_MOST_DIMENSIONS], ones[MO_MOST_DIMENSIONS];
  for (int64_t i = 0; i < rank; ++i) {
    int64_t outer = rank - 1 - i;
    map_sizes[i] = (uint64_t)sizes[outer];
    map_box[i] = (uint32_t)box[outer];
    ones[i] = 1;
    if (outer > 0)
      map_strides[i] = (uint64_t)(strides[outer - 1] * element_bytes[type]);
  }
  tensor_map map = {{0}};
  mgpuTensorMapEncodeTiled(&map, type, (uint32_t)rank,
                           memref->aligned + memref->offset * element_bytes[type], map_sizes, map_strides,
                           map_box, ones, interleave, swizzle, promotion, fill);
  return map_on_device(&map);
}
