/* Loads libOpenCL at run time, so that it is not required to compile and link a program, and a program for several
 * device kinds also starts without it. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "sycl.h"

opencl_functions mo_cl;
static char mo_opencl_fault[512]; /* empty: none */

static void *opencl_function(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found && !*mo_opencl_fault)
    snprintf(mo_opencl_fault, sizeof mo_opencl_fault, "libOpenCL.so.1 has no %s: it is too old",
             name);
  return found;
}

static void load_opencl(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    snprintf(mo_opencl_fault, sizeof mo_opencl_fault, "libOpenCL.so.1 was not loaded: %s",
             reason ? reason : "no reason given");
    return;
  }
#define LOAD_FUNCTION(result, name, parameters)          \
  {                                                      \
    void *found = opencl_function(library, #name);       \
    memcpy(&mo_cl.name, &found, sizeof found); /* ISO C has no cast for this */ \
  }
  OPENCL_FUNCTIONS(LOAD_FUNCTION)
#undef LOAD_FUNCTION
}

const char *mo_sycl_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load_opencl);
  return *mo_opencl_fault ? mo_opencl_fault : NULL;
}
