/* Loads, stores, atomic operations, and what is done with addresses. */
#include "number.h"
#include "select.h"

namespace ptx {

uint64_t address_of(const Thread &t, const Inst &i) {
  uint64_t address = t.get(i.op[0]) + (uint64_t)i.offset;
  return i.base == 1 ? address + t.local_base : i.base == 2 ? address + t.param_base : address;
}

namespace {

template <class T> uint64_t extended(const uint8_t *bytes) {
  T value;
  memcpy(&value, bytes, sizeof value);
  return (uint64_t)(int64_t)value;
}
uint64_t fetch(Type type, const uint8_t *bytes) {
  switch (type) {
  case Type::s8: return extended<int8_t>(bytes);
  case Type::b8: case Type::u8: case Type::pred: return extended<uint8_t>(bytes);
  case Type::s16: return extended<int16_t>(bytes);
  case Type::b16: case Type::u16: case Type::f16: case Type::bf16: return extended<uint16_t>(bytes);
  case Type::s32: return extended<int32_t>(bytes);
  case Type::b64: case Type::u64: case Type::s64: case Type::f64: return extended<uint64_t>(bytes);
  default: return extended<uint32_t>(bytes);
  }
}

Step load(Thread &t, const Inst &i) {
  uint32_t size = size_of(i.type);
  const uint8_t *from = resolve(t, i, i.space, address_of(t, i), size * i.vector, kRead);
  uint64_t values[8];
  for (uint32_t at = 0; at < i.vector; ++at)
    values[at] = fetch(i.type, from + at * size);
  for (uint32_t at = 0; at < i.vector; ++at)
    if (i.list[at] >= 0)
      put(t, i.list[at], values[at]);
  return kNext;
}
template <class T> Step load_one(Thread &t, const Inst &i) {
  T value;
  memcpy(&value, resolve(t, i, i.space, address_of(t, i), sizeof value, kRead), sizeof value);
  write<T>(t, i.list[0], value);
  return kNext;
}
Step load_wide(Thread &t, const Inst &i) {
  const uint8_t *from = resolve(t, i, i.space, address_of(t, i), 16u * i.vector, kRead);
  for (uint32_t at = 0; at < i.vector; ++at)
    memcpy(&t.registers[i.list[at]], from + 16 * at, 16);
  return kNext;
}

Step store(Thread &t, const Inst &i) {
  uint32_t size = size_of(i.type);
  uint8_t *to = resolve(t, i, i.space, address_of(t, i), size * i.vector, kWrite);
  for (uint32_t at = 0; at < i.vector; ++at)
    memcpy(to + at * size, &t.get(i.list[at]), size);
  return kNext;
}
Step store_wide(Thread &t, const Inst &i) {
  uint8_t *to = resolve(t, i, i.space, address_of(t, i), 16u * i.vector, kWrite);
  for (uint32_t at = 0; at < i.vector; ++at)
    memcpy(to + 16 * at, &t.registers[i.list[at]], 16);
  return kNext;
}

/* Atomic operations -------------------------------------------------------------------------- */

enum AtomicOperation : uint8_t { kAtomicAnd, kAtomicOr, kAtomicXor, kAtomicCas, kAtomicExch, kAtomicAdd, kAtomicInc, kAtomicDec, kAtomicMin, kAtomicMax };

template <class T> T combined(uint8_t operation, T old, T value, T other) {
  switch (operation) {
  case kAtomicAnd: return (T)(old & value);
  case kAtomicOr: return (T)(old | value);
  case kAtomicXor: return (T)(old ^ value);
  case kAtomicCas: return old == value ? other : old;
  case kAtomicExch: return value;
  case kAtomicAdd: return (T)((uint64_t)old + (uint64_t)value);
  case kAtomicInc: return old >= value ? 0 : (T)(old + 1);
  case kAtomicDec: return old == 0 || old > value ? value : (T)(old - 1);
  case kAtomicMin: return value < old ? value : old;
  default: return old < value ? value : old;
  }
}
template <class T> uint64_t updated_integer(const Inst &i, uint64_t old, uint64_t value, uint64_t other) {
  return (uint64_t)combined<T>(i.code, (T)old, (T)value, (T)other);
}
template <class T> uint64_t updated_half(uint8_t operation, uint64_t old, uint64_t value) {
  double a = value_of(T{(uint16_t)old}), b = value_of(T{(uint16_t)value});
  double result = operation == kAtomicAdd ? a + b : a != a ? b : b != b ? a : operation == kAtomicMin ? fmin(a, b) : fmax(a, b);
  return of_value<T>(result).bits;
}
template <class T> uint64_t updated_float(uint64_t old, uint64_t value) {
  T a, b;
  memcpy(&a, &old, sizeof a);
  memcpy(&b, &value, sizeof b);
  a += b;
  uint64_t bits = 0;
  memcpy(&bits, &a, sizeof a);
  return bits;
}

uint64_t updated(const Inst &i, uint64_t old, uint64_t value, uint64_t other) {
  switch (i.type) {
  case Type::b16: case Type::u16: return updated_integer<uint16_t>(i, old, value, other);
  case Type::s32: return updated_integer<int32_t>(i, old, value, other);
  case Type::b32: case Type::u32: return updated_integer<uint32_t>(i, old, value, other);
  case Type::s64: return updated_integer<int64_t>(i, old, value, other);
  case Type::b64: case Type::u64: return updated_integer<uint64_t>(i, old, value, other);
  case Type::f32: return i.code == kAtomicExch ? value : updated_float<float>(old, value);
  case Type::f64: return i.code == kAtomicExch ? value : updated_float<double>(old, value);
  case Type::f16: return updated_half<Half>(i.code, old, value);
  case Type::bf16: return updated_half<Bfloat>(i.code, old, value);
  case Type::f16x2:
    return updated_half<Half>(i.code, old, value) | updated_half<Half>(i.code, old >> 16, value >> 16) << 16;
  default:
    return updated_half<Bfloat>(i.code, old, value) | updated_half<Bfloat>(i.code, old >> 16, value >> 16) << 16;
  }
}

/* What an atomic operation releases, the next one at the same place acquires. */
void order(Thread &t, const Inst &i, uint64_t address) {
  if (!t.block->launch->kernel->needs_clocks)
    return;
  if (i.space != Space::shared && (address & kWindowMask) != kSharedWindow)
    return;
  Clocks &clocks = t.block->released[address & ~kWindowMask];
  acquire(t, clocks);
  release(t, clocks);
}

/* `list`: what is left of the old value (none for red), the operands of each element. */
Step atomic(Thread &t, const Inst &i) {
  uint32_t size = size_of(i.type);
  uint64_t address = address_of(t, i), olds[8];
  uint8_t *at = resolve(t, i, i.space, address, size * i.vector, kAtomic);
  order(t, i, address);
  for (uint32_t element = 0; element < i.vector; ++element) {
    uint64_t old = 0;
    memcpy(&old, at + element * size, size);
    olds[element] = is_signed(i.type) ? fetch(i.type, at + element * size) : old;
    uint64_t value = t.get(i.list[i.vector + element]);
    uint64_t other = i.code == kAtomicCas ? t.get(i.list[2 * i.vector + element]) : 0;
    uint64_t result = updated(i, old, value, other);
    memcpy(at + element * size, &result, size);
  }
  for (uint32_t element = 0; element < i.vector; ++element)
    if (i.list[element] >= 0)
      put(t, i.list[element], olds[element]);
  /* Another thread may come in between any two. */
  t.budget -= settings().seed ? 16 : 1;
  return kNext;
}

Step atomic_wide(Thread &t, const Inst &i) {
  uint8_t *at = resolve(t, i, i.space, address_of(t, i), 16, kAtomic);
  uint8_t old[16];
  memcpy(old, at, 16);
  if (i.code == kAtomicExch)
    memcpy(at, &t.get(i.list[1]), 16);
  else if (!memcmp(old, &t.get(i.list[1]), 16))
    memcpy(at, &t.get(i.list[2]), 16);
  memcpy(&t.registers[i.list[0]], old, 16);
  return kNext;
}

/* Addresses ---------------------------------------------------------------------------------- */

uint64_t window_of(Space space) {
  return space == Space::shared ? kSharedWindow : space == Space::local ? kLocalWindow
         : space == Space::param ? kParamWindow : 0;
}
Step to_generic(Thread &t, const Inst &i) {
  uint64_t address = t.get(i.op[1]) + (uint64_t)i.offset;
  address = i.base == 1 ? address + t.local_base : i.base == 2 ? address + t.param_base : address;
  put(t, i.op[0], address | window_of(i.space));
  return kNext;
}
Step from_generic(Thread &t, const Inst &i) {
  uint64_t window = window_of(i.space), address = t.get(i.op[1]);
  put(t, i.op[0], window ? address & ~kWindowMask : address);
  return kNext;
}
Step is_in_space(Thread &t, const Inst &i) {
  uint64_t address = t.get(i.op[1]), window = window_of(i.space);
  bool is_inside;
  if (window)
    is_inside = (address & kWindowMask) == window;
  else {
    const Allocation *found = address & kSharedWindow ? nullptr : find_allocation(address);
    is_inside = found && (found->kind == Allocation::constant) == (i.space == Space::constant);
  }
  put(t, i.op[0], is_inside);
  return kNext;
}

Step goes_on(Thread &, const Inst &) { return kNext; }
Step yields(Thread &t, const Inst &) {
  t.budget = 0;
  return kNext;
}

bool take_space(const RawInst &raw, Inst &i) {
  for (const std::string &modifier : raw.modifiers) {
    std::string name = modifier.substr(0, modifier.find(':'));
    if (name == "global" || name == "const" || name == "shared" || name == "local" || name == "param") {
      i.space = name == "global" ? Space::global : name == "const" ? Space::constant : name == "shared" ? Space::shared
                : name == "local" ? Space::local : Space::param;
      return true;
    }
  }
  return false;
}

Handler atomic_handler(const RawInst &raw, Inst &i) {
  static const char *const kNames[] = {"and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max"};
  bool is_known = false;
  for (uint8_t code = 0; code < 10; ++code)
    if (raw.has(kNames[code]))
      i.code = code, is_known = true;
  if (!is_known)
    return nullptr;
  if (i.type == Type::b128)
    return atomic_wide;
  return atomic;
}

Handler load_handler(Inst &i) {
  if (i.type == Type::b128)
    return load_wide;
  if (i.vector == 1)
    switch (i.type) {
    case Type::b32: case Type::u32: case Type::f32: return load_one<uint32_t>;
    case Type::b64: case Type::u64: case Type::s64: case Type::f64: return load_one<uint64_t>;
    case Type::s32: return load_one<int32_t>;
    default: break;
    }
  return load;
}

} // namespace

Handler memory_handler(const RawInst &raw, Inst &i) {
  const std::string &name = raw.opcode;
  take_space(raw, i);
  i.type = raw.modifiers.empty() ? Type::none : type_of(raw.modifiers.back());
  i.vector = raw.has("v8") ? 8 : raw.has("v4") ? 4 : raw.has("v2") ? 2 : 1;
  if (raw.has("volatile") || raw.has("relaxed") || raw.has("acquire") || raw.has("release") || raw.has("mmio"))
    i.flags |= kStrong;
  if (name == "ld" || name == "ldu")
    return load_handler(i);
  if (name == "st")
    return i.type == Type::b128 ? store_wide : store;
  if (name == "atom" || name == "red") {
    i.flags &= (uint8_t)~kStrong;
    return atomic_handler(raw, i);
  }
  if (name == "cvta")
    return raw.has("to") ? from_generic : to_generic;
  if (name == "isspacep")
    return is_in_space;
  if (name == "nanosleep")
    return yields;
  if (name == "membar" || name == "fence" || name == "prefetch" || name == "prefetchu" || name == "discard" ||
      name == "applypriority" || name == "griddepcontrol" || name == "setmaxnreg" || name == "pmevent")
    return goes_on;
  return nullptr;
}

} // namespace ptx
