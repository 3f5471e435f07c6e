/* Kind openmp for the host triple: the CPU, through libomptarget or the fallback for it.
 *
 * Every operation is complete when its call returns. Therefore work is in stream order, and streams and
 * events have no state.
 */
#define _GNU_SOURCE 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "catch.h"
#include "host_entry.h"
#include "libomptarget_abi.h"
#include "mgpu.h"
#include "watch.h"

enum { MOST_THREADS_PER_BLOCK = 1024, ALIGNMENT = 64 };

MO_NORETURN static void hint_libomptarget(void) {
  const char *policy = getenv("OMP_TARGET_OFFLOAD");
  if (policy && *policy) {
    mo_context("OMP_TARGET_OFFLOAD is '%s'", policy);
    mo_hint("unset OMP_TARGET_OFFLOAD");
  }
  mo_hint("run with LIBOMPTARGET_INFO=-1 to see what libomptarget finds, and link with the clang "
          "of the same LLVM release as libomptarget");
}

MO_NORETURN static void host_explain_no_device(void) {
  mo_error("libomptarget offers no device for the CPU");
  hint_libomptarget();
}

static _Thread_local int mo_host_device;

static void host_set_device(int index) { mo_host_device = index; }

static char mo_host_stream, mo_host_event;

static void *host_create_stream(void) {
  mo_watch_stream(1);
  return &mo_host_stream;
}
static void host_destroy_stream(void *stream) {
  if (stream == &mo_host_stream)
    mo_watch_stream(-1);
}
static void *host_create_event(void) { return &mo_host_event; }
static void host_ignore(void *handle) { (void)handle; }
static void host_ignore_two(void *first, void *second) { (void)first, (void)second; }

static void *host_allocate(uint64_t size_bytes, bool is_host_shared, void *stream) {
  (void)is_host_shared, (void)stream;
  void *pointer = NULL;
  if (size_bytes && posix_memalign(&pointer, ALIGNMENT, size_bytes)) {
    mo_error("posix_memalign failed: ENOMEM (out of memory)");
    mo_context("while allocating %llu bytes on the host", (unsigned long long)size_bytes);
    mo_hint("use less memory at a time, or raise the limit (ulimit -v)");
  }
  return pointer;
}

static void host_release(void *pointer, void *stream) {
  (void)stream;
  free(pointer);
}

static void host_copy(void *target, const void *source, size_t size_bytes, void *stream) {
  (void)stream;
  memmove(target, source, size_bytes);
}

/* Fills by copying the beginning of the target, which is small enough to stay in the cache. */
static void fill(char *target, const void *value, size_t width, size_t count) {
  enum { SOURCE_BYTES = 4096 };
  size_t size = width * count, done = width;
  memcpy(target, value, width);
  while (done < size) {
    size_t piece = done < SOURCE_BYTES ? done : SOURCE_BYTES;
    memcpy(target + done, target, piece < size - done ? piece : size - done);
    done += piece;
  }
}

static void host_fill(void *target, uint64_t value, size_t width, size_t count, void *stream) {
  (void)stream;
  fill(target, &value, width, count); /* x86-64 is little-endian */
}

static void host_register(void *pointer, uint64_t size_bytes) { (void)pointer, (void)size_bytes; }
static void *host_device_pointer(void *registered) { return registered; }

/* The failure of a launch whose caller handles errors. It is reported after libomptarget has returned. */
typedef struct failed_launch {
  const char *kernel; /* NULL: there is none */
  char message[256];
} failed_launch;
static _Thread_local failed_launch mo_failed;

static void report_failure(const char *kernel, const char *message) {
  size_t length = strcspn(message, "\n");
  mo_error("%.*s", (int)length, message);
  mo_context("kernel: %s", kernel);
  mo_hint("%s", message[length] ? message + length + 1 : "correct the kernel; gdb and -g show its lines on the CPU");
}

static void host_fail(const char *kernel, const char *message) {
  if (!mo_has_handler() || mo_runs_blocks())
    report_failure(kernel, message);
  mo_failed.kernel = kernel;
  snprintf(mo_failed.message, sizeof mo_failed.message, "%s", message);
}

