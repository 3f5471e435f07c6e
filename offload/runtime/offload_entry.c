/* Iterate over a section of offload entries. */
#include "offload_entry.h"

/* The layout of LLVM 14 to 19. */
typedef struct old_entry {
  const void *address;
  const char *name;
  uint64_t size;
  uint32_t flags, reserved;
} old_entry;

/* The layout of LLVM 20 and newer. The first word is reserved and 0; in the old layout it is an address. */
typedef struct new_entry {
  uint64_t reserved;
  uint16_t version, kind;
  uint32_t flags;
  const void *address;
  const char *name;
  uint64_t size, data;
  const void *auxiliary;
} new_entry;

void mo_each_entry(const void *begin, const void *end, offload_entry_visitor *visit,
                   void *context) {
  const char *at = begin;
  while (at && (size_t)((const char *)end - at) >= sizeof(old_entry)) {
    const new_entry *entry = (const void *)at;
    const old_entry *old = (const void *)at;
    offload_entry found;
    if (entry->reserved) {
      found = (offload_entry){old->address, old->name, old->size, 0, at, sizeof *old};
      at += sizeof *old;
    } else if (entry->version) {
      found = (offload_entry){entry->address, entry->name, entry->size,
                              entry->kind,    at,          sizeof *entry};
      at += sizeof *entry;
    } else {
      at += sizeof(uint64_t); /* padding between the sections of two objects */
      continue;
    }
    visit(&found, context);
  }
}
