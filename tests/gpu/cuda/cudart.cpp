/* Registration, memory and launches of the CUDA runtime API. */
#include <cstdio>
#include <cstdlib>
#include <map>

#include "cudart.h"

namespace ptx {

namespace {

enum {
  kInvalidValue = 1, kOutOfMemory = 2, kInvalidConfiguration = 9, kInvalidSymbol = 13, kMissingConfiguration = 52,
  kInvalidDeviceFunction = 98, kNoDevice = 100, kInvalidDevice = 101, kNoKernelImage = 209, kAlreadyRegistered = 712,
  kNotRegistered = 713, kTooLarge = 720, kNotSupported = 801, kInvalidClusterSize = 912,
  kDefaultShared = 48 * 1024, kMostShared = 232448 - 1024,
};

/* One fat binary; its PTX is read when something of it is used. */
struct Program {
  const void *data = nullptr;
  std::unique_ptr<Image> image;
  Image *get() {
    if (!image) {
      std::string text = ptx_of_fat_binary(data, settings().arch);
      image = parse_image(text);
      prepare(*image);
    }
    return image.get();
  }
};
struct KernelEntry {
  Program *program;
  std::string name;
  uint64_t most_dynamic = 0;
  bool is_limit_set = false;
};
struct VariableEntry {
  Program *program;
  std::string name;
};

std::map<const void *, KernelEntry> &kernels() {
  static auto *made = new std::map<const void *, KernelEntry>(); /* never destroyed: programs still call at their exit */
  return *made;
}
std::map<const void *, VariableEntry> &variables() {
  static auto *made = new std::map<const void *, VariableEntry>(); /* never destroyed: programs still call at their exit */
  return *made;
}

thread_local int last_error;
thread_local int current_device;

int returned(int status) {
  if (status)
    last_error = status;
  return status;
}

const Variable *variable_of(Program &program, const std::string &name) {
  for (auto &module : program.get()->modules) {
    auto found = module->variables.find(name);
    if (found != module->variables.end() && !found->second->is_extern)
      return program.get()->find_variable(module.get(), name);
  }
  return nullptr;
}

bool is_inside(const Allocation *found, uint64_t address, uint64_t size) {
  return found && !found->is_freed && address - found->begin + size <= found->size;
}

} // namespace

/* Host memory that is not registered is taken as it is: copies may name it. */
uint8_t *bytes_at(void *pointer, uint64_t size) {
  uint64_t address = (uint64_t)pointer;
  Allocation *found = find_allocation(address);
  if (!found)
    return (uint8_t *)pointer;
  if (found->is_freed && found->kind != Allocation::host)
    stop("a copy uses memory of the device that was freed");
  if (found->kind != Allocation::host && !is_inside(found, address, size))
    stop("a copy of %llu bytes at offset %llu of an allocation of %llu", (unsigned long long)size,
         (unsigned long long)(address - found->begin), (unsigned long long)found->size);
  return found->bytes + (address - found->begin);
}

const Function *registered_kernel(const void *stub) {
  auto found = kernels().find(stub);
  if (found == kernels().end())
    return nullptr;
  return found->second.program->get()->find_function(nullptr, found->second.name);
}

uint64_t registered_variable(const void *host, uint64_t *size) {
  auto found = variables().find(host);
  const Variable *variable = found == variables().end() ? nullptr : variable_of(*found->second.program, found->second.name);
  if (!variable)
    return 0;
  *size = variable->size;
  return variable->address;
}

namespace {

struct Dim3 {
  unsigned x, y, z;
};
struct Attribute {
  int id;
  char padding[4];
  unsigned value[16];
};
struct Config {
  Dim3 grid, block;
  size_t shared;
  void *stream;
  Attribute *attributes;
  unsigned count;
};

int check_shape(const Launch &launch) {
  uint64_t threads = (uint64_t)launch.block[0] * launch.block[1] * launch.block[2];
  if (!threads || !launch.grid[0] || !launch.grid[1] || !launch.grid[2] || threads > 1024 || launch.block[2] > 64 ||
      launch.grid[1] > 65535 || launch.grid[2] > 65535)
    return kInvalidConfiguration;
  const Function &function = *launch.kernel->function;
  if (function.max_threads && threads > function.max_threads)
    return kInvalidValue;
  for (int axis = 0; axis < 3; ++axis) {
    if (function.required_threads[0] && launch.block[axis] != function.required_threads[axis])
      return kInvalidValue;
    if (launch.grid[axis] % launch.cluster[axis])
      return kInvalidClusterSize;
  }
  if (launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > 8)
    return kInvalidClusterSize;
  uint64_t blocks = (uint64_t)launch.grid[0] * launch.grid[1] * launch.grid[2];
  return launch.is_cooperative && blocks > 132 * (2048 / ((threads + 31) / 32 * 32)) ? kTooLarge : 0;
}

int start(const void *stub, Launch launch, void **params, void *stream) {
  std::lock_guard<std::recursive_mutex> guard(api_lock());
  auto entry = kernels().find(stub);
  if (entry == kernels().end())
    return returned(kInvalidDeviceFunction);
  if (sticky_error())
    return returned(sticky_error());
  const Function *function = registered_kernel(stub);
  if (!function || !function->is_defined)
    return returned(kNoKernelImage);
  launch.kernel = &kernel_of(*function);
  if (function->cluster[0] && launch.cluster[0] * launch.cluster[1] * launch.cluster[2] == 1)
    memcpy(launch.cluster, function->cluster, sizeof launch.cluster);
  if (int status = check_shape(launch))
    return returned(status);
  uint64_t limit = entry->second.is_limit_set ? entry->second.most_dynamic : kDefaultShared - std::min<uint64_t>(launch.kernel->static_bytes, kDefaultShared);
  if (launch.dynamic_shared > limit || launch.kernel->static_bytes > kDefaultShared)
    return returned(kInvalidValue);
  launch.params.assign(function->param_bytes, 0xc7);
  for (size_t at = 0; at < function->params.size(); ++at)
    memcpy(&launch.params[function->params[at].address], params[at], function->params[at].size);
  auto kept = std::make_shared<Launch>(std::move(launch));
  issue(stream, [kept] {
    if (int status = run_launch(*kept))
      raise_error(status);
  });
  return 0;
}

Launch shaped(Dim3 grid, Dim3 block, size_t shared) {
  Launch launch;
  launch.grid[0] = grid.x, launch.grid[1] = grid.y, launch.grid[2] = grid.z;
  launch.block[0] = block.x, launch.block[1] = block.y, launch.block[2] = block.z;
  launch.dynamic_shared = (uint32_t)shared;
  return launch;
}

int allocated(void **pointer, size_t size, Allocation::Kind kind) {
  std::lock_guard<std::recursive_mutex> guard(api_lock());
  if (!size)
    return *pointer = nullptr, 0;
  Allocation *made = size < 1ull << 34 ? allocate(size, 256, kind) : nullptr;
  *pointer = made ? (void *)made->begin : nullptr;
  return returned(made ? 0 : kOutOfMemory);
}

template <class T> int set_words(uint64_t target, T value, size_t count, void *stream) {
  std::lock_guard<std::recursive_mutex> guard(api_lock());
  if (!is_inside(find_allocation(target), target, count * sizeof value) || target % sizeof value)
    return returned(kInvalidValue);
  issue(stream, [=] {
    uint8_t *to = bytes_at((void *)target, count * sizeof value);
    for (size_t at = 0; at < count; ++at)
      memcpy(to + at * sizeof value, &value, sizeof value);
  });
  return 0;
}
int set_16(unsigned long long target, unsigned short value, size_t count, void *stream) {
  return set_words<uint16_t>(target, value, count, stream);
}
int set_32(unsigned long long target, unsigned value, size_t count, void *stream) {
  return set_words<uint32_t>(target, value, count, stream);
}

struct Call {
  Dim3 grid, block;
  size_t shared;
  void *stream;
};
thread_local std::vector<Call> calls;

} // namespace
int encode_tensor_map(void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *,
                      int, int, int, int);
} // namespace ptx

