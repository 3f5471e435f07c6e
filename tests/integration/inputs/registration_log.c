/* Stands for the CUDA and HIP runtimes and for libomptarget: prints each registration, one a line.
 *
 * MEMBERS is the number of members of an entry: 5 up to LLVM 19, 9 from 20. */
#include <stdint.h>
#include <stdio.h>

#define SYMBOLS(EACH)                                                                              \
  EACH(__device_stub__kernel) EACH(kernel) EACH(kernel_region) EACH(counter) EACH(table)           \
  EACH(factor) EACH(elsewhere) EACH(managed) EACH(managed_storage) EACH(image) EACH(samples)       \
  EACH(linked_reference)

#define DECLARE(name) extern char name[] __attribute__((weak));
SYMBOLS(DECLARE)

static const char *symbol_at(const void *address) {
#define COMPARE(name)                                                                              \
  if (address && address == name)                                                                  \
    return #name;
  SYMBOLS(COMPARE)
  return address ? "another symbol" : "nothing";
}

#define RUNTIME(kind)                                                                              \
  void **__##kind##RegisterFatBinary(void *wrapper) {                                              \
    (void)wrapper;                                                                                 \
    printf(#kind " fat binary\n");                                                                 \
    return 0;                                                                                      \
  }                                                                                                \
  void __##kind##RegisterFatBinaryEnd(void **handle) { (void)handle; }                             \
  void __##kind##UnregisterFatBinary(void **handle) { (void)handle; }                              \
  int __##kind##RegisterFunction(void **handle, const char *host, char *function,                  \
                                 const char *name) {                                               \
    (void)handle, (void)function;                                                                  \
    printf(#kind " function %s at %s\n", name, symbol_at(host));                                   \
    return 0;                                                                                      \
  }                                                                                                \
  void __##kind##RegisterVar(void **handle, char *host, char *device, const char *name,            \
                             int external, size_t size, int constant, int global) {                \
    (void)handle, (void)device, (void)global;                                                      \
    printf(#kind " variable %s at %s size %zu%s%s\n", name, symbol_at(host), size,                 \
           external ? " extern" : "", constant ? " constant" : "");                                \
  }                                                                                                \
  void __##kind##RegisterManagedVar(void **handle, void **pointer, char *initial,                  \
                                    const char *name, size_t size, unsigned align) {               \
    (void)handle;                                                                                  \
    printf(#kind " managed variable %s at %s from %s size %zu align %u\n", name,                   \
           symbol_at(pointer), symbol_at(initial), size, align);                                   \
  }                                                                                                \
  void __##kind##RegisterSurface(void **handle, const void *host, const void **device,             \
                                 const char *name, int type, int external) {                       \
    (void)handle, (void)device, (void)external;                                                    \
    printf(#kind " surface %s at %s type %d\n", name, symbol_at(host), type);                      \
  }                                                                                                \
  void __##kind##RegisterTexture(void **handle, const void *host, const void **device,             \
                                 const char *name, int type, int normalized, int external) {       \
    (void)handle, (void)device, (void)external;                                                    \
    printf(#kind " texture %s at %s type %d%s\n", name, symbol_at(host), type,                     \
           normalized ? " normalized" : "");                                                       \
  }

RUNTIME(cuda)
RUNTIME(hip)

#if MEMBERS == 5
typedef struct entry {
  void *address;
  const char *name;
  uint64_t size;
  uint32_t flags, data;
} entry;
#define IS_OPENMP(entry) 1
#else
typedef struct entry {
  uint64_t reserved;
  uint16_t version, kind;
  uint32_t flags;
  void *address;
  const char *name;
  uint64_t size, data;
  void *auxiliary;
} entry;
#define IS_OPENMP(entry) ((entry)->kind == 1)
#endif

typedef struct descriptor {
  int32_t image_count;
  void *images;
  const entry *begin, *end;
} descriptor;

void __tgt_register_lib(const descriptor *library) {
  printf("openmp images %d\n", library->image_count);
  for (const entry *at = library->begin; at != library->end; at++)
    if (IS_OPENMP(at))
      printf("openmp entry %s at %s size %zu flags %u\n", at->name, symbol_at(at->address),
             (size_t)at->size, at->flags);
}
void __tgt_unregister_lib(const descriptor *library) { (void)library; }

void mgpuLaunchKernel(void) {}
void mgpuStreamCreate(void) {}
void mgpuStreamDestroy(void) {}
void mgpuStreamSynchronize(void) {}
void mlir_offload_launch_stub(void *stub, void **params) { (void)stub, (void)params; }

int main(void) { return 0; }
