/* The part of libomptarget's C interface that the runtime uses and that the fallback implements
 * (openmp/libomptarget/include/Shared/APITypes.h, omptarget.h). */
#ifndef LIBOMPTARGET_ABI_H
#define LIBOMPTARGET_ABI_H

#include <stdint.h>

#include "mgpu.h"

/* KernelArgsTy. With version 3, libomptarget would add an argument before those of the kernel. */
typedef struct kernel_arguments {
  uint32_t version;
  uint32_t argument_count;
  void **base_pointers;
  void **pointers;
  int64_t *sizes;
  int64_t *types;
  void **names;
  void **mappers;
  uint64_t trip_count;
  uint64_t flags;
  uint32_t teams[3];
  uint32_t threads[3];
  uint32_t dynamic_group_memory;
} kernel_arguments;

enum {
  KERNEL_ARGUMENTS_VERSION = 2,
  MAP_TARGET_PARAMETER = 0x020,
  MAP_LITERAL = 0x100,
};

typedef struct device_image {
  const char *begin, *end;
  const void *entries_begin, *entries_end;
} device_image;

typedef struct image_descriptor {
  int32_t image_count;
  device_image *images;
  const void *entries_begin, *entries_end;
} image_descriptor;

/* Defined in the runtime and bound within the program or library, so that the calls of
 * clang-linker-wrapper reach the fallback, or registration.c, which forwards them to libomptarget. */
MO_INTERNAL void __tgt_register_lib(image_descriptor *descriptor);
MO_INTERNAL void __tgt_unregister_lib(image_descriptor *descriptor);
MO_INTERNAL
int __tgt_target_kernel(void *location, int64_t device, int32_t teams, int32_t threads,
                        void *entry, kernel_arguments *arguments);

/* Launches a kernel of a CPU image with libomptarget or, if that one has another calling convention, the fallback. */
MO_INTERNAL int mo_start_kernel(int64_t device, void *stub, kernel_arguments *arguments);

/* The fallback, for programs without libomptarget, or with a libomptarget that has another calling convention. */
MO_INTERNAL int mo_fallback_count_devices(void);
MO_INTERNAL bool mo_fallback_has_images(void);
MO_INTERNAL void mo_fallback_register(image_descriptor *descriptor);
MO_INTERNAL void mo_fallback_unregister(image_descriptor *descriptor);
MO_INTERNAL int mo_fallback_launch(void *entry, kernel_arguments *arguments);

#endif
