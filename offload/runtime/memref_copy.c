/* The function that finalize-memref-to-llvm calls for memref.copy if source or target is not contiguous
 * (mlir/lib/ExecutionEngine/CRunnerUtils.cpp). It does not depend on other files of the runtime. */
#include <stdint.h>
#include <string.h>

typedef struct mo_ranked {
  char *allocated, *aligned;
  int64_t offset;
  int64_t sizes_and_strides[];
} mo_ranked;

typedef struct mo_unranked {
  int64_t rank;
  mo_ranked *ranked;
} mo_unranked;

typedef struct mo_side {
  char *start;
  const int64_t *strides;
} mo_side;

static mo_side side_of(const mo_unranked *memref, int64_t element_bytes) {
  const mo_ranked *ranked = memref->ranked;
  return (mo_side){ranked->aligned + ranked->offset * element_bytes,
                   ranked->sizes_and_strides + memref->rank};
}

static void copy(int64_t rank, const int64_t *sizes, mo_side from, mo_side to, int64_t bytes) {
  if (rank == 0) {
    memcpy(to.start, from.start, (size_t)bytes);
    return;
  }
  if (rank == 1 && *from.strides == 1 && *to.strides == 1) {
    if (*sizes > 0)
      memcpy(to.start, from.start, (size_t)(*sizes * bytes));
    return;
  }
  for (int64_t i = 0; i < *sizes; ++i)
    copy(rank - 1, sizes + 1,
         (mo_side){from.start + i * *from.strides * bytes, from.strides + 1},
         (mo_side){to.start + i * *to.strides * bytes, to.strides + 1}, bytes);
}

/* Weak and hidden, because a program may define its own, and several objects may contain it. */
__attribute__((weak, visibility("hidden"))) void memrefCopy(int64_t element_bytes,
                                                            const mo_unranked *source,
                                                            const mo_unranked *target) {
  copy(source->rank, source->ranked->sizes_and_strides, side_of(source, element_bytes),
       side_of(target, element_bytes), element_bytes);
}
