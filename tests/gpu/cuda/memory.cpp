/* Memory of a device: who may touch what, and who did. */
#include <algorithm>
#include <sys/mman.h>

#include "machine.h"

namespace ptx {

namespace {

/* One range of addresses that the host cannot touch; the bytes are in another one of the same size. */
struct Arena {
  uint64_t begin = 0, used = 0, size = 1ull << 36;
  uint8_t *bytes = nullptr;

  Arena() {
    void *closed = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *open = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (closed == MAP_FAILED || open == MAP_FAILED)
      stop("no address space for the memory of the device");
    begin = (uint64_t)closed, bytes = (uint8_t *)open;
  }
};

Arena &arena() {
  static auto *made = new Arena(); /* never destroyed: programs still call at their exit */
  return *made;
}

/* By address; freed ones stay, so that their use is seen. */
std::map<uint64_t, Allocation> &allocations() {
  static auto *made = new std::map<uint64_t, Allocation>(); /* never destroyed: programs still call at their exit */
  return *made;
}

enum : uint64_t { kGap = 512 };

void poison(uint8_t *bytes, uint64_t size) {
  uint64_t word = 0xa5c3f1b7d9e8a6cfull ^ settings().seed * 0x9e3779b97f4a7c15ull;
  for (uint64_t at = 0; at < size; ++at)
    bytes[at] = (uint8_t)(word >> 8 * (at % 8));
}

} // namespace

Allocation *allocate(uint64_t size, uint64_t align, Allocation::Kind kind) {
  Arena &from = arena();
  uint64_t at = (from.used + kGap + align - 1) / align * align;
  if (at % (2 * align) == 0) /* nothing is aligned better than was asked for */
    at += align;
  if (at + size > from.size)
    return nullptr;
  from.used = at + size;
  Allocation made;
  made.size = size, made.kind = kind, made.bytes = from.bytes + at;
  made.begin = kind == Allocation::managed ? (uint64_t)made.bytes : from.begin + at;
  poison(made.bytes, size);
  return &(allocations()[made.begin] = made);
}

Allocation *register_host(void *pointer, uint64_t size) {
  Allocation made;
  made.begin = (uint64_t)pointer, made.size = size, made.bytes = (uint8_t *)pointer, made.kind = Allocation::host;
  return &(allocations()[made.begin] = made);
}

void forget_host(void *pointer) {
  auto found = allocations().find((uint64_t)pointer);
  if (found == allocations().end())
    return;
  free(found->second.words);
  allocations().erase(found);
}

Allocation *find_allocation(uint64_t address) {
  auto behind = allocations().upper_bound(address);
  if (behind == allocations().begin())
    return nullptr;
  Allocation &found = std::prev(behind)->second;
  return address - found.begin < found.size || address == found.begin ? &found : nullptr;
}

namespace {

uint8_t *resolve_global(Thread &thread, const Inst &inst, uint64_t address, uint32_t size, Purpose purpose) {
  Allocation *found = thread.last;
  if (!found || address - found->begin >= found->size)
    found = find_allocation(address);
  if (!found)
    fault(thread, inst, "access of %u bytes at 0x%llx, which is no memory of the device", size,
          (unsigned long long)address);
  if (found->is_freed)
    fault(thread, inst, "access of %u bytes at 0x%llx, %llu bytes into memory that was freed", size,
          (unsigned long long)address, (unsigned long long)(address - found->begin));
  if (address - found->begin + size > found->size)
    fault(thread, inst, "access of %u bytes at offset %llu of an allocation of %llu bytes", size,
          (unsigned long long)(address - found->begin), (unsigned long long)found->size);
  if (found->kind == Allocation::constant && purpose != kRead)
    fault(thread, inst, "constant memory is written");
  thread.last = found;
  uint8_t *bytes = found->bytes + (address - found->begin);
  bool is_store = inst.is_store && inst.vector == 1 && size <= 8;
  bool writes_same = is_store && !memcmp(&thread.get(inst.list[0]), bytes, size);
  if (found->kind != Allocation::constant)
    note_global(thread, inst, *found, address - found->begin, size, purpose, writes_same);
  return bytes;
}

const char *const kPurposes[] = {"read", "write", "atomic operation"};

[[noreturn]] void race(Thread &thread, const Inst &inst, uint64_t address, Purpose purpose, const Access &other,
                       const char *other_purpose) {
  fault(thread, inst, "data race at byte %llu of workgroup memory: %s here, %s by thread %u, and no barrier between",
        (unsigned long long)address, kPurposes[purpose], other_purpose, other.thread);
}

bool is_before(const Thread &thread, const Access &access) {
  if (access.epoch != thread.block->epoch || access.thread == thread.number)
    return true;
  return access.thread < thread.clocks.size() && access.clock <= thread.clocks[access.thread];
}

/* Keeps who reads and writes a byte, and ends the program where nothing orders the two.
 * Equal values may be written by several threads. */
void note(Thread &thread, const Inst &inst, uint64_t address, uint32_t at, Purpose purpose, bool writes_same) {
  Block &block = *thread.block;
  Shadow &shadow = block.shadow[at];
  uint16_t kind = purpose == kAtomic ? 2 : 1;
  Access own = {block.epoch, thread.clock, (uint16_t)thread.number, kind};
  Access &write = shadow.write, &read = shadow.read;
  if (write.kind && !is_before(thread, write) && !(purpose == kAtomic && write.kind == 2) && !writes_same)
    race(thread, inst, address, purpose, write, write.kind == 2 ? "atomic operation" : "write");
  if (purpose == kRead) {
    if (read.kind && read.epoch == block.epoch && read.thread != thread.number) {
      if (block.launch->kernel->needs_clocks) {
        auto &all = block.readers[at];
        if (read.kind != 3)
          all.assign(1, read);
        all.push_back(own);
      }
      read.kind = 3, read.thread = (uint16_t)thread.number;
      return;
    }
    read = own;
    return;
  }
  if (read.kind && read.epoch == block.epoch && !writes_same) {
    if (read.kind == 3 && !block.launch->kernel->needs_clocks)
      race(thread, inst, address, purpose, read, "read");
    if (read.kind == 3) {
      for (const Access &one : block.readers[at])
        if (!is_before(thread, one))
          race(thread, inst, address, purpose, one, "read");
    } else if (!is_before(thread, read)) {
      race(thread, inst, address, purpose, read, "read");
    }
  }
  read.kind = 0;
  write = own;
}

uint8_t *resolve_shared(Thread &thread, const Inst &inst, uint64_t address, uint32_t size, Purpose purpose) {
  Block *block = thread.block;
  uint32_t rank = (uint32_t)(address >> kClusterShift);
  if (rank) {
    if (rank - 1 >= block->gang->blocks.size())
      fault(thread, inst, "block %u of a cluster of %zu", rank - 1, block->gang->blocks.size());
    block = &block->gang->blocks[rank - 1];
    address &= (1u << kClusterShift) - 1;
  }
  for (const SharedRange &range : block->launch->kernel->ranges) {
    uint64_t length = &range == &block->launch->kernel->ranges.back() ? block->launch->dynamic_shared : range.size;
    if (address - range.begin >= length)
      continue;
    if (address - range.begin + size > length)
      break;
    uint32_t at = range.at + (uint32_t)(address - range.begin);
    if (block == thread.block && !(inst.flags & 128)) {
      uint64_t value = 0;
      bool is_store = inst.is_store && size <= 8;
      if (is_store)
        value = thread.get(inst.list[0]);
      for (uint32_t byte = 0; byte < size; ++byte)
        note(thread, inst, address + byte, at + byte, purpose,
             is_store && inst.vector == 1 && (uint8_t)(value >> 8 * byte) == block->shared[at + byte]);
    }
    return &block->shared[at];
  }
  fault(thread, inst, "access of %u bytes at 0x%llx of workgroup memory, in which there is no variable", size,
        (unsigned long long)address);
}

/* Whether the bytes lie in one parameter, result or argument of a call; a pointer may lead to those of a caller. */
bool is_in_parameter(const Thread &thread, uint64_t address, uint32_t size) {
  if (address < thread.param_base)
    return true;
  uint64_t at = address - thread.param_base;
  auto holds = [&](const Variable &variable) {
    return variable.address <= at && at + size <= variable.address + variable.size;
  };
  const Function &function = *thread.function;
  return std::any_of(function.params.begin(), function.params.end(), holds) ||
         std::any_of(function.results.begin(), function.results.end(), holds) ||
         std::any_of(function.locals.begin(), function.locals.end(), [&](const auto &local) {
           return local.second.space == Space::param && holds(local.second);
         });
}

} // namespace

uint8_t *resolve(Thread &thread, const Inst &inst, Space space, uint64_t address, uint32_t size, Purpose purpose) {
  if (address & (size - 1))
    fault(thread, inst, "misaligned access of %u bytes at 0x%llx", size, (unsigned long long)address);
  if (space == Space::generic && address >> 63 == 0 && (address & kSharedWindow)) {
    uint64_t window = address & kWindowMask;
    space = window == kSharedWindow ? Space::shared : window == kLocalWindow ? Space::local : Space::param;
    address &= ~kWindowMask;
  }
  switch (space) {
  case Space::shared:
    return resolve_shared(thread, inst, address, size, purpose);
  case Space::local:
    if (address + size > thread.local_stack.size() || address + size < address)
      fault(thread, inst, "access of %u bytes at 0x%llx of private memory", size, (unsigned long long)address);
    return &thread.local_stack[address];
  case Space::param:
    if (address + size > thread.param_stack.size() || address + size < address || !is_in_parameter(thread, address, size))
      fault(thread, inst, "access of %u bytes at 0x%llx of parameters", size, (unsigned long long)address);
    return &thread.param_stack[address];
  default:
    return resolve_global(thread, inst, address, size, purpose);
  }
}

void acquire(Thread &thread, const Clocks &from) {
  if (thread.clocks.size() < from.size())
    thread.clocks.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    if (thread.clocks[i] < from[i])
      thread.clocks[i] = from[i];
}

void release(Thread &thread, Clocks &into) {
  into.resize(thread.block->size);
  for (size_t i = 0; i < thread.clocks.size(); ++i)
    if (into[i] < thread.clocks[i])
      into[i] = thread.clocks[i];
  into[thread.number] = thread.clock;
  ++thread.clock;
}

} // namespace ptx
