/* Replaces libomptarget if the LLVM release does not have it: implements the registration functions that
 * clang-linker-wrapper calls, and __tgt_target_kernel for CPU images. The symbols are hidden, so that each
 * program or library registers with its own copy.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host_entry.h"
#include "libomptarget_abi.h"
#include "mgpu.h"
#include "offload_entry.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U /* Linux 6.3; older kernels reject the flag and do not require it */
#endif

typedef struct loaded_image {
  const char *begin;
  size_t size;
  void *library; /* NULL: not loaded yet */
  int file;
  dev_t device; /* identifies the file, because the program may have closed and reused its descriptor */
  ino_t inode;
} loaded_image;

typedef struct registration {
  image_descriptor *descriptor;
  loaded_image *images;
  struct registration *next;
} registration;

typedef void kernel_function(const mo_launch *, void **);

/* A hash table of kernels by entry address, with open addressing. Constructors of the same program or library
 * register the kernels before its code can launch, so that launches read without a lock. */
typedef struct kernel {
  const void *entry;
  const char *name;
  registration *origin;
  kernel_function *_Atomic function; /* NULL until the first launch */
} kernel;

typedef struct kernel_table {
  size_t slot_count, used;
  kernel slots[];
} kernel_table;

static pthread_mutex_t mo_registry_lock = PTHREAD_MUTEX_INITIALIZER;
static registration *mo_registrations;
static kernel_table *mo_kernels;

int mo_fallback_count_devices(void) {
  const char *policy = getenv("OMP_TARGET_OFFLOAD");
  return !(policy && !strcasecmp(policy, "disabled"));
}

bool mo_fallback_has_images(void) { return mo_registrations != NULL; }

static kernel *find_slot(kernel_table *table, const void *entry) {
  size_t slot = ((uintptr_t)entry >> 4) * 0x9E3779B97F4A7C15u >> 20 & (table->slot_count - 1);
  while (table->slots[slot].entry && table->slots[slot].entry != entry)
    slot = (slot + 1) & (table->slot_count - 1);
  return &table->slots[slot];
}

MO_NORETURN static void out_of_memory(void) {
  mo_error("out of host memory while registering device code");
  mo_hint("free host memory");
}

/* Returns a table with room for another kernel. The caller must hold the lock. */
static kernel_table *roomy_table(void) {
  kernel_table *old = mo_kernels;
  if (old && 2 * (old->used + 1) <= old->slot_count)
    return old;
  size_t slot_count = old ? 2 * old->slot_count : 32;
  kernel_table *table = calloc(1, sizeof *table + slot_count * sizeof *table->slots);
  if (!table)
    out_of_memory();
  table->slot_count = slot_count;
  for (size_t i = 0; old && i < old->slot_count; ++i) {
    kernel *from = &old->slots[i];
    if (from->entry) {
      *find_slot(table, from->entry) = (kernel){from->entry, from->name, from->origin, NULL};
      ++table->used;
    }
  }
  free(old);
  mo_kernels = table;
  return table;
}

static void add_kernel(const offload_entry *entry, void *origin) {
  if (entry->size || (entry->kind && entry->kind != OFFLOAD_KIND_OPENMP))
    return; /* a variable, or an entry of another kind in the same section */
  kernel_table *table = roomy_table();
  kernel *slot = find_slot(table, entry->address);
  table->used += !slot->entry;
  *slot = (kernel){entry->address, entry->name, origin, NULL};
}

void mo_fallback_register(image_descriptor *descriptor) {
  registration *added = calloc(1, sizeof *added);
  size_t count = (size_t)descriptor->image_count;
  loaded_image *images = calloc(count ? count : 1, sizeof *images);
  if (!added || !images)
    out_of_memory();
  for (size_t i = 0; i < count; ++i) {
    images[i].begin = descriptor->images[i].begin;
    images[i].size = (size_t)(descriptor->images[i].end - descriptor->images[i].begin);
  }
  pthread_mutex_lock(&mo_registry_lock);
  *added = (registration){.descriptor = descriptor, .images = images, .next = mo_registrations};
  mo_registrations = added;
  mo_each_entry(descriptor->entries_begin, descriptor->entries_end, add_kernel, added);
  pthread_mutex_unlock(&mo_registry_lock);
}

static void close_file(const loaded_image *image) {
  struct stat found;
  if (!fstat(image->file, &found) && found.st_dev == image->device && found.st_ino == image->inode)
    close(image->file);
}

static void unload(registration *gone) {
  for (int i = 0; i < gone->descriptor->image_count; ++i)
    if (gone->images[i].library) {
      close_file(&gone->images[i]);
      dlclose(gone->images[i].library);
    }
  free(gone->images);
}

void mo_fallback_unregister(image_descriptor *descriptor) {
  if (!mo_end_launches())
    return;
  pthread_mutex_lock(&mo_registry_lock);
  registration **link = &mo_registrations;
  while (*link && (*link)->descriptor != descriptor)
    link = &(*link)->next;
  registration *gone = *link;
  if (gone) {
    *link = gone->next;
    kernel_table *table = mo_kernels;
    for (size_t i = 0; table && i < table->slot_count; ++i)
      if (table->slots[i].origin == gone) {
        table->slots[i].origin = NULL;
        table->slots[i].function = NULL;
      }
    unload(gone);
    free(gone);
  }
  pthread_mutex_unlock(&mo_registry_lock);
}

