/* Offload entries in a section that the linker collects, in both layouts of LLVM
 * (llvm/Frontend/Offloading/Utility.h). */
#ifndef OFFLOAD_ENTRY_H
#define OFFLOAD_ENTRY_H

#include <stddef.h>
#include <stdint.h>

#include "mgpu.h"

enum { OFFLOAD_KIND_OPENMP = 1, OFFLOAD_KIND_SYCL = 8 };

typedef struct offload_entry {
  const void *address;
  const char *name;
  uint64_t size; /* 0: a kernel */
  unsigned kind; /* 0: the section determines it */
  const void *raw;
  size_t raw_size;
} offload_entry;

typedef void offload_entry_visitor(const offload_entry *entry, void *context);

/* Calls visit for each entry between begin and end, unless begin is NULL. */
MO_INTERNAL void mo_each_entry(const void *begin, const void *end, offload_entry_visitor *visit,
                               void *context);

#endif