using namespace ptx;

#define LOCK std::lock_guard<std::recursive_mutex> guard(api_lock())

extern "C" {

/* Registration --------------------------------------------------------------------------------- */

void **__cudaRegisterFatBinary(const void *wrapper) {
  struct {
    uint32_t magic, version;
    const void *data;
  } content;
  memcpy(&content, wrapper, sizeof content);
  if (content.magic != 0x466243b1)
    stop("a fat binary without its wrapper");
  auto *program = new Program();
  program->data = content.data;
  return (void **)program;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
void __cudaInitModule(void **) {}
int __cudaRegisterFunction(void **handle, const void *stub, char *, const char *name, int, void *, void *, void *, void *,
                           int *) {
  kernels()[stub] = {(Program *)handle, name};
  return 0;
}
void __cudaRegisterVar(void **handle, const void *host, char *, const char *name, int, size_t, int, int) {
  variables()[host] = {(Program *)handle, name};
}
void __cudaRegisterManagedVar(void **handle, void **host, char *, const char *name, int, size_t, int, int) {
  const Variable *variable = variable_of(*(Program *)handle, name);
  if (!variable)
    return;
  if (!variable->is_managed) {
    Allocation *made = allocate(variable->size, 256, Allocation::managed);
    (void)made;
    stop("%s is registered as managed, and is not in the PTX", name);
  }
  *host = (void *)variable->address;
  variables()[host] = {(Program *)handle, name};
}
void __cudaRegisterSurface(void) {}
void __cudaRegisterTexture(void) {}
unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void *stream) {
  calls.push_back({grid, block, shared, stream});
  return 0;
}
int __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared, void **stream) {
  if (calls.empty())
    return kMissingConfiguration;
  Call &call = calls.back();
  *grid = call.grid, *block = call.block, *shared = call.shared, *stream = call.stream;
  calls.pop_back();
  return 0;
}

