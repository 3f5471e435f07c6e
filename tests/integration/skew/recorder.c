/* Stands for the HIP runtime where only registration is of interest: prints what is registered. */
#include <stdio.h>

void **__hipRegisterFatBinary(void *wrapper) {
  (void)wrapper;
  return 0;
}
void __hipUnregisterFatBinary(void **handle) { (void)handle; }
void __hipRegisterFunction(void **handle, const char *stub, char *function, const char *name) {
  (void)handle, (void)function;
  printf("%s %s\n", name, stub ? "registered" : "without address");
}
void __hipRegisterVar(void **handle, char *address, char *variable, const char *name) {
  (void)handle, (void)variable;
  printf("variable %s %s\n", name, address ? "registered" : "without address");
}
void __hipRegisterManagedVar(void) {}
void __hipRegisterSurface(void) {}
void __hipRegisterTexture(void) {}
int hipLaunchKernel(void) { return 0; }
int __hipPopCallConfiguration(void) { return 0; }
int main(void) { return 0; }
