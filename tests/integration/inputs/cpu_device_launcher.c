/* Runs a kernel of a CPU image on one array: LAUNCHER IMAGE KERNEL BLOCK_SIZE. Exit status 3: failed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "mo_launch.h"

static void parallel_for(uint64_t count, mo_range body, void *argument) {
  body(argument, 0, count);
}

static void fail(const char *kernel, const char *message) {
  fprintf(stderr, "%s: %s\n", kernel, message);
  exit(3);
}

int main(int argc, char **argv) {
  void *image = argc == 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
  void (*kernel)(const mo_launch *, void **) = NULL;
  if (image != NULL) *(void **)&kernel = dlsym(image, argv[2]);
  if (kernel == NULL) return 2;
  static int32_t data[4096];
  for (int i = 0; i < 4096; ++i) data[i] = i;
  void *pointer = data;
  int64_t offset = 0, size = 4096, stride = 1;
  void *params[] = {&pointer, &pointer, &offset, &size, &stride};
  mo_launch launch = {MO_LAUNCH_VERSION, 0, {2, 1, 1}, {(uint32_t)atoi(argv[3]), 1, 1}, parallel_for, fail};
  kernel(&launch, params);
  for (int i = 0; i < 8; ++i) printf("%d ", data[i]);
  return 0;
}