/* Devices and errors --------------------------------------------------------------------------- */

static const struct {
  int status;
  const char *name;
} kErrors[] = {
    {0, "cudaSuccess"}, {kInvalidValue, "cudaErrorInvalidValue"}, {kOutOfMemory, "cudaErrorMemoryAllocation"},
    {kInvalidConfiguration, "cudaErrorInvalidConfiguration"}, {kInvalidSymbol, "cudaErrorInvalidSymbol"},
    {kMissingConfiguration, "cudaErrorMissingConfiguration"}, {kInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction"},
    {kNoDevice, "cudaErrorNoDevice"}, {kInvalidDevice, "cudaErrorInvalidDevice"},
    {kNoKernelImage, "cudaErrorNoKernelImageForDevice"}, {400, "cudaErrorInvalidResourceHandle"},
    {600, "cudaErrorNotReady"}, {kAssert, "cudaErrorAssert"}, {kAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered"},
    {kNotRegistered, "cudaErrorHostMemoryNotRegistered"}, {kTrap, "cudaErrorLaunchFailure"},
    {kTooLarge, "cudaErrorCooperativeLaunchTooLarge"}, {kNotSupported, "cudaErrorNotSupported"},
    {kInvalidClusterSize, "cudaErrorInvalidClusterSize"},
};
const char *cudaGetErrorName(int status) {
  for (auto &known : kErrors)
    if (known.status == status)
      return known.name;
  return "unrecognized error code";
}
const char *cudaGetErrorString(int status) { return cudaGetErrorName(status); }
int cudaGetLastError(void) {
  int status = sticky_error() ? sticky_error() : last_error;
  last_error = 0;
  return status;
}
int cudaPeekAtLastError(void) { return sticky_error() ? sticky_error() : last_error; }
int cudaRuntimeGetVersion(int *version) { return *version = 13000, 0; }
int cudaDriverGetVersion(int *version) { return *version = 13000, 0; }
int cudaGetDeviceCount(int *count) {
  *count = settings().devices;
  return returned(*count ? 0 : kNoDevice);
}
int cudaGetDevice(int *device) { return *device = current_device, 0; }
int cudaSetDevice(int device) {
  if (device < 0 || device >= settings().devices)
    return returned(kInvalidDevice);
  current_device = device;
  return 0;
}
int cudaDeviceGetAttribute(int *value, int attribute, int) {
  switch (attribute) {
  case 1: case 2: case 3: *value = attribute == 4 ? 64 : 1024; break;
  case 4: *value = 64; break;
  case 10: *value = 32; break;
  case 16: *value = 132; break;
  case 75: *value = settings().arch / 10; break;
  case 76: *value = settings().arch % 10; break;
  case 88: *value = 0; break; /* memory of the host that nobody registered is not for the device */
  case 97: *value = kMostShared; break;
  default: *value = 1; break;
  }
  return 0;
}
int cudaDeviceReset(void) { return 0; }
int cudaSetDeviceFlags(unsigned) { return 0; }

/* Memory ----------------------------------------------------------------------------------------- */

int cudaMalloc(void **pointer, size_t size) { return allocated(pointer, size, Allocation::device); }
int cudaMallocManaged(void **pointer, size_t size, unsigned) { return allocated(pointer, size, Allocation::managed); }
int cudaMallocAsync(void **pointer, size_t size, void *stream) {
  LOCK;
  int status = allocated(pointer, size, Allocation::device);
  if (!status && *pointer)
    find_allocation((uint64_t)*pointer)->is_async = true;
  issue(stream, nullptr);
  return status;
}
int cudaMallocHost(void **pointer, size_t size) {
  LOCK;
  *pointer = aligned_alloc(256, (size + 255) / 256 * 256);
  memset(*pointer, 0xe9, size);
  register_host(*pointer, size);
  return 0;
}
int cudaHostAlloc(void **pointer, size_t size, unsigned) { return cudaMallocHost(pointer, size); }
int cudaFreeHost(void *pointer) {
  LOCK;
  force_everything();
  forget_host(pointer);
  free(pointer);
  return 0;
}
int cudaFree(void *pointer) {
  LOCK;
  if (!pointer)
    return returned(sticky_error());
  Allocation *found = find_allocation((uint64_t)pointer);
  if (!found || found->begin != (uint64_t)pointer || found->is_freed || found->kind == Allocation::host)
    return returned(kInvalidValue);
  /* For memory of cudaMallocAsync the caller has to wait; what still uses it then is told when it runs. */
  if (!found->is_async)
    force_everything();
  found->is_freed = true;
  flush_output();
  return returned(sticky_error());
}
int cudaFreeAsync(void *pointer, void *stream) {
  LOCK;
  Allocation *found = find_allocation((uint64_t)pointer);
  if (!pointer)
    return 0;
  if (!found || found->begin != (uint64_t)pointer || found->is_freed || found->kind != Allocation::device)
    return returned(kInvalidValue);
  issue(stream, [found] {
    if (found->is_freed)
      stop("memory of the device is freed twice");
    found->is_freed = true;
  });
  return 0;
}
int cudaMemGetInfo(size_t *available, size_t *total) { return *available = *total = 1ull << 34, 0; }

int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  LOCK;
  for (const void *side : {(const void *)to, from}) {
    const Allocation *found = find_allocation((uint64_t)side);
    bool wants_device = (side == to && (kind == 1 || kind == 3)) || (side == from && (kind == 2 || kind == 3));
    if ((found && found->kind != Allocation::host && !is_inside(found, (uint64_t)side, size)) || (!found && wants_device && size))
      return returned(kInvalidValue);
  }
  if (size)
    issue(stream, [=] { memmove(bytes_at(to, size), bytes_at((void *)from, size), size); });
  return 0;
}
int cudaStreamSynchronize(void *);
int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
  LOCK;
  int status = cudaMemcpyAsync(to, from, size, kind, nullptr);
  return status ? status : returned(cudaStreamSynchronize(nullptr));
}
int cudaMemsetAsync(void *target, int byte, size_t size, void *stream) {
  return size ? set_words<uint8_t>((uint64_t)target, (uint8_t)byte, size, stream) : 0;
}
int cudaMemset(void *target, int byte, size_t size) { return cudaMemsetAsync(target, byte, size, nullptr); }
int cudaHostRegister(void *pointer, size_t size, unsigned) {
  LOCK;
  uint64_t begin = (uint64_t)pointer;
  Allocation *before = size ? find_allocation(begin + size - 1) : nullptr;
  if (!size || !pointer)
    return returned(kInvalidValue);
  if (before && before->begin + before->size > begin)
    return returned(before->kind == Allocation::host ? kAlreadyRegistered : kInvalidValue);
  register_host(pointer, size);
  return 0;
}
int cudaHostUnregister(void *pointer) {
  LOCK;
  Allocation *found = find_allocation((uint64_t)pointer);
  if (!found || found->kind != Allocation::host || found->begin != (uint64_t)pointer)
    return returned(kNotRegistered);
  forget_host(pointer);
  return 0;
}
int cudaHostGetDevicePointer(void **device, void *pointer, unsigned) {
  LOCK;
  Allocation *found = find_allocation((uint64_t)pointer);
  if (!found || found->kind == Allocation::device)
    return returned(kInvalidValue);
  *device = pointer;
  return 0;
}
int cudaPointerGetAttributes(void *attributes, const void *pointer) {
  LOCK;
  struct {
    int type, device;
    const void *on_device, *on_host;
  } told = {0, -2, nullptr, pointer};
  Allocation *found = find_allocation((uint64_t)pointer);
  if (found && !found->is_freed) {
    told.type = found->kind == Allocation::host ? 1 : found->kind == Allocation::managed ? 3 : 2;
    told.device = 0;
    told.on_device = pointer;
    told.on_host = told.type == 2 ? nullptr : pointer;
  }
  memcpy(attributes, &told, sizeof told);
  return 0;
}

