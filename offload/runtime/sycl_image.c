/* The device images of the program, as clang-linker-wrapper registers them for kind sycl
 * (llvm/lib/Frontend/Offloading/OffloadWrapper.cpp). */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "offload_entry.h"
#include "sycl.h"

enum { DESCRIPTOR_VERSION = 1, IMAGE_VERSION = 3 };
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

typedef struct registered_images {
  const sycl_descriptor *descriptor;
  struct registered_images *next;
} registered_images;

static pthread_mutex_t mo_images_lock = PTHREAD_MUTEX_INITIALIZER;
static registered_images *mo_images;

/* Hidden: each program and library with device code finds its own kernels only. */
MO_INTERNAL void __sycl_register_lib(const sycl_descriptor *descriptor);
MO_INTERNAL void __sycl_unregister_lib(const sycl_descriptor *descriptor);

void __sycl_register_lib(const sycl_descriptor *descriptor) {
  registered_images *added = malloc(sizeof *added);
  if (!added) {
    mo_error("out of host memory while registering device code");
    mo_hint("free host memory");
  }
  pthread_mutex_lock(&mo_images_lock);
  *added = (registered_images){descriptor, mo_images};
  mo_images = added;
  pthread_mutex_unlock(&mo_images_lock);
}

void __sycl_unregister_lib(const sycl_descriptor *descriptor) {
  pthread_mutex_lock(&mo_images_lock);
  registered_images **link = &mo_images;
  while (*link && (*link)->descriptor != descriptor)
    link = &(*link)->next;
  registered_images *removed = *link;
  if (removed)
    *link = removed->next;
  pthread_mutex_unlock(&mo_images_lock);
  free(removed);
}

typedef struct image_search {
  const char *name;
  const sycl_image *image;
  unsigned count;
  bool is_here, is_foreign; /* made by a linker wrapper that is not known */
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
      return; /* the next one lies who knows where */
    }
    search->is_here = false;
    mo_each_entry(image->entries_begin, image->entries_end, compare_name, search);
    if (search->is_here) {
      search->image = image;
      ++search->count;
    }
  }
}

MO_NORETURN static void refuse_kernel(const void *stub, const mo_shape *shape, const char *hint) {
  mo_context_of_launch(stub, shape);
  mo_hint("%s", hint);
}

static const sycl_image *find_image(const void *stub, const mo_shape *shape, const char *name) {
  image_search search = {.name = name};
  pthread_mutex_lock(&mo_images_lock);
  for (const registered_images *at = mo_images; at; at = at->next)
    search_descriptor(&search, at->descriptor);
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
  const sycl_image *image = find_image(stub, shape, *name);
  size_t size = (size_t)((const char *)image->end - (const char *)image->begin);
  uint32_t magic = 0;
  if (size >= sizeof magic)
    memcpy(&magic, image->begin, sizeof magic);
  if (magic != SPIRV_MAGIC || size % sizeof(uint32_t) || strncmp(image->triple, "spirv64", 7)) {
    mo_error("the device image with the kernel %s is no SPIR-V of 64 bits (it is for %s)", *name,
             image->triple);
    refuse_kernel(stub, shape, "link the program again with mlir-offload --offload-arch=spirv64");
  }
  return (mo_sycl_module){image->compile_options, image->begin, size / sizeof(uint32_t)};
}
