/* A libamdhip64 for tests. Work in a stream begins no earlier than somebody waits for it. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <set>

#include "emulator.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONFIGURATION = 9, NO_BINARY = 209, INVALID_HANDLE = 400,
       INVALID_FUNCTION = 98, NOT_READY = 600, NOT_REGISTERED = 713 };
typedef struct { unsigned x, y, z; } dim3;

static std::recursive_mutex lock;
static int last_error;
static int said(int status) { return status ? last_error = status : status; }
#define LOCKED std::lock_guard<std::recursive_mutex> mo_guard(lock)

/* --- streams -------------------------------------------------------------------------------------- */

struct Work {
  std::function<void()> body;
  std::vector<Work *> before; /* of other streams */
  bool is_done;
};
struct Stream {
  bool waits_for_default;
  std::vector<Work *> queue;
  size_t done;
};
struct Event {
  Work *after;
};
static Stream default_stream = {false, {}, 0};
static std::set<Stream *> streams;

static Stream &stream_of(void *handle) { return handle ? *(Stream *)handle : default_stream; }
static Work *last_of(Stream &stream) { return stream.queue.empty() ? nullptr : stream.queue.back(); }

static Work *enqueue(void *handle, std::function<void()> body) {
  Stream &stream = stream_of(handle);
  Work *work = new Work{std::move(body), {}, false};
  if (Work *last = last_of(stream)) work->before.push_back(last);
  if (!handle) {
    /* Work of the default stream waits for that of all others, and they for it. */
    for (Stream *other : streams)
      if (other->waits_for_default && last_of(*other)) work->before.push_back(last_of(*other));
  } else if (stream.waits_for_default && last_of(default_stream)) {
    work->before.push_back(last_of(default_stream));
  }
  stream.queue.push_back(work);
  return work;
}

static void finish(Work *work) {
  if (!work || work->is_done) return;
  std::vector<Work *> stack = {work};
  while (!stack.empty()) {
    Work *top = stack.back(), *open = nullptr;
    for (Work *before : top->before)
      if (!before->is_done) open = before;
    if (open) {
      stack.push_back(open);
      continue;
    }
    stack.pop_back();
    if (top->is_done) continue;
    top->is_done = true;
    top->body();
  }
}

static void finish_all() {
  for (Stream *stream : streams) finish(last_of(*stream));
  finish(last_of(default_stream));
}

/* --- modules -------------------------------------------------------------------------------------- */

struct Binary {
  std::unique_ptr<Module> module;
};
struct KernelName {
  Binary *binary;
  std::string name;
};
static std::map<const void *, KernelName> kernels;

static u64 number(const uint8_t *bytes, int size) {
  u64 value = 0;
  memcpy(&value, bytes, size);
  return value;
}

/* Finds the bitcode that the device link put into a code object: section .llvmbc of an ELF file. */
static std::string bitcode_of(const uint8_t *elf) {
  const uint8_t *headers = elf + number(elf + 40, 8);
  u64 size = number(elf + 58, 2), count = number(elf + 60, 2), names = number(elf + 62, 2);
  const uint8_t *strings = elf + number(headers + names * size + 24, 8);
  for (u64 i = 0; i < count; ++i) {
    const uint8_t *header = headers + i * size;
    if (strcmp((const char *)strings + number(header, 4), ".llvmbc")) continue;
    return std::string((const char *)elf + number(header + 24, 8), number(header + 32, 8));
  }
  return "";
}

