/* The runtime of the fifth kind: it loads the image that clang-linker-wrapper registers and calls its kernels, a
 * block after the other.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libomptarget_abi.h"
#include "mgpu.h"
#include "offload_entry.h"

static const image_descriptor *fifth_images;
static void *fifth_library;

void __tgt_register_lib(image_descriptor *descriptor) { fifth_images = descriptor; }
void __tgt_unregister_lib(image_descriptor *descriptor) { (void)descriptor; }

static void load(void) {
  const device_image *image = fifth_images->images;
  size_t size = (size_t)(image->end - image->begin);
  int file = memfd_create("fifth", MFD_CLOEXEC);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  if (file >= 0 && write(file, image->begin, size) == (ssize_t)size)
    fifth_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!fifth_library) {
    mo_error("the image of the fifth device cannot be loaded: %s", dlerror());
    mo_hint("allow executable memory files");
  }
}

static void run_all(uint64_t count, mo_range body, void *argument) {
  if (count)
    body(argument, 0, count);
}

static void fail(const char *kernel, const char *message) {
  mo_error("%s", message);
  mo_context("kernel: %s", kernel);
  mo_hint("correct the kernel");
}

static void fifth_launch(const void *stub, const mo_shape *shape, void *stream, void **params) {
  mo_launch launch = {.version = MO_LAUNCH_VERSION,
                      .dynamic_shared = shape->dynamic_shared,
                      .grid = {shape->grid[0], shape->grid[1], shape->grid[2]},
                      .block = {shape->block[0], shape->block[1], shape->block[2]},
                      .parallel_for = run_all,
                      .fail = fail};
  (void)stream;
  if (!fifth_library)
    load();
  void *found = dlsym(fifth_library, mo_kernel_name(stub));
  void (*kernel)(const mo_launch *, void **);
  memcpy(&kernel, &found, sizeof kernel);
  kernel(&launch, params);
  fprintf(stderr, "the fifth device ran %s\n", mo_kernel_name(stub));
}

static char fifth_handle;
static int count_devices(void) { return 1; }
MO_NORETURN static void explain_no_device(void) { abort(); }
static void set_device(int index) { (void)index; }
static void *create(void) { return &fifth_handle; }
static void ignore(void *handle) { (void)handle; }
static void ignore_two(void *first, void *second) { (void)first, (void)second; }
static void *allocate(uint64_t size_bytes, bool is_host_shared, void *stream) {
  (void)is_host_shared, (void)stream;
  return malloc(size_bytes);
}
static void release(void *pointer, void *stream) {
  (void)stream;
  free(pointer);
}
static void copy(void *target, const void *source, size_t size_bytes, void *stream) {
  (void)stream;
  memmove(target, source, size_bytes);
}
static void fill(void *target, uint64_t value, size_t width, size_t count, void *stream) {
  (void)stream;
  for (size_t i = 0; i < count; ++i)
    memcpy((char *)target + i * width, &value, width); /* little-endian */
}
static void register_host(void *pointer, uint64_t size_bytes) { (void)pointer, (void)size_bytes; }
static void *device_pointer(void *registered) { return registered; }

static const mo_backend mo_fifth = {
    .name = "fifth",
    .count_devices = count_devices,
    .explain_no_device = explain_no_device,
    .set_device = set_device,
    .create_stream = create,
    .destroy_stream = ignore,
    .synchronize_stream = ignore,
    .wait_event = ignore_two,
    .create_event = create,
    .destroy_event = ignore,
    .synchronize_event = ignore,
    .record_event = ignore_two,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .fill = fill,
    .register_host = register_host,
    .unregister_host = ignore,
    .device_pointer = device_pointer,
    .launch = fifth_launch,
};