static void check_shape(const void *stub, const mo_shape *shape) {
  const uint32_t *block = shape->block;
  uint64_t planes = (uint64_t)block[0] * block[1];
  if (shape->is_cooperative) {
    mo_error("cooperative launches are not supported on the CPU");
    mo_context_of_launch(stub, shape);
    mo_hint("run this kernel on a GPU, or launch it without grid barriers");
  }
  for (int axis = 0; axis < 3; ++axis)
    if (shape->cluster[axis] && shape->grid[axis] % shape->cluster[axis]) {
      mo_error("a grid is not a multiple of its clusters");
      mo_context_of_launch(stub, shape);
      mo_hint("launch whole clusters in x, y and z");
    }
  if (planes > MOST_THREADS_PER_BLOCK || planes * block[2] > MOST_THREADS_PER_BLOCK) {
    mo_error("a block has more than %d threads", MOST_THREADS_PER_BLOCK);
    mo_context_of_launch(stub, shape);
    mo_hint("launch smaller blocks: no GPU takes larger ones either");
  }
}

static void host_launch(const void *stub, const mo_shape *shape, void *stream, void **params) {
  (void)stream;
  check_shape(stub, shape);
  const uint32_t *cluster = shape->cluster;
  mo_launch launch = {.version = cluster[0] ? MO_LAUNCH_VERSION : 1,
                      .dynamic_shared = shape->dynamic_shared,
                      .grid = {shape->grid[0], shape->grid[1], shape->grid[2]},
                      .block = {shape->block[0], shape->block[1], shape->block[2]},
                      .parallel_for = mo_run_kernel,
                      .fail = host_fail,
                      .cluster = {cluster[0], cluster[1], cluster[2]}};
  void *values[] = {&launch, params};
  int64_t sizes[] = {sizeof(void *), sizeof(void *)};
  int64_t types[] = {MAP_TARGET_PARAMETER | MAP_LITERAL, MAP_TARGET_PARAMETER | MAP_LITERAL};
  kernel_arguments arguments = {.version = KERNEL_ARGUMENTS_VERSION,
                                .argument_count = 2,
                                .base_pointers = values,
                                .pointers = values,
                                .sizes = sizes,
                                .types = types,
                                .teams = {1, 1, 1},
                                .threads = {1, 1, 1}};
  mo_watched watched = {.stub = stub, .shape = shape};
  mo_failed.kernel = NULL;
  mo_begin_uncaught();
  mo_begin_launch();
  mo_watch_begin(&watched);
  int status = mo_start_kernel(mo_host_device, (void *)stub, &arguments);
  mo_watch_end(&watched);
  mo_end_launch();
  mo_end_uncaught();
  if (mo_failed.kernel)
    report_failure(mo_failed.kernel, mo_failed.message);
  if (status) {
    mo_error("__tgt_target_kernel failed: the kernel was not launched");
    mo_context_of_launch(stub, shape);
    if (!mo_has_host_images())
      mo_hint("link again with mlir-offload, or with clang --offload-link and an object with device "
              "code before the static libraries: clang drops code that only these contain");
    hint_libomptarget();
  }
}

const mo_backend mo_host = {
    .name = "host",
    .survives_fork = true,
    .count_devices = mo_count_host_devices,
    .explain_no_device = host_explain_no_device,
    .set_device = host_set_device,
    .create_stream = host_create_stream,
    .destroy_stream = host_destroy_stream,
    .synchronize_stream = host_ignore,
    .wait_event = host_ignore_two,
    .create_event = host_create_event,
    .destroy_event = host_ignore,
    .synchronize_event = host_ignore,
    .record_event = host_ignore_two,
    .allocate = host_allocate,
    .release = host_release,
    .copy = host_copy,
    .fill = host_fill,
    .register_host = host_register,
    .unregister_host = host_ignore,
    .device_pointer = host_device_pointer,
    .launch = host_launch,
    .encode_tensor_map = mo_host_encode_tensor_map,
};