static int symbol_place(const void *symbol, size_t size, size_t offset, uint8_t **place) {
  uint64_t length = 0, address = registered_variable(symbol, &length);
  if (!address)
    return returned(kInvalidSymbol);
  if (offset + size > length)
    return returned(kInvalidValue);
  force_everything();
  *place = find_allocation(address)->bytes + offset;
  return 0;
}
int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, int) {
  LOCK;
  uint8_t *place = nullptr;
  int status = symbol_place(symbol, size, offset, &place);
  if (!status)
    memcpy(place, bytes_at((void *)from, size), size);
  return status;
}
int cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset, int) {
  LOCK;
  uint8_t *place = nullptr;
  int status = symbol_place(symbol, size, offset, &place);
  if (!status)
    memcpy(bytes_at(to, size), place, size);
  return status;
}
int cudaGetSymbolAddress(void **address, const void *symbol) {
  LOCK;
  uint64_t size = 0;
  *address = (void *)registered_variable(symbol, &size);
  return returned(*address ? 0 : kInvalidSymbol);
}
int cudaGetSymbolSize(size_t *size, const void *symbol) {
  LOCK;
  uint64_t found = 0;
  bool is_there = registered_variable(symbol, &found);
  *size = found;
  return returned(is_there ? 0 : kInvalidSymbol);
}

