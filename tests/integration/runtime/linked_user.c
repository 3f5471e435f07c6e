/* Linked against two libraries with kernels: what is set once holds for both. */
#include "contract.h"

int run_library(void);
void *stream_of_library(void);
void *stream_of_other(void);

int main(int count, char **arguments) {
  int mine;
  (void)arguments;
  mlir_offload_set_stream(&mine);
  CHECK(stream_of_library() == &mine);
  CHECK(stream_of_other() == &mine);
  mlir_offload_set_stream(NULL);
  CHECK(run_library() == 1);
  if (count > 1)
    mlir_offload_set_device("cuda:3");
  CHECK(run_library() == 2);
  printf("ended\n");
  return 0;
}
