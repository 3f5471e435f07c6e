/* A device that the user selects by name. */
#ifndef MLIR_OFFLOAD_DEVICE_NAME_H
#define MLIR_OFFLOAD_DEVICE_NAME_H

#include <stdbool.h>

#include "mgpu.h"

#define CURRENT_INDEX (-1) /* the current device of the API */
#define OF_CLASS (1 << 16) /* from here on: an index among the devices of one class */

/* The name is stored by value, because the thread may keep it after a library is unloaded. */
typedef struct mo_device {
  char name[8]; /* empty: not chosen */
  int index;
} mo_device;

MO_INTERNAL mo_device mo_named_device(const char *name, int index);
MO_INTERNAL bool mo_parse_device(const char *text, mo_device *device);
MO_INTERNAL MO_NORETURN void mo_refuse_device(const char *origin, const char *text);

#endif
