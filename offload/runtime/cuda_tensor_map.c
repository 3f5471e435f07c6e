/* Tensor maps on sm_90 and later: cuTensorMapEncodeTiled of the driver API. */
#include <stdio.h>

#include "cuda.h"
#include "mo_tensor_map.h"

static const char map_cure[] =
    "see cuTensorMapEncodeTiled: addresses are multiples of 16, strides of 16 bytes below 2^40, boxes have "
    "1 to 256 elements in each dimension, the innermost as many bytes as the swizzle takes";

/* Appends "name 1 2 3" to the text. */
static void add_numbers(char *text, size_t size, const char *name, const uint64_t *numbers, uint32_t count) {
  size_t used = strlen(text);
  used += (size_t)snprintf(text + used, size - used, "%s", name);
  for (uint32_t i = 0; i < count && used < size; ++i)
    used += (size_t)snprintf(text + used, size - used, " %llu", (unsigned long long)numbers[i]);
}

MO_NORETURN static void stop_encoding(int status, uint32_t rank, const void *address, const uint64_t *sizes,
                                      const uint64_t *strides, const uint32_t *box) {
  char text[512] = "";
  uint64_t wide_box[MO_MOST_DIMENSIONS] = {0};
  for (uint32_t i = 0; i < rank; ++i)
    wide_box[i] = box[i];
  add_numbers(text, sizeof text, "sizes", sizes, rank);
  add_numbers(text, sizeof text, ", box", wide_box, rank);
  add_numbers(text, sizeof text, ", strides in bytes", strides, rank - 1);
  mo_error("cuTensorMapEncodeTiled failed (%s): a tensor map of rank %u at %p, %s", cudaGetErrorName(status),
           rank, address, text);
  mo_hint("%s", map_cure);
}

void mo_cuda_encode_tensor_map(const mo_tensor_encoding *of) {
  typedef int encode_function(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                              const uint32_t *, const uint32_t *, int, int, int, int);
  encode_function *encode = (encode_function *)mo_cuda_driver_function("cuTensorMapEncodeTiled");
  int status = encode(of->map, of->type, of->rank, of->address, of->sizes, of->strides, of->box,
                      of->element_strides, of->interleave, of->swizzle, of->promotion, of->fill);
  if (status != CUDA_SUCCESS)
    stop_encoding(status, of->rank, of->address, of->sizes, of->strides, of->box);
}
