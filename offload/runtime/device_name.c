/* The device names for MLIR_OFFLOAD_DEVICE and mlir_offload_set_device. */
#define _GNU_SOURCE 1
#include "device_name.h"

#include <stdlib.h>
#include <string.h>

#include "mgpu.h"

mo_device mo_named_device(const char *name, int index) {
  mo_device device = {.index = index};
  memccpy(device.name, name, 0, sizeof device.name);
  return device;
}

/* Parses ":N" or an empty text. Returns N, `otherwise` for an empty text, -1 for another text. */
static int parse_number(const char *text, int otherwise) {
  if (!*text)
    return otherwise;
  if (text[0] != ':' || text[1] < '0' || text[1] > '9')
    return -1;
  char *end;
  long index = strtol(text + 1, &end, 10);
  return !*end && index < OF_CLASS ? (int)index : -1;
}

/* Parses a device name of the SYCL runtime: "level_zero:gpu:0", "opencl:cpu:0". OpenCL is used for both. */
static bool parse_sycl_device(const char *text, mo_device *device) {
  static const struct {
    const char *name;
    mo_device_class of;
  } classes[] = {{"level_zero:gpu", MO_GPU}, {"opencl:gpu", MO_GPU}, {"opencl:acc", MO_ACCELERATOR},
                 {"opencl:cpu", MO_CPU}};
  for (size_t i = 0; i < sizeof classes / sizeof *classes; ++i) {
    size_t length = strlen(classes[i].name);
    if (strncmp(text, classes[i].name, length))
      continue;
    int number = parse_number(text + length, 0);
    *device = mo_named_device("sycl", (classes[i].of + 1) * OF_CLASS + number);
    return number >= 0;
  }
  return false;
}

/* Parses "cuda", "cuda:N", "hip", "hip:N", "sycl", "sycl:N", "host", or a name of the SYCL runtime. */
bool mo_parse_device(const char *text, mo_device *device) {
  static const char *const names[] = {"cuda", "hip", "sycl", "host",
#ifdef MLIR_OFFLOAD_OTHER_DEVICE
                                      MLIR_OFFLOAD_OTHER_DEVICE
#endif
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    size_t length = strlen(names[i]);
    if (strncmp(text, names[i], length))
      continue;
    *device = mo_named_device(names[i], CURRENT_INDEX);
    if (!text[length])
      return true;
    device->index = strcmp(names[i], "host") ? parse_number(text + length, CURRENT_INDEX) : -1;
    return device->index >= 0;
  }
  return parse_sycl_device(text, device);
}

void mo_refuse_device(const char *origin, const char *text) {
  mo_error("unknown device '%s' in %s", text, origin);
  mo_hint("write 'cuda', 'cuda:N' (N counts the devices from 0), 'hip', 'hip:N', 'sycl', 'sycl:N', "
          "'level_zero:gpu:N', 'opencl:gpu:N', 'opencl:cpu:N' or 'host'");
}
