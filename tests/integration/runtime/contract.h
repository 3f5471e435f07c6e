/* What gpu-to-llvm declares, and offload entries as each LLVM release lays them out. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlir_offload.h"

void *mgpuStreamCreate(void);
void mgpuStreamDestroy(void *);
void mgpuStreamSynchronize(void *);
void mgpuStreamWaitEvent(void *, void *);
void *mgpuEventCreate(void);
void mgpuEventDestroy(void *);
void mgpuEventSynchronize(void *);
void mgpuEventRecord(void *, void *);
void *mgpuMemAlloc(uint64_t, void *, bool);
void mgpuMemFree(void *, void *);
void mgpuMemcpy(void *, void *, size_t, void *);
void mgpuMemset16(void *, uint16_t, size_t, void *);
void mgpuMemset32(void *, uint32_t, size_t, void *);
void mgpuMemHostRegister(void *, uint64_t);
void mgpuMemHostRegisterMemRef(int64_t, void *, int64_t);
void mgpuMemHostUnregisterMemRef(int64_t, void *, int64_t);
void mgpuSetDefaultDevice(int32_t);
void mgpuLaunchKernel(const void *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int32_t,
                      void *, void **, void **, int64_t);
void mgpuLaunchClusterKernel(const void *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                             int64_t, int64_t, int64_t, int32_t, void *, void **, void **);
void mgpuLaunchKernelCooperative(const void *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                                 int64_t, int64_t, int64_t, int32_t, void *, void **, void **);
void *mgpuTensorMapEncodeTiledMemref(int64_t, void *, int32_t, int32_t, int32_t, int32_t, int32_t,
                                     int64_t *);
void mgpuTensorMapEncodeTiled(void *, int32_t, uint32_t, void *, const uint64_t *, const uint64_t *,
                              const uint32_t *, const uint32_t *, int32_t, int32_t, int32_t, int32_t);
void mlir_offload_launch_stub(const void *, void **);

#if LLVM_MAJOR >= 21
typedef struct entry {
  uint64_t reserved;
  uint16_t version, kind;
  uint32_t flags;
  const void *address;
  const char *name;
  uint64_t size, data;
  const void *auxiliary;
} entry;
#define ENTRY(prefix, kernel, number, section_name)                             \
  __attribute__((used, retain, section("llvm_offload_entries"), aligned(8)))            \
  const entry prefix##kernel = {0, 1, number, 0, (void *)stub_##kernel, #kernel, 0, 0, NULL};
#else
typedef struct entry {
  const void *address;
  const char *name;
  uint64_t size;
  uint32_t flags, reserved;
} entry;
#define ENTRY(prefix, kernel, number, section_name)     \
  __attribute__((used, retain, section(section_name), aligned(1))) \
  const entry prefix##kernel = {(void *)stub_##kernel, #kernel, 0, 0, 0};
#endif

/* One stub for the entries of both kinds. */
#define KERNEL(kernel)                                                            \
  static void stub_##kernel(void) { mlir_offload_launch_stub((void *)stub_##kernel, NULL); } \
  ENTRY(openmp_, kernel, 1, "omp_offloading_entries")                             \
  ENTRY(cuda_, kernel, 2, "cuda_offloading_entries")

#define LAUNCH(kernel, blocks, items, params) \
  mgpuLaunchKernel((void *)stub_##kernel, blocks, 1, 1, items, 1, 1, 0, stream, params, NULL, 0)

#define CHECK(claim)                                                  \
  do {                                                                \
    if (!(claim)) {                                                   \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #claim);      \
      exit(1);                                                        \
    }                                                                 \
  } while (0)