extern "C" {

struct Wrapper {
  uint32_t magic, version;
  const uint8_t *binary;
};

void **__hipRegisterFatBinary(const Wrapper *wrapper) {
  LOCKED;
  const uint8_t *bundle = wrapper->binary;
  if (memcmp(bundle, "__CLANG_OFFLOAD_BUNDLE__", 24)) fail("device code that is no bundle");
  Binary *made = new Binary;
  const char *asked = getenv("AMD_EMULATOR_ARCH");
  u64 count = number(bundle + 24, 8);
  const uint8_t *entry = bundle + 32;
  for (u64 i = 0; i < count; ++i) {
    u64 offset = number(entry, 8), length = number(entry + 16, 8);
    std::string target((const char *)entry + 24, length);
    entry += 24 + length;
    if (target.find("amdgcn") == std::string::npos || made->module) continue;
    if (asked && target.find(asked) == std::string::npos) continue;
    std::string bitcode = bitcode_of(bundle + offset);
    if (bitcode.empty()) fail("a code object for %s without .llvmbc", target.c_str());
    bool is_wide = target.find("gfx9") != std::string::npos;
    made->module = load_module(bitcode.data(), bitcode.size(), is_wide ? 64 : 32);
  }
  return (void **)made;
}
void __hipUnregisterFatBinary(void **) {}
int __hipRegisterFunction(void **binary, const void *address, char *, const char *name, int, void *, void *, void *,
                          void *, int *) {
  LOCKED;
  kernels[address] = {(Binary *)binary, name};
  return SUCCESS;
}
void __hipRegisterVar(void **, void *, char *, char *, int, size_t, int, int) {}
void __hipRegisterManagedVar(void *, void **pointer, void *initial, const char *, size_t size, unsigned) {
  *pointer = malloc(size);
  memcpy(*pointer, initial, size);
  add_host_region((u64)*pointer, size);
}
void __hipRegisterSurface(void **, void *, char *, char *, int, int) {}
void __hipRegisterTexture(void **, void *, char *, char *, int, int, int) {}

/* --- devices, errors -------------------------------------------------------------------------------- */

const char *hipGetErrorName(int status) { return status ? "hipErrorOfEmulator" : "hipSuccess"; }
const char *hipGetErrorString(int status) { return status ? "error of the emulated device" : "no error"; }
int hipGetLastError(void) {
  int status = last_error;
  last_error = SUCCESS;
  return status;
}
int hipRuntimeGetVersion(int *version) { return *version = 50221153, SUCCESS; }
int hipGetDeviceCount(int *count) { return *count = 1, SUCCESS; }
int hipGetDevice(int *device) { return *device = 0, SUCCESS; }
int hipSetDevice(int device) { return said(device ? INVALID_VALUE : SUCCESS); }
int hipGetDeviceProperties(char *properties, int) {
  strcpy(properties, "emulator");
  strcpy(properties + 396, "gfx");
  return SUCCESS;
}
int hipMemGetInfo(size_t *free_bytes, size_t *total) { return *free_bytes = *total = size_t{1} << 34, SUCCESS; }
int hipFuncSetAttribute(const void *address, int, int) { return said(kernels.count(address) ? SUCCESS : INVALID_FUNCTION); }

/* --- streams and events ----------------------------------------------------------------------------- */

int hipStreamCreateWithFlags(void **stream, unsigned flags) {
  LOCKED;
  Stream *made = new Stream{!(flags & 1), {}, 0};
  streams.insert(made);
  return *stream = made, SUCCESS;
}
int hipStreamSynchronize(void *stream) {
  LOCKED;
  if (!stream)
    for (Stream *other : streams)
      if (other->waits_for_default) finish(last_of(*other));
  return finish(last_of(stream_of(stream))), SUCCESS;
}
int hipDeviceSynchronize(void) {
  LOCKED;
  return finish_all(), SUCCESS;
}
int hipStreamQuery(void *stream) {
  LOCKED;
  Work *last = last_of(stream_of(stream));
  return !last || last->is_done ? SUCCESS : NOT_READY;
}
int hipStreamDestroy(void *stream) {
  LOCKED;
  return finish(last_of(stream_of(stream))), SUCCESS;
}
int hipEventCreateWithFlags(void **event, unsigned) { return *event = new Event{nullptr}, SUCCESS; }
int hipEventDestroy(void *) { return SUCCESS; }
int hipEventRecord(void *event, void *stream) {
  LOCKED;
  return ((Event *)event)->after = enqueue(stream, [] {}), SUCCESS;
}
int hipEventSynchronize(void *event) {
  LOCKED;
  return finish(((Event *)event)->after), SUCCESS;
}
int hipEventQuery(void *event) {
  LOCKED;
  Work *after = ((Event *)event)->after;
  return !after || after->is_done ? SUCCESS : NOT_READY;
}
int hipStreamWaitEvent(void *stream, void *event, unsigned) {
  LOCKED;
  Work *work = enqueue(stream, [] {});
  if (((Event *)event)->after) work->before.push_back(((Event *)event)->after);
  return SUCCESS;
}

/* --- memory ------------------------------------------------------------------------------------------ */

int hipMalloc(void **pointer, size_t size) {
  LOCKED;
  *pointer = size ? (void *)allocate_device(size) : nullptr;
  return said(*pointer || !size ? SUCCESS : OUT_OF_MEMORY);
}
int hipMallocManaged(void **pointer, size_t size, unsigned) {
  LOCKED;
  *pointer = malloc(size);
  poison((uint8_t *)*pointer, size);
  return add_host_region((u64)*pointer, size), SUCCESS;
}
int hipFree(void *pointer) {
  LOCKED;
  finish_all();
  if (!pointer || free_device((u64)pointer)) return SUCCESS;
  if (!remove_host_region((u64)pointer)) return said(INVALID_VALUE);
  return free(pointer), SUCCESS;
}
int hipMallocAsync(void **pointer, size_t size, void *) { return hipMalloc(pointer, size); }
int hipFreeAsync(void *pointer, void *stream) {
  LOCKED;
  if (!pointer) return SUCCESS;
  if (!find_region((u64)pointer)) return said(INVALID_VALUE);
  enqueue(stream, [=] {
    if (!free_device((u64)pointer) && remove_host_region((u64)pointer)) free(pointer);
  });
  return SUCCESS;
}
int hipHostRegister(void *pointer, size_t size, unsigned) {
  LOCKED;
  return add_host_region((u64)pointer, size), SUCCESS;
}
int hipHostUnregister(void *pointer) {
  LOCKED;
  finish_all();
  return said(remove_host_region((u64)pointer) ? SUCCESS : NOT_REGISTERED);
}
int hipHostGetDevicePointer(void **device, void *host, unsigned) {
  LOCKED;
  return find_region((u64)host) ? (*device = host, SUCCESS) : said(INVALID_VALUE);
}
int hipPointerGetAttributes(void *result, const void *pointer) {
  LOCKED;
  const Region *region = find_region((u64)pointer);
  if (!region) return said(INVALID_VALUE);
  int words[2] = {region->is_device ? 2 : 1, 0};
  const void *pointers[2] = {pointer, region->is_device ? nullptr : pointer};
  memcpy(result, words, sizeof words);
  memcpy((char *)result + sizeof words, pointers, sizeof pointers);
  return SUCCESS;
}

/* Returns the bytes of device memory, or those of the host itself. */
static uint8_t *bytes_at(const void *pointer, size_t size) {
  const Region *region = find_region((u64)pointer);
  if (!region) return (uint8_t *)pointer;
  uint8_t *bytes = reach((u64)pointer, size);
  if (!bytes) fail("copy of %zu bytes that leaves the memory at %p", size, pointer);
  return bytes;
}

int hipMemcpyAsync(void *target, const void *source, size_t size, int, void *stream) {
  LOCKED;
  enqueue(stream, [=] { memmove(bytes_at(target, size), bytes_at(source, size), size); });
  return SUCCESS;
}
int hipMemcpy(void *target, const void *source, size_t size, int kind) {
  LOCKED;
  hipMemcpyAsync(target, source, size, kind, nullptr);
  return hipStreamSynchronize(nullptr);
}
extern "C++" template <typename T> int set(void *target, T value, size_t count, void *stream) {
  LOCKED;
  enqueue(stream, [=] {
    uint8_t *bytes = bytes_at(target, count * sizeof value);
    for (size_t i = 0; i < count; ++i) memcpy(bytes + i * sizeof value, &value, sizeof value);
  });
  return SUCCESS;
}
int hipMemsetD8Async(void *target, unsigned char value, size_t count, void *stream) { return set(target, value, count, stream); }
int hipMemsetD16Async(void *target, unsigned short value, size_t count, void *stream) { return set(target, value, count, stream); }
int hipMemsetD32Async(void *target, int value, size_t count, void *stream) { return set(target, value, count, stream); }

/* --- launches ---------------------------------------------------------------------------------------- */

static std::vector<uint8_t> arguments_of(const Module &module, const Function &kernel, void **params) {
  std::vector<uint8_t> bytes;
  for (size_t a = 0; a < kernel.parameters.size(); ++a) {
    LLVMTypeRef type = LLVMTypeOf(LLVMGetParam(kernel.source, a));
    u64 align = LLVMABIAlignmentOfType(module.layout, type);
    bytes.resize((bytes.size() + align - 1) / align * align);
    const uint8_t *value = (const uint8_t *)params[a];
    bytes.insert(bytes.end(), value, value + kernel.shapes[a]->size);
  }
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes;
}

/* User Guide for the AMDGPU back end, code object V5: hidden arguments; HSA: the dispatch packet. */
static void fill_implicit(uint8_t *bytes, const Launch &launch) {
  auto put = [&](int offset, u64 value, int size) { memcpy(bytes + offset, &value, size); };
  int dimensions = launch.grid[2] * launch.block[2] > 1 ? 3 : launch.grid[1] * launch.block[1] > 1 ? 2 : 1;
  for (int axis = 0; axis < 3; ++axis) {
    put(4 * axis, launch.grid[axis], 4);
    put(12 + 2 * axis, launch.block[axis], 2);
    put(18 + 2 * axis, 0, 2);
    put(40 + 8 * axis, 0, 8);
  }
  put(64, dimensions, 2);
  put(80, hostcall_buffer(), 8);
  put(120, launch.dynamic, 4);
  put(192, PRIVATE_APERTURE >> 32, 4);
  put(196, SHARED_APERTURE >> 32, 4);
}
static void fill_packet(uint8_t *bytes, const Launch &launch) {
  auto put = [&](int offset, u64 value, int size) { memcpy(bytes + offset, &value, size); };
  for (int axis = 0; axis < 3; ++axis) {
    put(4 + 2 * axis, launch.block[axis], 2);
    put(12 + 4 * axis, u64{launch.block[axis]} * launch.grid[axis], 4);
  }
}

int hipLaunchKernel(const void *address, dim3 grid, dim3 block, void **params, size_t dynamic, void *stream) {
  LOCKED;
  auto found = kernels.find(address);
  if (found == kernels.end()) return said(INVALID_FUNCTION);
  Module *module = found->second.binary->module.get();
  Function *kernel = module ? find_kernel(*module, found->second.name) : nullptr;
  if (!kernel) return said(NO_BINARY);
  u64 threads = u64{block.x} * block.y * block.z;
  if (!threads || threads > 1024 || !(u64{grid.x} * grid.y * grid.z)) return said(INVALID_CONFIGURATION);
  if (module->workgroup_size + dynamic > 65536 + 4096) return said(INVALID_VALUE);
  std::vector<uint8_t> arguments = arguments_of(*module, *kernel, params);
  enqueue(stream, [=] {
    Launch launch = {module, kernel, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, dynamic, 0, 0, 0};
    launch.arguments = allocate_device(arguments.size() + 256);
    launch.implicit = launch.arguments + arguments.size();
    launch.packet = allocate_device(64);
    if (!arguments.empty()) memcpy(reach(launch.arguments, arguments.size()), arguments.data(), arguments.size());
    fill_implicit(reach(launch.implicit, 256), launch);
    fill_packet(reach(launch.packet, 64), launch);
    run_launch(launch);
    free_device(launch.arguments);
    free_device(launch.packet);
  });
  return SUCCESS;
}
int hipLaunchCooperativeKernel(const void *address, dim3 grid, dim3 block, void **params, unsigned dynamic, void *stream) {
  return hipLaunchKernel(address, grid, block, params, dynamic, stream);
}

static struct {
  dim3 grid, block;
  size_t dynamic;
  void *stream;
} configured;
int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic, void *stream) {
  configured = {grid, block, dynamic, stream};
  return SUCCESS;
}
int __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *dynamic, void **stream) {
  *grid = configured.grid, *block = configured.block, *dynamic = configured.dynamic, *stream = configured.stream;
  return SUCCESS;
}
}