/* LLVM 14 to 16 register an offload binary, later releases the image in it. */
static void unwrap_image(loaded_image *image) {
  static const unsigned char magic[] = {0x10, 0xFF, 0x10, 0xAD};
  uint64_t entry_offset, image_offset, image_size;
  if (image->size < 32 || memcmp(image->begin, magic, sizeof magic))
    return;
  memcpy(&entry_offset, image->begin + 16, sizeof entry_offset);
  if (entry_offset > image->size || image->size - entry_offset < 40)
    return;
  memcpy(&image_offset, image->begin + entry_offset + 24, sizeof image_offset);
  memcpy(&image_size, image->begin + entry_offset + 32, sizeof image_size);
  if (image_offset > image->size || image->size - image_offset < image_size)
    return;
  image->begin += image_offset;
  image->size = image_size;
}

MO_NORETURN static void cannot_load(const char *call, const char *reason) {
  mo_error("%s failed: %s", call, reason);
  mo_context("while loading the device image for the CPU");
  mo_hint("allow executable memory files (sysctl vm.memfd_noexec=0), and check that the "
          "libraries named above are installed");
}

enum { FIRST_DESCRIPTOR = 3 }; /* smaller numbers are standard streams, even if closed */

/* Moves the descriptor to the first free number from `first` on. */
static int moved_file(int file, int first) {
  int moved = fcntl(file, F_DUPFD_CLOEXEC, first);
  if (moved < 0)
    cannot_load("fcntl(F_DUPFD_CLOEXEC)", strerror(errno));
  close(file);
  return moved;
}

static int memory_file(const loaded_image *image) {
  int file = memfd_create("mlir-offload-image", MFD_CLOEXEC | MFD_EXEC);
  if (file < 0 && errno == EINVAL)
    file = memfd_create("mlir-offload-image", MFD_CLOEXEC);
  if (file < 0)
    cannot_load("memfd_create", strerror(errno));
  for (size_t done = 0; done < image->size;) {
    ssize_t written = write(file, image->begin + done, image->size - done);
    if (written < 0 && errno != EINTR)
      cannot_load("write", strerror(errno));
    done += written > 0 ? (size_t)written : 0;
  }
  return file < FIRST_DESCRIPTOR ? moved_file(file, FIRST_DESCRIPTOR) : file;
}

/* Opens the file under a name that no loaded image has; otherwise the loader would return that image. If the program
 * closes the descriptor of an image, its number may be reused while the image keeps its name. */
static void *open_under_new_name(int *file) {
  char path[64];
  for (;;) {
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), *file);
    void *loaded = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!loaded)
      return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    dlclose(loaded);
    *file = moved_file(*file, *file + 1);
  }
}

/* The file stays open, and its name contains the process ID instead of /proc/self, so that debuggers and the
 * symbolizers of sanitizers can read the image by the name that the loader recorded. */
static void load_image(loaded_image *image) {
  struct stat file;
  unwrap_image(image);
  image->file = memory_file(image);
  image->library = open_under_new_name(&image->file);
  if (!image->library)
    cannot_load("dlopen", dlerror());
  if (fstat(image->file, &file))
    cannot_load("fstat", strerror(errno));
  image->device = file.st_dev;
  image->inode = file.st_ino;
}

/* The caller must hold the lock. */
static kernel_function *resolve(kernel *wanted) {
  registration *origin = wanted->origin;
  void *found = NULL;
  for (int i = 0; origin && !found && i < origin->descriptor->image_count; ++i) {
    if (!origin->images[i].library)
      load_image(&origin->images[i]);
    found = dlsym(origin->images[i].library, wanted->name);
  }
  if (!found) {
    mo_error("kernel %s is not in the device image for the CPU", wanted->name);
    mo_hint("compile the file that holds the kernel with --offload-arch=host, and link again");
  }
  kernel_function *function;
  memcpy(&function, &found, sizeof function); /* ISO C has no cast for this */
  wanted->function = function;
  return function;
}

int mo_fallback_launch(void *entry, kernel_arguments *arguments) {
  kernel_table *table = mo_kernels;
  kernel *found = table ? find_slot(table, entry) : NULL;
  if (!found || !found->entry)
    return -1; /* the entry is not registered; libomptarget returns the same */
  kernel_function *function = found->function;
  if (!function) {
    pthread_mutex_lock(&mo_registry_lock);
    function = resolve(found);
    pthread_mutex_unlock(&mo_registry_lock);
  }
  function(arguments->pointers[0], arguments->pointers[1]);
  return 0;
}

#ifdef MLIR_OFFLOAD_OMPTARGET_FALLBACK
int mo_count_host_devices(void) { return mo_fallback_count_devices(); }

bool mo_has_host_images(void) { return mo_fallback_has_images(); }

void __tgt_register_lib(image_descriptor *descriptor) { mo_fallback_register(descriptor); }

void __tgt_unregister_lib(image_descriptor *descriptor) { mo_fallback_unregister(descriptor); }

int __tgt_target_kernel(void *location, int64_t device, int32_t teams, int32_t threads, void *entry,
                        kernel_arguments *arguments) {
  (void)location, (void)device, (void)teams, (void)threads;
  return mo_fallback_launch(entry, arguments);
}

int mo_start_kernel(int64_t device, void *stub, kernel_arguments *arguments) {
  (void)device;
  return mo_fallback_launch(stub, arguments);
}
#endif
