/* A library with the part of the runtime for sparse matrices, which makes a handle for each thread. */
#include "runtime.c"
#include "sparse.c"

__attribute__((visibility("default"))) int use(void) {
  enum { FLOAT = 0 };
  return (int)mgpuSpMVBufferSize(0, NULL, NULL, NULL, FLOAT, NULL);
}
