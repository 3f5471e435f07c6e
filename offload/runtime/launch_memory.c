/* Launches of kernels that were outlined from host code (--pipeline=linalg) and use host memory.
 *
 * Memory that the device cannot access is copied to it for the launch, and changes are copied back. Between
 * launches only the host memory is valid. Overlapping memrefs share a copy.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mgpu.h"

typedef struct mo_described {
  int32_t param, rank;
  int64_t element_bytes;
} mo_described;

/* The memrefs that the thread described for its next launch. */
static _Thread_local struct {
  mo_described *items;
  int count, room;
} mo_next;

static void *allocated(void *pointer, const char *what) {
  if (!pointer) {
    mo_error("malloc failed: ENOMEM (out of memory)");
    mo_context("while %s", what);
    mo_hint("use less memory at a time, or raise the limit (ulimit -v)");
  }
  return pointer;
}

/* Declares that parameter `param` of the next launch is the first one of a memref. */
MO_CONTRACT void mgpuDescribeMemRef(int32_t param, int32_t rank, int64_t element_bytes) {
  if (mo_next.count == mo_next.room) {
    mo_next.room = 2 * mo_next.room + 8;
    mo_next.items = allocated(realloc(mo_next.items, mo_next.room * sizeof *mo_next.items),
                              "launching a kernel");
  }
  mo_next.items[mo_next.count++] = (mo_described){param, rank, element_bytes};
}

enum { ALIGNMENT_OF_COPIES = 256 };

typedef struct mo_extent {
  char *first, *end;        /* on the host */
  char *memory, *on_device; /* the allocation, and the address of `first` in it */
} mo_extent;

static mo_extent host_extent(char *first, char *end) {
  return (mo_extent){.first = first, .end = end};
}

static char *pointer_at(void **params, int32_t param) { return *(char **)params[param]; }

/* The parameters of a memref: two pointers, the offset in elements, sizes, strides. */
static mo_extent extent_of(const mo_described *item, void **params) {
  int64_t **numbers = (int64_t **)params + item->param + 2;
  int64_t first = *numbers[0], last = first;
  char *aligned = pointer_at(params, item->param + 1);
  for (int32_t i = 0; i < item->rank; ++i) {
    int64_t size = *numbers[1 + i], stride = *numbers[1 + item->rank + i];
    if (size <= 0)
      return host_extent(aligned, aligned);
    *(stride < 0 ? &first : &last) += (size - 1) * stride;
  }
  return host_extent(aligned + first * item->element_bytes,
                     aligned + (last + 1) * item->element_bytes);
}

/* Merges an extent into a list of disjoint extents; returns the new length. */
static int add_extent(mo_extent *extents, int count, mo_extent added) {
  for (int i = 0; i < count; ++i)
    if (extents[i].first < added.end && added.first < extents[i].end) {
      if (extents[i].first < added.first)
        added.first = extents[i].first;
      if (extents[i].end > added.end)
        added.end = extents[i].end;
      extents[i] = extents[--count];
      i = -1; /* the merged extent may overlap others */
    }
  extents[count] = added;
  return count + 1;
}

static int extents_to_copy(const mo_backend *backend, const mo_described *items, int count,
                           void **params, mo_extent *extents) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    mo_extent extent = extent_of(&items[i], params);
    if (extent.first < extent.end && !backend->reaches(extent.first))
      found = add_extent(extents, found, extent);
  }
  return found;
}

/* The copy has the alignment of the host memory, on which kernels may rely. */
static void copy_to_device(const mo_backend *backend, mo_extent *extent, void *stream) {
  uint64_t size_bytes = (uint64_t)(extent->end - extent->first);
  extent->memory = backend->allocate(size_bytes + ALIGNMENT_OF_COPIES, false, stream);
  uintptr_t distance = (uintptr_t)extent->first - (uintptr_t)extent->memory;
  extent->on_device = extent->memory + distance % ALIGNMENT_OF_COPIES;
  backend->copy(extent->on_device, extent->first, size_bytes, stream);
}

/* Only changed bytes are written, because constants may be in read-only memory. */
static void copy_changes_back(const mo_backend *backend, const mo_extent *extent, void *stream) {
  size_t size_bytes = (size_t)(extent->end - extent->first);
  char *copy = allocated(malloc(size_bytes), "copying from a device");
  backend->copy(copy, extent->on_device, size_bytes, stream);
  backend->synchronize_stream(stream);
  if (memcmp(copy, extent->first, size_bytes))
    memcpy(extent->first, copy, size_bytes);
  free(copy);
  backend->release(extent->memory, stream);
}

static char *on_device(const mo_extent *extents, int count, char *pointer) {
  for (int i = 0; i < count; ++i)
    if (extents[i].first <= pointer && pointer < extents[i].end)
      return extents[i].on_device + (pointer - extents[i].first);
  return NULL;
}

/* Replaces the pointers of a memref in the parameters of this launch by device pointers. */
static void translate(const mo_described *item, void **params, const mo_extent *extents, int count,
                      char **moved) {
  mo_extent extent = extent_of(item, params);
  char *found = extent.first < extent.end ? on_device(extents, count, extent.first) : NULL;
  if (!found)
    return;
  *moved = found + (pointer_at(params, item->param + 1) - extent.first);
  params[item->param] = params[item->param + 1] = moved;
}

static void launch_on_copies(const mo_backend *backend, const void *stub, const mo_shape *shape,
                             void *stream, void **params, const mo_described *items, int count) {
  mo_extent *extents = allocated(malloc(count * sizeof *extents), "launching a kernel");
  char **moved = allocated(malloc(count * sizeof *moved), "launching a kernel");
  int copied = extents_to_copy(backend, items, count, params, extents);
  for (int i = 0; i < copied; ++i)
    copy_to_device(backend, &extents[i], stream);
  for (int i = 0; i < count; ++i)
    translate(&items[i], params, extents, copied, &moved[i]);
  backend->launch(stub, shape, stream, params);
  for (int i = 0; i < copied; ++i)
    copy_changes_back(backend, &extents[i], stream);
  free(moved);
  free(extents);
}

/* Returns the description of the next launch and its number of memrefs, and resets it. */
static mo_described *take_described(int *count) {
  mo_described *items = mo_next.items;
  *count = mo_next.count;
  mo_next.items = NULL;
  mo_next.count = mo_next.room = 0;
  return items;
}

bool mo_is_empty_launch(const int64_t *grid, const int64_t *block) {
  int count;
  bool has_blocks = grid[0] && grid[1] && grid[2], has_threads = block[0] && block[1] && block[2];
  if (has_blocks && (has_threads || !mo_next.count))
    return false;
  free(take_described(&count));
  return true;
}

void mo_launch_kernel(const mo_backend *backend, const void *stub, const mo_shape *shape,
                      void *stream, void **params) {
  int count;
  mo_described *items = take_described(&count);
  if (count && backend->reaches)
    launch_on_copies(backend, stub, shape, stream, params, items, count);
  else
    backend->launch(stub, shape, stream, params);
  free(items);
}
