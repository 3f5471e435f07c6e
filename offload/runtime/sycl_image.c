/* The device images that clang-linker-wrapper registers for kind sycl
 * (llvm/lib/Frontend/Offloading/OffloadWrapper.cpp). LLVM 22 registers a descriptor, LLVM 23 an offload binary
 * (llvm/include/llvm/Object/OffloadBinary.h). */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "offload_entry.h"
#include "sycl.h"

enum { DESCRIPTOR_VERSION = 1, IMAGE_VERSION = 3 };
enum { BINARY_MAGIC = 0xAD10FF10, BINARY_VERSION = 2 };
enum { SPIRV_MAGIC = 0x07230203 };

typedef struct sycl_image {
  uint16_t version;
  uint8_t kind, format;
  const char *triple, *compile_options, *link_options;
  const void *begin, *end;
  const void *entries_begin, *entries_end;
  const void *properties_begin, *properties_end;
} sycl_image;

typedef struct sycl_descriptor {
  uint16_t version, image_count;
  const sycl_image *images;
  const void *host_entries_begin, *host_entries_end;
} sycl_descriptor;

/* Offsets are relative to the header, which may be unaligned. */
typedef struct __attribute__((packed)) binary_header {
  uint32_t magic, version;
  uint64_t size, entries_offset, entry_count;
} binary_header;

typedef struct __attribute__((packed)) binary_entry {
  uint16_t image_kind, offload_kind;
  uint32_t flags;
  uint64_t strings_offset, string_count, image_offset, image_size;
} binary_entry;

typedef struct __attribute__((packed)) binary_string {
  uint64_t key_offset, value_offset, value_size;
} binary_string;

/* The value of "symbols". Offsets are relative to its start. */
typedef struct binary_symbols {
  uint32_t count;
  struct {
    uint32_t offset, size;
  } symbols[];
} binary_symbols;

typedef struct registered_images {
  const void *start; /* a sycl_descriptor, or offload binaries with `size` bytes in total */
  size_t size;
  struct registered_images *next;
} registered_images;

static pthread_mutex_t mo_images_lock = PTHREAD_MUTEX_INITIALIZER;
static registered_images *mo_images;

/* Hidden, so that each program and library finds only its own kernels. */
MO_INTERNAL void __sycl_register_lib(const void *start, size_t size);
MO_INTERNAL void __sycl_unregister_lib(const void *start);

/* LLVM 22 passes only the descriptor; then the size is not read. */
void __sycl_register_lib(const void *start, size_t size) {
  registered_images *added = malloc(sizeof *added);
  if (!added) {
    mo_error("out of host memory while registering device code");
    mo_hint("free host memory");
  }
  pthread_mutex_lock(&mo_images_lock);
  *added = (registered_images){start, size, mo_images};
  mo_images = added;
  pthread_mutex_unlock(&mo_images_lock);
}

void __sycl_unregister_lib(const void *start) {
  pthread_mutex_lock(&mo_images_lock);
  registered_images **link = &mo_images;
  while (*link && (*link)->start != start)
    link = &(*link)->next;
  registered_images *removed = *link;
  if (removed)
    *link = removed->next;
  pthread_mutex_unlock(&mo_images_lock);
  free(removed);
}

typedef struct sycl_module_image {
  const char *triple, *compile_options;
  const void *begin;
  size_t size;
} sycl_module_image;

typedef struct image_search {
  const char *name;
  sycl_module_image image;
  unsigned count;
  bool is_here, is_foreign; /* is_foreign: from an unknown linker wrapper */
} image_search;

static void compare_name(const offload_entry *entry, void *context) {
  image_search *search = context;
  if (!entry->size && entry->name && !strcmp(entry->name, search->name))
    search->is_here = true;
}

static void search_descriptor(image_search *search, const sycl_descriptor *descriptor) {
  if (descriptor->version != DESCRIPTOR_VERSION) {
    search->is_foreign = true;
    return;
  }
  for (unsigned i = 0; i < descriptor->image_count; ++i) {
    const sycl_image *image = &descriptor->images[i];
    if (image->version != IMAGE_VERSION) {
      search->is_foreign = true;
      return; /* the position of the next image is unknown */
    }
    search->is_here = false;
    mo_each_entry(image->entries_begin, image->entries_end, compare_name, search);
    if (search->is_here) {
      size_t size = (size_t)((const char *)image->end - (const char *)image->begin);
      search->image =
          (sycl_module_image){image->triple, image->compile_options, image->begin, size};
      ++search->count;
    }
  }
}

