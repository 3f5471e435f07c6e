/* Copies that threads wait for later: cp.async, mbarrier, bulk copies and tensor maps; addresses of a cluster. */
#include "number.h"
#include "select.h"

namespace ptx {

namespace {

uint64_t at(const Thread &t, const Inst &i, uint32_t place) { return t.get(i.list[place]); }
uint64_t address(const Thread &t, const Inst &i, uint32_t place) {
  uint64_t found = at(t, i, place) + at(t, i, place + 1);
  return (found & kWindowMask) == kSharedWindow ? found & ~kWindowMask : found;
}

/* cp.async ----------------------------------------------------------------------------------- */

void finish(Thread &t, const Inst &i, const std::vector<Copy> &copies) {
  for (const Copy &copy : copies) {
    uint8_t *to = resolve(t, i, Space::shared, copy.target, copy.size, kWrite);
    memset(to, 0, copy.size);
    if (copy.read) {
      uint8_t bytes[16];
      for (uint32_t byte = 0; byte < copy.read; ++byte)
        bytes[byte] = *resolve(t, i, Space::global, copy.source + byte, 1, kRead);
      memcpy(to, bytes, copy.read);
    }
  }
}
void finish_groups(Thread &t, const Inst &i, size_t left) {
  while (t.groups.size() > left) {
    finish(t, i, t.groups.front());
    t.groups.erase(t.groups.begin());
  }
}

/* list: target, source, size, size that is read or a predicate to ignore the source */
Step copy_async(Thread &t, const Inst &i) {
  uint32_t size = (uint32_t)at(t, i, 4), read = i.list_size > 5 ? (uint32_t)at(t, i, 5) : size;
  uint64_t target = address(t, i, 0), source = address(t, i, 2);
  if (target % size || source % size)
    fault(t, i, "misaligned copy of %u bytes from 0x%llx to 0x%llx", size, (unsigned long long)source,
          (unsigned long long)target);
  t.copies.push_back({target, source, size, read < size ? read : size});
  return kNext;
}
Step commit_group(Thread &t, const Inst &) {
  t.groups.push_back(std::move(t.copies));
  t.copies.clear();
  return kNext;
}
Step wait_group(Thread &t, const Inst &i) {
  finish_groups(t, i, i.list_size ? (size_t)at(t, i, 0) : 0);
  return kNext;
}
Step wait_all(Thread &t, const Inst &i) {
  commit_group(t, i);
  finish_groups(t, i, 0);
  return kNext;
}

/* mbarrier: the content of its 64 bits is the implementation's. ------------------------------- */

struct Mbarrier {
  uint64_t expected : 20, pending : 20, bytes : 23, phase : 1; /* bytes: what is still to come, with a bias */
};
enum : uint64_t { kBias = 1u << 22 };

Block &block_of(Thread &t, uint64_t address) {
  uint32_t rank = (uint32_t)(address >> kClusterShift);
  return rank ? t.block->gang->blocks[rank - 1] : *t.block;
}
uint64_t own_address(uint64_t address) { return address & ((1u << kClusterShift) - 1); }

template <class F> Mbarrier change(Thread &t, const Inst &i, uint64_t address, F f) {
  uint8_t *place = resolve(t, i, Space::shared, address, 8, kAtomic);
  Mbarrier barrier;
  memcpy(&barrier, place, 8);
  Mbarrier before = barrier;
  f(barrier);
  if (!barrier.pending && barrier.bytes == kBias) {
    barrier.phase = !barrier.phase;
    barrier.pending = barrier.expected;
  }
  memcpy(place, &barrier, 8);
  return before;
}
void arrive(Thread &t, const Inst &i, Mbarrier &barrier, uint64_t count) {
  if (barrier.pending < count)
    fault(t, i, "%llu threads arrive at an mbarrier that waits for %u", (unsigned long long)count, (unsigned)barrier.pending);
  barrier.pending -= count;
}

Step mbarrier_init(Thread &t, const Inst &i) {
  Mbarrier made = {at(t, i, 2), at(t, i, 2), kBias, 0};
  memcpy(resolve(t, i, Space::shared, address(t, i, 0), 8, kWrite), &made, 8);
  return kNext;
}
/* `code`: 1 expects bytes, 2 drops, 4 has a result; list: result, address, count or bytes */
Step mbarrier_arrive(Thread &t, const Inst &i) {
  uint32_t first = i.code & 4 ? 1 : 0;
  uint64_t place = address(t, i, first), number = i.list_size > first + 2 ? (uint32_t)at(t, i, first + 2) : 1;
  release(t, block_of(t, place).released[own_address(place)]);
  Mbarrier before = change(t, i, place, [&](Mbarrier &barrier) {
    if (i.code & 1)
      barrier.bytes += number;
    if (i.code & 2)
      --barrier.expected;
    arrive(t, i, barrier, i.code & 1 ? 1 : number);
  });
  uint64_t state;
  memcpy(&state, &before, 8);
  if (i.code & 4)
    put(t, i.list[0], state);
  return kNext;
}
/* `code`: 0 expect_tx, 1 complete_tx */
Step mbarrier_bytes(Thread &t, const Inst &i) {
  uint64_t number = (uint32_t)at(t, i, 2);
  change(t, i, address(t, i, 0), [&](Mbarrier &barrier) { barrier.bytes += i.code ? 0 - number : number; });
  return kNext;
}
/* `code`: 1 parity; list: predicate, address, state or parity. What was copied for the barrier arrives now. */
Step mbarrier_test(Thread &t, const Inst &i) {
  uint64_t place = address(t, i, 1);
  Block &block = block_of(t, place);
  auto waiting = block.arriving.find(own_address(place));
  if (waiting != block.arriving.end()) {
    auto work = std::move(waiting->second);
    block.arriving.erase(waiting);
    for (auto &one : work)
      one();
  }
  Mbarrier barrier;
  memcpy(&barrier, resolve(t, i, Space::shared, place, 8, kAtomic), 8);
  uint64_t wanted = at(t, i, 3);
  bool phase = i.code ? wanted & 1 : wanted >> 63;
  bool is_complete = barrier.phase != phase;
  if (is_complete)
    acquire(t, block.released[own_address(place)]);
  else
    t.budget = 0; /* others go on */
  put(t, i.list[0], is_complete);
  return kNext;
}
Step mbarrier_pending(Thread &t, const Inst &i) {
  Mbarrier barrier;
  uint64_t state = at(t, i, 1);
  memcpy(&barrier, &state, 8);
  put(t, i.list[0], barrier.pending);
  return kNext;
}
/* Arrives when the copies of the thread have been made: they are made now. `code` 1: noinc. */
Step copies_arrive(Thread &t, const Inst &i) {
  for (auto &group : t.groups)
    finish(t, i, group);
  finish(t, i, t.copies);
  t.groups.assign(t.groups.size(), {});
  t.copies.clear();
  uint64_t place = address(t, i, 0);
  release(t, block_of(t, place).released[own_address(place)]);
  change(t, i, place, [&](Mbarrier &barrier) {
    if (!i.code)
      ++barrier.pending;
    arrive(t, i, barrier, 1);
  });
  return kNext;
}

/* Bulk copies ---------------------------------------------------------------------------------- */

/* What cuTensorMapEncodeTiled leaves here; NVIDIA does not document what it leaves. */
struct TensorMap {
  uint32_t magic;
  uint8_t rank, element, swizzle, fill;
  uint64_t address, dims[5], strides[4];
  uint16_t box[5], steps[5];
};
enum : uint32_t { kTensorMap = 0x3a70c0de };
static_assert(sizeof(TensorMap) <= 128);

uint64_t swizzled(uint64_t address, uint8_t swizzle) {
  return swizzle ? address ^ ((address >> 7 & ((1u << swizzle) - 1)) << 4) : address;
}

TensorMap tensor_map(Thread &t, const Inst &i, uint64_t place) {
  TensorMap map;
  uint8_t bytes[128];
  for (uint32_t half = 0; half < 2; ++half)
    memcpy(bytes + 64 * half, resolve(t, i, Space::generic, place + 64 * half, 64, kRead), 64);
  memcpy(&map, bytes, sizeof map);
  if (map.magic != kTensorMap)
    fault(t, i, "0x%llx is no tensor map", (unsigned long long)place);
  return map;
}

/* Copies a box, element by element; elements outside of the tensor are zero, or are not written. */
void copy_box(Thread &t, const Inst &i, const TensorMap &map, const int32_t *from, uint64_t shared, bool is_store) {
  uint64_t count = 1;
  for (uint32_t axis = 0; axis < map.rank; ++axis)
    count *= map.box[axis];
  for (uint64_t element = 0; element < count; ++element) {
    uint64_t rest = element, place = map.address;
    bool is_inside = true;
    for (uint32_t axis = 0; axis < map.rank; ++axis) {
      int64_t coordinate = from[axis] + (int64_t)(rest % map.box[axis]);
      rest /= map.box[axis];
      is_inside &= coordinate >= 0 && (uint64_t)coordinate < map.dims[axis];
      place += (uint64_t)coordinate * (axis ? map.strides[axis - 1] : map.element);
    }
    uint8_t *own = resolve(t, i, Space::shared, swizzled(shared + element * map.element, map.swizzle), map.element,
                           is_store ? kRead : kWrite);
    if (is_store && is_inside)
      memcpy(resolve(t, i, Space::global, place, map.element, kWrite), own, map.element);
    else if (!is_store && is_inside)
      memcpy(own, resolve(t, i, Space::global, place, map.element, kRead), map.element);
    else if (!is_store)
      memset(own, 0, map.element);
  }
}

void complete(Thread &t, const Inst &i, uint64_t barrier, uint64_t bytes) {
  change(t, i, barrier, [&](Mbarrier &one) { one.bytes -= bytes; });
}

/* list: target, map, coordinates (`vector` of them), mbarrier, mask of blocks; `code` 1: multicast */
Step tensor_load(Thread &t, const Inst &i) {
  uint64_t target = address(t, i, 0), map_at = address(t, i, 2), barrier = address(t, i, 4 + i.vector);
  TensorMap map = tensor_map(t, i, map_at);
  std::vector<int32_t> from(5);
  for (uint32_t axis = 0; axis < i.vector; ++axis)
    from[axis] = (int32_t)at(t, i, 4 + axis);
  uint64_t bytes = map.element;
  for (uint32_t axis = 0; axis < map.rank; ++axis)
    bytes *= map.box[axis];
  if (map.rank != i.vector || target % 128)
    fault(t, i, "a tensor of %u dimensions to 0x%llx", map.rank, (unsigned long long)target);
  uint32_t mask = i.code ? (uint32_t)at(t, i, 6 + i.vector) : 1;
  for (uint32_t rank = 0; mask >> rank; ++rank) {
    if (!(mask >> rank & 1))
      continue;
    uint64_t window = i.code ? (uint64_t)(rank + 1) << kClusterShift : 0;
    uint64_t to = window ? window | own_address(target) : target, at_barrier = window ? window | own_address(barrier) : barrier;
    block_of(t, at_barrier).arriving[own_address(barrier)].push_back([=, &t, &i] {
      copy_box(t, i, map, from.data(), to, false);
      complete(t, i, at_barrier, bytes);
    });
  }
  return kNext;
}
/* list: map, coordinates, source */
Step tensor_store(Thread &t, const Inst &i) {
  TensorMap map = tensor_map(t, i, address(t, i, 0));
  int32_t to[5] = {};
  for (uint32_t axis = 0; axis < i.vector; ++axis)
    to[axis] = (int32_t)at(t, i, 2 + axis);
  copy_box(t, i, map, to, address(t, i, 2 + i.vector), true);
  return kNext;
}
/* list: target, source, size, mbarrier; `code` 1: from workgroup memory to global memory */
Step bulk_copy(Thread &t, const Inst &i) {
  uint64_t target = address(t, i, 0), source = address(t, i, 2), size = (uint32_t)at(t, i, 4);
  if (target % 16 || source % 16 || size % 16)
    fault(t, i, "misaligned copy of %llu bytes", (unsigned long long)size);
  auto copy = [=, &t, &i] {
    for (uint64_t done = 0; done < size; done += 16)
      memcpy(resolve(t, i, i.code ? Space::global : Space::shared, target + done, 16, kWrite),
             resolve(t, i, i.code ? Space::shared : Space::global, source + done, 16, kRead), 16);
  };
  if (i.code) {
    copy();
    return kNext;
  }
  uint64_t barrier = address(t, i, 5);
  block_of(t, barrier).arriving[own_address(barrier)].push_back([=, &t, &i] {
    copy();
    complete(t, i, barrier, size);
  });
  return kNext;
}

/* Clusters ------------------------------------------------------------------------------------- */

Step map_address(Thread &t, const Inst &i) {
  uint64_t from = at(t, i, 1), rank = at(t, i, 2), size = t.block->gang->blocks.size();
  if (rank >= size)
    fault(t, i, "block %llu of a cluster of %llu", (unsigned long long)rank, (unsigned long long)size);
  put(t, i.list[0], (from & kWindowMask) | (rank + 1) << kClusterShift | own_address(from & ~kWindowMask));
  return kNext;
}
Step rank_of_address(Thread &t, const Inst &i) {
  uint64_t rank = (at(t, i, 1) & ~kWindowMask) >> kClusterShift;
  put(t, i.list[0], rank ? rank - 1 : t.block->rank);
  return kNext;
}

Step nothing(Thread &, const Inst &) { return kNext; }

Handler bulk_handler(const RawInst &raw, Inst &i) {
  if (raw.has("prefetch") || raw.has("commit_group") || raw.has("wait_group"))
    return nothing;
  if (raw.has("tensor")) {
    for (uint8_t rank = 1; rank <= 5; ++rank)
      if (raw.has((std::to_string(rank) + "d").c_str()))
        i.vector = rank;
    if (raw.has("im2col") || raw.opcode != "cp")
      return nullptr;
    bool is_store = raw.has("bulk_group");
    i.code = raw.has("multicast::cluster");
    return is_store ? tensor_store : tensor_load;
  }
  i.code = raw.has("bulk_group");
  return raw.opcode == "cp" ? bulk_copy : nullptr;
}

Handler mbarrier_handler(const RawInst &raw, Inst &i) {
  bool has_result = raw.operands[0].kind != RawOperand::address;
  if (raw.has("init"))
    return mbarrier_init;
  if (raw.has("inval"))
    return nothing;
  if (raw.has("test_wait") || raw.has("try_wait"))
    return i.code = raw.has("parity"), mbarrier_test;
  if (raw.has("pending_count"))
    return mbarrier_pending;
  if (raw.has("arrive") || raw.has("arrive_drop"))
    return i.code = (raw.has("expect_tx") ? 1 : 0) | (raw.has("arrive_drop") ? 2 : 0) | (has_result ? 4 : 0), mbarrier_arrive;
  if (raw.has("expect_tx") || raw.has("complete_tx"))
    return i.code = raw.has("complete_tx"), mbarrier_bytes;
  return nullptr;
}

} // namespace

Handler async_handler(const RawInst &raw, Inst &i) {
  const std::string &name = raw.opcode;
  Handler found = nullptr;
  if (name == "mbarrier")
    found = mbarrier_handler(raw, i);
  else if ((name == "cp" || name == "cpreduce") && raw.has("bulk"))
    found = bulk_handler(raw, i);
  else if (name == "cp" && raw.has("mbarrier"))
    i.code = raw.has("noinc"), found = copies_arrive;
  else if (name == "cp" && raw.has("async"))
    found = raw.has("commit_group") ? commit_group : raw.has("wait_group") ? wait_group : raw.has("wait_all") ? wait_all
            : copy_async;
  else if (name == "mapa")
    found = map_address;
  else if (name == "getctarank")
    found = rank_of_address;
  if (found)
    i.flags |= kStrong; /* ordered by mbarriers and groups, which races are not looked for in */
  return found;
}

int encode_tensor_map(void *to, int type, unsigned rank, void *address, const uint64_t *dims, const uint64_t *strides,
                      const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int, int fill) {
  static const uint8_t sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  if (type < 0 || type > 12 || rank < 1 || rank > 5 || (uint64_t)address % 16 || interleave || swizzle > 3 || (uint64_t)to % 64)
    return 1;
  TensorMap map = {kTensorMap, (uint8_t)rank, sizes[type], (uint8_t)swizzle, (uint8_t)fill, (uint64_t)address, {}, {}, {}, {}};
  for (unsigned axis = 0; axis < rank; ++axis) {
    if (!dims[axis] || !box[axis] || box[axis] > 256 || steps[axis] != 1 || (axis && strides[axis - 1] % 16))
      return 1;
    map.dims[axis] = dims[axis], map.box[axis] = (uint16_t)box[axis], map.steps[axis] = (uint16_t)steps[axis];
    if (axis)
      map.strides[axis - 1] = strides[axis - 1];
  }
  uint64_t inner = (uint64_t)box[0] * map.element;
  if (inner % 16 || (swizzle && inner > 16u << swizzle))
    return 1;
  memset(to, 0, 128);
  memcpy(to, &map, sizeof map);
  return 0;
}

} // namespace ptx
