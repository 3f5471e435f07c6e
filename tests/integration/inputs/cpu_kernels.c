/* A device image of kind openmp: the kernels of golden/lowered/program.mlir, each saying its name. */
#include <stdint.h>
#include <stdio.h>

#include "../../../offload/runtime/mo_launch.h"

void saxpy(const mo_launch *launch, void **params) {
  printf("saxpy grid %u n %d\n", launch->grid[0], (int)*(int64_t *)params[0]);
}

void other(const mo_launch *launch, void **params) {
  (void)params;
  printf("other grid %u n -1\n", launch->grid[0]);
}

void __mo_k2(const mo_launch *launch, void **params) {
  (void)params;
  printf("__mo_k2 grid %u n -1\n", launch->grid[0]);
}
