/* The least that launches: hands each kernel to libomptarget by the address of its stub. */
#include <stdint.h>

#include "../../../offload/runtime/mo_launch.h"

enum { PARAMETER_LITERAL = 0x120 };

/* KernelArgsTy version 2 (offload/include/Shared/APITypes.h). */
typedef struct {
  uint32_t version, count;
  void **base_pointers, **pointers;
  int64_t *sizes, *types;
  void **names, **mappers;
  uint64_t trip_count, flags;
  uint32_t teams[3], threads[3], dynamic_shared;
} kernel_arguments;

int __tgt_target_kernel(void *, int64_t, int32_t, int32_t, void *, kernel_arguments *);
void __device_stub__saxpy(int64_t, float, void *, void *, int64_t, int64_t, int64_t, void *, void *,
                          int64_t, int64_t, int64_t);
void run(int64_t, void *, void *, int64_t, int64_t, int64_t, void *, void *, int64_t, int64_t, int64_t);

static void launch(void *stub, uint32_t grid, void **params) {
  mo_launch how = {.version = MO_LAUNCH_VERSION, .grid = {grid, 1, 1}, .block = {64, 1, 1}};
  void *values[] = {&how, params};
  int64_t sizes[] = {8, 8}, types[] = {PARAMETER_LITERAL, PARAMETER_LITERAL};
  kernel_arguments arguments = {2, 2, values, values, sizes, types, 0, 0, 0, 0, {1, 1, 1}, {1, 1, 1}, 0};
  if (__tgt_target_kernel(0, -1, 1, 1, stub, &arguments) != 0)
    __builtin_trap();
}

void *mgpuStreamCreate(void) { return 0; }
void mgpuStreamDestroy(void *stream) { (void)stream; }
void mgpuStreamSynchronize(void *stream) { (void)stream; }
void mgpuLaunchKernel(void *stub, int64_t grid, int64_t gy, int64_t gz, int64_t bx, int64_t by,
                      int64_t bz, int32_t shared, void *stream, void **params) {
  (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
  launch(stub, (uint32_t)grid, params);
}
void mlir_offload_launch_stub(void *stub, void **params) { launch(stub, 0, params); }

int main(void) {
  float x[4] = {1, 2, 3, 4};
  run(4, x, x, 0, 4, 1, x, x, 0, 4, 1);
  /* What the host code of CUDA C++ does for saxpy<<<...>>>(7, ...). */
  __device_stub__saxpy(7, 2, x, x, 0, 4, 1, x, x, 0, 4, 1);
  return 0;
}
