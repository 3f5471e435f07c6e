/* Stands for the HIP runtime where only registration is of interest: prints what is registered. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { EI_ABIVERSION = 8, MAGIC_BYTES = 24 };

typedef struct {
  uint32_t magic, version;
  const char *bundle;
} fat_binary;

/* Prints which hidden argument is the first of the kernels of a code object, as its metadata lists them. */
static void print_hidden(const char *image, uint64_t size) {
  static const char *const first[] = {"hidden_block_count_x", "hidden_global_offset_x"};
  for (int one = 0; one < 2; one++)
    if (memmem(image, size, first[one], strlen(first[one]))) {
      printf("%s\n", first[one]);
      return;
    }
}

/* Prints the ABI version of each code object: clang/docs/ClangOffloadBundler.rst. */
void **__hipRegisterFatBinary(const fat_binary *wrapper) {
  const char *at = wrapper->bundle + MAGIC_BYTES;
  uint64_t count, place[3];
  memcpy(&count, at, sizeof count);
  at += sizeof count;
  for (; count; count--) {
    memcpy(place, at, sizeof place);
    if (place[1] > EI_ABIVERSION)
      printf("code object of ABI %d\n", wrapper->bundle[place[0] + EI_ABIVERSION]);
    print_hidden(wrapper->bundle + place[0], place[1]);
    at += sizeof place + place[2];
  }
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
