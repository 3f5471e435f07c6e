/* Intercepts the registration calls of clang-linker-wrapper to libomptarget. An embedded runtime uses the
 * fallback if the program does not have libomptarget.
 *
 * Since LLVM 21 the entries of all kinds share one section. libomptarget omits those of other kinds from its
 * device table, but looks up a kernel in that table by its index in the section. In a program for CUDA and the
 * CPU it therefore launches the wrong kernel (seen with 22.1.8). Here it gets a copy of the section with only
 * its own kind.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "host_entry.h"
#include "libomptarget_abi.h"
#include "mgpu.h"
#include "offload_entry.h"

typedef struct copied_registration {
  image_descriptor *original;
  image_descriptor copy;
  struct copied_registration *next;
} copied_registration;

static pthread_mutex_t mo_copies_lock = PTHREAD_MUTEX_INITIALIZER;
static copied_registration *mo_copies;
static bool mo_is_registered; /* set by a constructor, before other code runs */

typedef void registration_function(image_descriptor *);
typedef int count_function(void);
typedef int launch_function(void *, int64_t, int32_t, int32_t, void *, kernel_arguments *);

/* A function of libomptarget: ISO C has no cast from a pointer to data. */
typedef union libomptarget_function {
  void *address;
  registration_function *registration;
  count_function *count;
  launch_function *launch;
} libomptarget_function;

/* Searches the libraries that this library was linked with or, in a program, those of the program. A process may
 * contain several releases of libomptarget, which become globally visible when they load an image. The runtime's own
 * function is hidden. */
static void *address_of_registration(void) {
  Dl_info self;
  void *library = NULL;
  if (dladdr(&mo_copies, &self))
    library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void *found = dlsym(library ? library : RTLD_DEFAULT, "__tgt_register_lib");
  if (library)
    dlclose(library);
  return found;
}

/* Searches libomptarget itself, because libgomp also defines omp_get_num_devices. Returns a NULL address if there is
 * none. */