static const void *binary_value(const char *binary, const binary_entry *entry, const char *key) {
  const binary_string *strings = (const binary_string *)(binary + entry->strings_offset);
  for (uint64_t i = 0; i < entry->string_count; ++i)
    if (!strcmp(binary + strings[i].key_offset, key))
      return binary + strings[i].value_offset;
  return NULL;
}

/* Values may be unaligned, so they are copied. */
static bool has_symbol(const char *symbols, const char *name) {
  uint32_t count = 0;
  memcpy(&count, symbols + offsetof(binary_symbols, count), sizeof count);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t place[2]; /* offset and size */
    memcpy(place, symbols + offsetof(binary_symbols, symbols) + i * sizeof place, sizeof place);
    if (place[1] == strlen(name) && !memcmp(symbols + place[0], name, place[1]))
      return true;
  }
  return false;
}

static void search_binary(image_search *search, const char *binary, const binary_header *header) {
  const binary_entry *entries = (const binary_entry *)(binary + header->entries_offset);
  for (uint64_t i = 0; i < header->entry_count; ++i) {
    const char *symbols = binary_value(binary, &entries[i], "symbols");
    const char *triple = binary_value(binary, &entries[i], "triple");
    if (!symbols || !has_symbol(symbols, search->name))
      continue;
    search->image = (sycl_module_image){triple ? triple : "", "", binary + entries[i].image_offset,
                                        entries[i].image_size};
    ++search->count;
  }
}

static void search_binaries(image_search *search, const char *start, size_t size) {
  for (const char *at = start; at < start + size;) {
    const binary_header *header = (const binary_header *)at;
    if (header->magic != BINARY_MAGIC || header->version != BINARY_VERSION) {
      search->is_foreign = true;
      return;
    }
    search_binary(search, at, header);
    at += header->size;
  }
}

static void search_registered(image_search *search, const registered_images *registered) {
  uint32_t magic = 0;
  memcpy(&magic, registered->start, sizeof magic);
  if (magic == BINARY_MAGIC)
    search_binaries(search, registered->start, registered->size);
  else
    search_descriptor(search, registered->start);
}

MO_NORETURN static void refuse_kernel(const void *stub, const mo_shape *shape, const char *hint) {
  mo_context_of_launch(stub, shape);
  mo_hint("%s", hint);
}

static sycl_module_image find_image(const void *stub, const mo_shape *shape, const char *name) {
  image_search search = {.name = name};
  pthread_mutex_lock(&mo_images_lock);
  for (const registered_images *at = mo_images; at; at = at->next)
    search_registered(&search, at);
  pthread_mutex_unlock(&mo_images_lock);
  if (search.count == 1)
    return search.image;
  if (search.count) {
    mo_error("%u device images of kind sycl have a kernel %s", search.count, name);
    refuse_kernel(stub, shape, "give each kernel a name of its own");
  }
  mo_error(search.is_foreign
               ? "the device code was registered by a linker wrapper of another release of LLVM"
               : "no device image of kind sycl has the kernel %s",
           name);
  refuse_kernel(stub, shape, "link the program again with mlir-offload --offload-arch=spirv64");
}

mo_sycl_module mo_sycl_find_module(const void *stub, const mo_shape *shape, const char **name) {
  *name = mo_kernel_name_of_kind(stub, OFFLOAD_KIND_SYCL);
  if (!*name) {
    mo_error("the kernel was not compiled for kind sycl");
    refuse_kernel(stub, shape, "compile the file that launches it with --offload-arch=spirv64");
  }
  sycl_module_image image = find_image(stub, shape, *name);
  uint32_t magic = 0;
  if (image.size >= sizeof magic)
    memcpy(&magic, image.begin, sizeof magic);
  if (magic != SPIRV_MAGIC || image.size % sizeof(uint32_t) || strncmp(image.triple, "spirv64", 7)) {
    mo_error("the device image with the kernel %s is not 64-bit SPIR-V (its target is %s)", *name,
             image.triple);
    refuse_kernel(stub, shape, "link the program again with mlir-offload --offload-arch=spirv64");
  }
  return (mo_sycl_module){image.compile_options, image.begin, image.size / sizeof(uint32_t)};
}