/* Launches --------------------------------------------------------------------------------------- */

int cudaLaunchKernel(const void *stub, Dim3 grid, Dim3 block, void **params, size_t shared, void *stream) {
  return start(stub, shaped(grid, block, shared), params, stream);
}
/* What nvcc of CUDA 13 calls. */
int __cudaGetKernel(const void **kernel, const void *stub) { return *kernel = stub, 0; }
int __cudaLaunchKernel(const void *kernel, Dim3 grid, Dim3 block, void **params, size_t shared, void *stream) {
  return cudaLaunchKernel(kernel, grid, block, params, shared, stream);
}
int cudaLaunchCooperativeKernel(const void *stub, Dim3 grid, Dim3 block, void **params, size_t shared, void *stream) {
  Launch launch = shaped(grid, block, shared);
  launch.is_cooperative = true;
  return start(stub, launch, params, stream);
}
int cudaLaunchKernelExC(const Config *config, const void *stub, void **params) {
  Launch launch = shaped(config->grid, config->block, config->shared);
  for (unsigned at = 0; at < config->count; ++at) {
    const Attribute &one = config->attributes[at];
    if (one.id == 4)
      memcpy(launch.cluster, one.value, sizeof launch.cluster);
    else if (one.id == 2)
      launch.is_cooperative = one.value[0];
    else
      stop("launch attribute %d is not known", one.id);
  }
  return start(stub, launch, params, config->stream);
}
int cudaFuncSetAttribute(const void *stub, int attribute, int value) {
  LOCK;
  auto found = kernels().find(stub);
  if (found == kernels().end())
    return returned(kInvalidDeviceFunction);
  const Function *function = registered_kernel(stub);
  if (attribute == 8) {
    if (function && value + (int64_t)kernel_of(*function).static_bytes > kMostShared)
      return returned(kInvalidValue);
    found->second.most_dynamic = (uint64_t)value;
    found->second.is_limit_set = true;
  }
  return 0;
}
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long, void *) {
  std::string wanted = name;
  *function = wanted == "cuMemsetD16Async" ? (void *)set_16 : wanted == "cuMemsetD32Async" ? (void *)set_32
              : wanted == "cuTensorMapEncodeTiled" ? (void *)encode_tensor_map : nullptr;
  return 0;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long flags, void *status) {
  return cudaGetDriverEntryPoint(name, function, flags, status);
}
}