static libomptarget_function find_in_libomptarget(const char *name) {
  Dl_info known;
  libomptarget_function found = {NULL};
  void *registration = address_of_registration(), *library = NULL;
  if (registration && dladdr(registration, &known))
    library = dlopen(known.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (library) {
    found.address = dlsym(library, name);
    dlclose(library); /* RTLD_NODELETE keeps it loaded, even if its users are unloaded */
  }
  return found;
}

static libomptarget_function function_of_libomptarget(const char *name) {
  libomptarget_function found = find_in_libomptarget(name);
  if (!found.address) {
    mo_error("dlsym failed: %s is not in libomptarget", name);
    mo_hint("install the libomptarget that the program was linked with, or link it again");
  }
  return found;
}

/* libomptarget crashes if it is queried before an image is registered (seen with 22.1.8). Without kernels, the CPU
 * is still a device. */
static int count_devices_of_libomptarget(void) {
  return mo_is_registered ? function_of_libomptarget("omp_get_num_devices").count() : 1;
}

typedef struct entry_filter {
  char *end;
  bool has_others;
} entry_filter;

static void keep_openmp(const offload_entry *entry, void *context) {
  entry_filter *filter = context;
  if (entry->kind && entry->kind != OFFLOAD_KIND_OPENMP) {
    filter->has_others = true;
    return;
  }
  memcpy(filter->end, entry->raw, entry->raw_size);
  filter->end += entry->raw_size;
}

/* Returns a copy with only the entries of libomptarget's kind, NULL if there are no others. */
static copied_registration *copy_filtered(image_descriptor *original) {
  const char *begin = original->entries_begin, *end = original->entries_end;
  size_t size = (size_t)(end - begin);
  size_t count = (size_t)original->image_count;
  char *entries = malloc(size + 1);
  device_image *images = calloc(count + 1, sizeof *images);
  copied_registration *copied = malloc(sizeof *copied);
  if (!entries || !images || !copied) {
    mo_error("out of host memory while registering device code");
    mo_hint("free host memory");
  }
  entry_filter filter = {entries, false};
  mo_each_entry(original->entries_begin, original->entries_end, keep_openmp, &filter);
  if (!filter.has_others) {
    free(entries), free(images), free(copied);
    return NULL;
  }
  for (size_t i = 0; i < count; ++i)
    images[i] = (device_image){original->images[i].begin, original->images[i].end, entries,
                               filter.end};
  *copied = (copied_registration){
      original, {original->image_count, images, entries, filter.end}, NULL};
  return copied;
}

static void register_with_libomptarget(image_descriptor *descriptor) {
  copied_registration *copied = copy_filtered(descriptor);
  mo_is_registered = true;
  if (copied) {
    pthread_mutex_lock(&mo_copies_lock);
    copied->next = mo_copies;
    mo_copies = copied;
    pthread_mutex_unlock(&mo_copies_lock);
  }
  function_of_libomptarget("__tgt_register_lib").registration(copied ? &copied->copy : descriptor);
}

/* The copy itself is not freed, because it is unknown when libomptarget last reads it. */
static void unregister_from_libomptarget(image_descriptor *descriptor) {
  if (!mo_end_launches())
    return;
  pthread_mutex_lock(&mo_copies_lock);
  copied_registration *copied = mo_copies;
  while (copied && copied->original != descriptor)
    copied = copied->next;
  pthread_mutex_unlock(&mo_copies_lock);
  function_of_libomptarget("__tgt_unregister_lib").registration(copied ? &copied->copy : descriptor);
}

#ifdef MLIR_OFFLOAD_EMBEDDED
/* The result does not change while the program runs. */
static bool has_libomptarget(void) {
  enum { UNKNOWN, ABSENT, PRESENT };
  static _Atomic int answer;
  if (answer == UNKNOWN)
    answer = address_of_registration() ? PRESENT : ABSENT;
  return answer == PRESENT;
}
#else
static bool has_libomptarget(void) { return true; }

/* Prevents the linker from dropping libomptarget as unused. */
void __tgt_target_data_begin_mapper(void);
__attribute__((used)) static void (*const mo_libomptarget)(void) = __tgt_target_data_begin_mapper;
#endif

/* Up to LLVM 22 libomptarget calls a CPU kernel with its arguments, from 23 on (#186261) with a pointer to them,
 * which CPU kernel images do not support. A function that was added in 23 identifies the release. */
static bool calls_our_kernels(void) {
  enum { UNKNOWN, NO, YES };
  static _Atomic int answer;
  if (answer == UNKNOWN)
    answer = find_in_libomptarget("__tgt_register_rpc_callback").address ? NO : YES;
  return answer == YES;
}

static bool uses_fallback(void) { return !has_libomptarget() || !calls_our_kernels(); }

int mo_count_host_devices(void) {
  return uses_fallback() ? mo_fallback_count_devices() : count_devices_of_libomptarget();
}

bool mo_has_host_images(void) { return mo_is_registered || mo_fallback_has_images(); }

/* libomptarget always handles target regions of clang's OpenMP objects. */
void __tgt_register_lib(image_descriptor *descriptor) {
  if (has_libomptarget())
    register_with_libomptarget(descriptor);
  if (uses_fallback())
    mo_fallback_register(descriptor);
}

void __tgt_unregister_lib(image_descriptor *descriptor) {
  if (uses_fallback())
    mo_fallback_unregister(descriptor);
  if (has_libomptarget())
    unregister_from_libomptarget(descriptor);
}

/* The host code of clang's OpenMP objects in the same program also calls this function. */
int __tgt_target_kernel(void *location, int64_t device, int32_t teams, int32_t threads, void *entry,
                        kernel_arguments *arguments) {
  static _Atomic(launch_function *) launch;
  if (!has_libomptarget())
    return mo_fallback_launch(entry, arguments);
  if (!launch)
    launch = function_of_libomptarget("__tgt_target_kernel").launch;
  return launch(location, device, teams, threads, entry, arguments);
}

int mo_start_kernel(int64_t device, void *stub, kernel_arguments *arguments) {
  return uses_fallback() ? mo_fallback_launch(stub, arguments)
                        : __tgt_target_kernel(NULL, device, 1, 1, stub, arguments);
}
