/* Report errors, and look up the names of kernels for them. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "catch.h"
#include "mgpu.h"
#include "mlir_offload.h"
#include "offload_entry.h"

/* The process in which a thread has failed. */
static atomic_int mo_reporter;

/* Returns in the first thread that fails; others wait for the end of the process. A forked child reports its own
 * errors. */
static void begin_report(void) {
  int self = getpid(), found = 0;
  while (!atomic_compare_exchange_strong(&mo_reporter, &found, self))
    if (found == self)
      pause();
}

/* Appends the line to the report for the caller that handles the error; otherwise prints it to stderr. */
static void report_line(const char *head, const char *format, va_list arguments) {
  char text[1024], line[1100];
  vsnprintf(text, sizeof text, format, arguments);
  snprintf(line, sizeof line, "%s%s\n", head, text);
  if (!mo_catch_line(line))
    fputs(line, stderr);
}

void mo_error(const char *format, ...) {
  if (!mo_catch_line(""))
    begin_report();
  /* Flush stdout, so that earlier output precedes the error. Not all streams, because another thread may
   * hold the lock of stdin during a read. */
  fflush(stdout);
  va_list arguments;
  va_start(arguments, format);
  report_line("mlir-offload: error: ", format, arguments);
  va_end(arguments);
}

void mo_context(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report_line("  ", format, arguments);
  va_end(arguments);
}

void mo_hint(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report_line("  hint: ", format, arguments);
  va_end(arguments);
  mo_throw();
  /* Not exit(), because exit handlers of a library whose device failed may never return. */
  _exit(MLIR_OFFLOAD_EXIT_STATUS);
}

void mo_context_of_launch(const void *stub, const mo_shape *shape) {
  const char *name = mo_kernel_name(stub);
  const uint32_t *grid = shape->grid, *block = shape->block;
  if (name)
    mo_context("kernel: %s", name);
  else
    mo_context("kernel: of unknown name (host stub at %p)", stub);
  mo_context("launch: grid %u x %u x %u, block %u x %u x %u, %u bytes of dynamic shared memory",
             grid[0], grid[1], grid[2], block[0], block[1], block[2], shape->dynamic_shared);
}

/* The linker defines these symbols for existing sections. */
#define MO_SECTION(section)                                            \
  extern const char __start_##section[] __attribute__((weak)) MO_INTERNAL; \
  extern const char __stop_##section[] __attribute__((weak)) MO_INTERNAL;
MO_SECTION(llvm_offload_entries)
MO_SECTION(cuda_offloading_entries)
MO_SECTION(hip_offloading_entries)
MO_SECTION(omp_offloading_entries)

typedef struct name_search {
  const void *stub;
  unsigned kind; /* 0: any */
  const char *name;
} name_search;

static void compare_entry(const offload_entry *entry, void *context) {
  name_search *search = context;
  if (entry->address == search->stub && (!search->kind || search->kind == entry->kind))
    search->name = entry->name;
}

const char *mo_kernel_name(const void *stub) { return mo_kernel_name_of_kind(stub, 0); }

const char *mo_kernel_name_of_kind(const void *stub, unsigned kind) {
  name_search search = {stub, kind, NULL};
  mo_each_entry(__start_llvm_offload_entries, __stop_llvm_offload_entries, compare_entry, &search);
  mo_each_entry(__start_cuda_offloading_entries, __stop_cuda_offloading_entries, compare_entry,
                &search);
  mo_each_entry(__start_hip_offloading_entries, __stop_hip_offloading_entries, compare_entry,
                &search);
  mo_each_entry(__start_omp_offloading_entries, __stop_omp_offloading_entries, compare_entry,
                &search);
  return search.name;
}
