/* Loads two libraries that hold kernels: they do not get into each other's way. */
#include <dlfcn.h>

#include "contract.h"

typedef int run_function(void);

static run_function *find(void *library, const char *name) {
  run_function *function;
  void *found = dlsym(library, name);
  CHECK(found);
  memcpy(&function, &found, sizeof found);
  return function;
}

int main(int count, char **paths) {
  CHECK(count == 3);
  void *first = dlopen(paths[1], RTLD_NOW | RTLD_LOCAL);
  void *second = dlopen(paths[2], RTLD_NOW | RTLD_LOCAL);
  if (!first || !second)
    printf("%s\n", dlerror());
  CHECK(first && second);
  CHECK(find(first, "run_library")() == 1);
  CHECK(find(second, "run_library")() == 1);
  CHECK(find(first, "run_library")() == 2);
  dlclose(first); /* its threads must not outlive its code */
  CHECK(find(second, "run_library")() == 2);
  dlclose(second);
  printf("ended\n");
  return 0;
}
