/* Stands for the CUDA runtime where only registration is of interest: prints what is registered. */
#include <stdio.h>

void **__cudaRegisterFatBinary(void *wrapper) {
  (void)wrapper;
  return 0;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
void __cudaRegisterFunction(void **handle, const char *stub, char *function, const char *name) {
  (void)handle, (void)function;
  printf("%s %s\n", name, stub ? "registered" : "without address");
}
void __cudaRegisterVar(void) {}
void __cudaRegisterManagedVar(void) {}
void __cudaRegisterSurface(void) {}
void __cudaRegisterTexture(void) {}

void *mgpuStreamCreate(void) { return 0; }
void mgpuStreamDestroy(void *stream) { (void)stream; }
void mgpuStreamSynchronize(void *stream) { (void)stream; }
void mgpuLaunchKernel(void) {}
void mlir_offload_launch_stub(void *stub, void **params) { (void)stub, (void)params; }

int main(void) { return 0; }
