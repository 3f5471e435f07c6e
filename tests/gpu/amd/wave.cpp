/* Executes waves: every instruction for the lanes that are active. */
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "emulator.h"

/* --- order ---------------------------------------------------------------------------------------- */

u64 seed_of_order() {
  static const u64 seed = getenv("AMD_EMULATOR_SEED") ? strtoull(getenv("AMD_EMULATOR_SEED"), nullptr, 10) : 0;
  return seed;
}

uint32_t random_below(uint32_t limit) {
  static u64 state = seed_of_order() * 0x9e3779b97f4a7c15 + 1;
  state = state * 6364136223846793005 + 1442695040888963407;
  return (uint32_t)((state >> 33) % limit);
}

/* --- numbers -------------------------------------------------------------------------------------- */

int64_t as_signed(u64 bits, int width) {
  return width >= 64 ? (int64_t)bits : (int64_t)(bits << (64 - width)) >> (64 - width);
}

double as_double(u64 bits, const Part &part) {
  uint32_t word = (uint32_t)bits;
  float single;
  double value;
  switch (part.kind) {
  case Kind::HALF: {
    _Float16 half;
    uint16_t narrow = (uint16_t)bits;
    memcpy(&half, &narrow, 2);
    return half;
  }
  case Kind::BFLOAT: word <<= 16; [[fallthrough]];
  case Kind::FLOAT: memcpy(&single, &word, 4); return single;
  case Kind::DOUBLE: memcpy(&value, &bits, 8); return value;
  default: fail("a number that is no floating-point number");
  }
}

static uint32_t bits_of(float value) {
  uint32_t word;
  memcpy(&word, &value, 4);
  return word;
}

u64 from_double(double value, const Part &part) {
  u64 bits;
  switch (part.kind) {
  case Kind::HALF: {
    _Float16 half = (_Float16)value;
    uint16_t narrow;
    memcpy(&narrow, &half, 2);
    return narrow;
  }
  case Kind::BFLOAT: {
    /* Nearest even of the number itself: a float in between is rounded to odd. */
    float single = (float)value;
    uint32_t word = bits_of(single);
    if (std::isnan(value)) return word >> 16 | 0x40;
    if ((double)single != value && !std::isinf(single)) {
      if (std::fabs((double)single) > std::fabs(value)) word -= 1;
      word |= 1;
    }
    return (word + 0x7fff + (word >> 16 & 1)) >> 16;
  }
  case Kind::FLOAT: return bits_of((float)value);
  case Kind::DOUBLE: memcpy(&bits, &value, 8); return bits;
  default: fail("a number that is no floating-point number");
  }
}

/* --- memory --------------------------------------------------------------------------------------- */

uint32_t thread_of(const Wave &wave, int lane, int axis) {
  const uint32_t *block = wave.group->launch->block;
  uint32_t number = wave.first + lane;
  return axis == 0 ? number % block[0] : axis == 1 ? number / block[0] % block[1] : number / block[0] / block[1];
}

[[noreturn]] static void fail_at(const Wave &wave, int lane, const char *what, u64 pointer = 0, u64 size = 0) {
  const Workgroup &group = *wave.group;
  fail("%s of %llu bytes at 0x%llx: kernel %s, block: [%u,%u,%u], thread: [%u,%u,%u]\n %s", what,
       (unsigned long long)size, (unsigned long long)pointer, group.launch->kernel->name.c_str(), group.id[0],
       group.id[1], group.id[2], thread_of(wave, lane, 0), thread_of(wave, lane, 1), thread_of(wave, lane, 2),
       wave.at ? LLVMPrintValueToString(wave.at->source) : "");
}

static uint8_t *shared_bytes(Wave &wave, int lane, u64 pointer, u64 size) {
  Workgroup &group = *wave.group;
  bool is_inside = pointer + size <= group.memory.size();
  for (u64 i = 0; is_inside && i < size; ++i) is_inside = group.is_variable[pointer + i];
  if (!is_inside) fail_at(wave, lane, "access out of the bounds of workgroup memory", pointer, size);
  return &group.memory[pointer];
}

static uint8_t *private_bytes(Wave &wave, int lane, u64 pointer, u64 size) {
  if (pointer < 16 || pointer + size > wave.stack_top) fail_at(wave, lane, "access out of the stack", pointer, size);
  return &wave.stack[lane][pointer];
}

uint8_t *access(Wave &wave, int lane, u64 pointer, int space, u64 size) {
  u64 local = pointer & 0xffffffff, aperture = pointer & ~u64{0xffffffff};
  if (space == 3 || (space == 0 && aperture == SHARED_APERTURE)) return shared_bytes(wave, lane, local, size);
  if (space == 5 || (space == 0 && aperture == PRIVATE_APERTURE)) return private_bytes(wave, lane, local, size);
  uint8_t *bytes = reach(pointer, size);
  if (!bytes) fail_at(wave, lane, "access out of the bounds of device memory", pointer, size);
  return bytes;
}

void check_race(Wave &wave, int lane, u64 pointer, int space, u64 size, race::Purpose purpose, bool is_strong,
                bool writes_same) {
  u64 local = pointer & 0xffffffff, aperture = pointer & ~u64{0xffffffff};
  if (space == 5 || (space == 0 && aperture == PRIVATE_APERTURE)) return;
  bool is_shared = space == 3 || (space == 0 && aperture == SHARED_APERTURE);
  std::optional<Race> race = is_shared ? note_workgroup_access(wave, local, size, purpose, is_strong, writes_same)
                                       : note_access(wave, pointer, size, purpose, is_strong, writes_same);
  if (!race) return;
  char text[160];
  snprintf(text, sizeof text, "data race: %s here, %s in the wave of thread %u of %s block, and nothing orders them",
           race::name_of(purpose), race::name_of(race->earlier), race->first, race->is_same_block ? "this" : "another");
  fail_at(wave, lane, text, pointer, size);
}

static void check_alignment(Wave &wave, int lane, u64 pointer, u64 align, u64 size) {
  if (align && pointer % align) fail_at(wave, lane, "misaligned access", pointer, size);
}

static u64 load_part(const uint8_t *bytes, const Part &part) {
  unsigned __int128 bits = 0;
  memcpy(&bits, bytes + part.offset, (part.shift + part.bits + 7) / 8);
  return masked(bits >> part.shift, part.bits);
}

/* The bits before the number stay; those after it, which become zero, belong to parts that are stored later. */
void store_part(uint8_t *bytes, const Part &part, u64 bits) {
  unsigned __int128 all = masked(bytes[part.offset], part.shift) | (unsigned __int128)masked(bits, part.bits) << part.shift;
  memcpy(bytes + part.offset, &all, (part.shift + part.bits + 7) / 8);
}

/* --- instructions --------------------------------------------------------------------------------- */

static u64 integer(Wave &wave, int lane, int opcode, u64 a, u64 b, int bits) {
  int64_t x = as_signed(a, bits), y = as_signed(b, bits);
  switch (opcode) {
  case OP_ADD: return a + b;
  case OP_SUB: return a - b;
  case OP_MUL: return a * b;
  case OP_UDIV:
  case OP_UREM:
    if (!b) fail_at(wave, lane, "division by zero");
    return opcode == OP_UDIV ? a / b : a % b;
  case OP_SDIV:
  case OP_SREM:
    if (!y) fail_at(wave, lane, "division by zero");
    if (y == -1) return opcode == OP_SDIV ? u64{0} - a : 0;
    return opcode == OP_SDIV ? x / y : x % y;
  case OP_SHL: return b < (u64)bits ? a << b : 0xdeadbeefdeadbeef;
  case OP_LSHR: return b < (u64)bits ? a >> b : 0xdeadbeefdeadbeef;
  case OP_ASHR: return b < (u64)bits ? (u64)(x >> b) : 0xdeadbeefdeadbeef;
  case OP_AND: return a & b;
  case OP_OR: return a | b;
  default: return a ^ b;
  }
}

template <typename T> static T floating(int opcode, T a, T b) {
  switch (opcode) {
  case OP_FADD: return a + b;
  case OP_FSUB: return a - b;
  case OP_FMUL: return a * b;
  case OP_FDIV: return a / b;
  default: return std::fmod(a, b);
  }
}

static u64 floating_bits(int opcode, u64 a, u64 b, const Part &part) {
  if (part.kind == Kind::DOUBLE) return from_double(floating(opcode, as_double(a, part), as_double(b, part)), part);
  /* In double, once rounded: right for narrower types, since they have less than half the digits. */
  return from_double(floating(opcode, as_double(a, part), as_double(b, part)), part);
}

static bool holds(int predicate, u64 a, u64 b, int bits) {
  int64_t x = as_signed(a, bits), y = as_signed(b, bits);
  switch (predicate) {
  case 32: return a == b;
  case 33: return a != b;
  case 34: return a > b;
  case 35: return a >= b;
  case 36: return a < b;
  case 37: return a <= b;
  case 38: return x > y;
  case 39: return x >= y;
  case 40: return x < y;
  default: return x <= y;
  }
}

/* The bits of a predicate: equal, greater, less, unordered. */
static bool holds(int predicate, double a, double b) {
  int found = std::isnan(a) || std::isnan(b) ? 8 : a == b ? 1 : a > b ? 2 : 4;
  return predicate & found;
}

static u64 converted(int opcode, u64 bits, const Part &from, const Part &to) {
  switch (opcode) {
  case OP_SEXT: return masked(as_signed(bits, from.bits), to.bits);
  case OP_FPTOUI:
  case OP_FPTOSI: {
    double value = std::trunc(as_double(bits, from));
    double limit = std::ldexp(1.0, opcode == OP_FPTOSI ? to.bits - 1 : to.bits);
    if (!(value < limit) || value < (opcode == OP_FPTOSI ? -limit : 0)) return masked(0xdeadbeefdeadbeef, to.bits);
    return masked(opcode == OP_FPTOSI ? (u64)(int64_t)value : (u64)value, to.bits);
  }
  case OP_UITOFP:
    if (to.kind == Kind::FLOAT) return bits_of((float)bits);
    return from_double((double)bits, to);
  case OP_SITOFP:
    if (to.kind == Kind::FLOAT) return bits_of((float)as_signed(bits, from.bits));
    return from_double((double)as_signed(bits, from.bits), to);
  case OP_FPTRUNC:
  case OP_FPEXT: return from_double(as_double(bits, from), to);
  case OP_ADDRSPACECAST:
    if (!to.space && from.space == 3) return bits == 0xffffffff ? 0 : SHARED_APERTURE | bits;
    if (!to.space && from.space == 5) return bits == 0xffffffff ? 0 : PRIVATE_APERTURE | bits;
    if (!from.space && to.bits == 32 && !bits) return 0xffffffff;
    return masked(bits, to.bits);
  default: return masked(bits, to.bits);
  }
}

static u64 updated(int operation, u64 old, u64 value, const Part &part) {
  int64_t x = as_signed(old, part.bits), y = as_signed(value, part.bits);
  switch (operation) {
  case 0: return value;
  case 1: return old + value;
  case 2: return old - value;
  case 3: return old & value;
  case 4: return ~(old & value);
  case 5: return old | value;
  case 6: return old ^ value;
  case 7: return x > y ? old : value;
  case 8: return x < y ? old : value;
  case 9: return old > value ? old : value;
  case 10: return old < value ? old : value;
  case 11: return floating_bits(OP_FADD, old, value, part);
  case 12: return floating_bits(OP_FSUB, old, value, part);
  case 13: return from_double(std::fmax(as_double(old, part), as_double(value, part)), part);
  case 14: return from_double(std::fmin(as_double(old, part), as_double(value, part)), part);
  case 15: return old >= value ? 0 : old + 1;
  case 16: return !old || old > value ? value : old - 1;
  default: fail("atomic operation %d", operation);
  }
}

/* Where several lanes write one word, which of them is the last one is anybody's guess. */
template <typename Body> static void in_some_order(u64 mask, Body body) {
  if (seed_of_order() % 2 == 0) {
    EACH_LANE(lane, mask) body(lane);
    return;
  }
  while (mask) {
    int lane = 63 - __builtin_clzll(mask);
    mask &= ~(u64{1} << lane);
    body(lane);
  }
}

static void execute_load(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  u64 *pointers = frame.at(i.operands[0]);
  int space = i.operand_shape->parts[0].space;
  EACH_LANE(lane, mask) {
    const uint8_t *bytes = access(wave, lane, pointers[lane], space, i.shape->stored);
    check_alignment(wave, lane, pointers[lane], i.detail, i.shape->stored);
    check_race(wave, lane, pointers[lane], space, i.shape->stored, race::kRead, i.is_strong, false);
    for (size_t p = 0; p < i.shape->parts.size(); ++p)
      frame.registers[(i.result + p) * LANES + lane] = load_part(bytes, i.shape->parts[p]);
  }
}

static void execute_store(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  u64 *pointers = frame.at(i.operands[1]);
  in_some_order(mask, [&](int lane) {
    uint8_t *bytes = access(wave, lane, pointers[lane], i.numbers[0], i.operand_shape->stored);
    check_alignment(wave, lane, pointers[lane], i.detail, i.operand_shape->stored);
    bool writes_same = true;
    for (size_t p = 0; writes_same && p < i.operand_shape->parts.size(); ++p) {
      const Part &part = i.operand_shape->parts[p];
      writes_same = load_part(bytes, part) == masked(frame.at(i.operands[0], p)[lane], part.bits);
    }
    check_race(wave, lane, pointers[lane], i.numbers[0], i.operand_shape->stored, race::kWrite, i.is_strong,
               writes_same);
    for (size_t p = 0; p < i.operand_shape->parts.size(); ++p)
      store_part(bytes, i.operand_shape->parts[p], frame.at(i.operands[0], p)[lane]);
  });
}

static void execute_atomic(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  u64 *pointers = frame.at(i.operands[0]), *values = frame.at(i.operands[1]);
  int space = i.operand_shape->parts[0].space;
  Part part = i.shape->parts[0];
  in_some_order(mask, [&](int lane) {
    uint8_t *bytes = access(wave, lane, pointers[lane], space, (part.bits + 7) / 8);
    check_race(wave, lane, pointers[lane], space, (part.bits + 7) / 8, race::kAtomic, false, false);
    u64 old = load_part(bytes, part);
    frame.registers[i.result * LANES + lane] = old;
    if (i.opcode == OP_RMW) {
      store_part(bytes, part, masked(updated(i.detail, old, values[lane], part), part.bits));
      return;
    }
    bool is_equal = old == values[lane];
    if (is_equal) store_part(bytes, part, frame.at(i.operands[2])[lane]);
    frame.registers[(i.result + 1) * LANES + lane] = is_equal;
  });
}

static void execute_address(Frame &frame, const Instruction &i, u64 mask) {
  u64 *base = frame.at(i.operands[0]), *result = &frame.registers[i.result * LANES];
  int bits = i.shape->parts[0].bits;
  if (i.shape->parts.size() > 1) fail("a vector of pointers");
  EACH_LANE(lane, mask) result[lane] = masked(base[lane] + i.numbers[0], bits);
  for (const Scaled &scaled : i.scaled) {
    u64 *index = frame.at(scaled.index);
    EACH_LANE(lane, mask)
    result[lane] = masked(result[lane] + scaled.by * as_signed(index[lane], scaled.bits), bits);
  }
}

static void execute_bitcast(Frame &frame, const Instruction &i, u64 mask) {
  const std::vector<Part> &from = i.operand_shape->parts, &to = i.shape->parts;
  uint8_t bytes[512];
  EACH_LANE(lane, mask) {
    if (from.size() == 1 && to.size() == 1) {
      frame.registers[i.result * LANES + lane] = frame.at(i.operands[0])[lane];
      continue;
    }
    /* Bits of vectors of i1 are dense. */
    u64 bit = 0;
    memset(bytes, 0, sizeof bytes);
    for (size_t p = 0; p < from.size(); ++p)
      for (int b = 0; b < from[p].bits; ++b, ++bit)
        if (frame.at(i.operands[0], p)[lane] >> b & 1) bytes[bit / 8] |= 1 << bit % 8;
    bit = 0;
    for (size_t p = 0; p < to.size(); ++p) {
      u64 value = 0;
      for (int b = 0; b < to[p].bits; ++b, ++bit) value |= u64{bytes[bit / 8] >> bit % 8 & 1u} << b;
      frame.registers[(i.result + p) * LANES + lane] = value;
    }
  }
}

static void execute_parts(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  for (size_t p = 0; p < i.shape->parts.size(); ++p) {
    const Part &part = i.shape->parts[p];
    const Part &from = i.operand_shape->parts[std::min(p, i.operand_shape->parts.size() - 1)];
    u64 *result = &frame.registers[(i.result + p) * LANES], *a = frame.at(i.operands[0], p);
    u64 *b = i.operands.size() > 1 ? frame.at(i.operands[1], p) : nullptr;
    switch (i.opcode) {
    case OP_ADD: case OP_SUB: case OP_MUL: case OP_UDIV: case OP_SDIV: case OP_UREM: case OP_SREM: case OP_SHL:
    case OP_LSHR: case OP_ASHR: case OP_AND: case OP_OR: case OP_XOR:
      if (part.bits > 64) fail("an integer of %d bits", part.bits);
      EACH_LANE(lane, mask) result[lane] = masked(integer(wave, lane, i.opcode, a[lane], b[lane], part.bits), part.bits);
      break;
    case OP_FADD: case OP_FSUB: case OP_FMUL: case OP_FDIV: case OP_FREM:
      EACH_LANE(lane, mask) result[lane] = floating_bits(i.opcode, a[lane], b[lane], part);
      break;
    case OP_FNEG: EACH_LANE(lane, mask) result[lane] = a[lane] ^ u64{1} << (part.bits - 1); break;
    case OP_ICMP: EACH_LANE(lane, mask) result[lane] = holds(i.detail, a[lane], b[lane], from.bits); break;
    case OP_FCMP:
      EACH_LANE(lane, mask) result[lane] = holds(i.detail, as_double(a[lane], from), as_double(b[lane], from));
      break;
    case OP_FREEZE: EACH_LANE(lane, mask) result[lane] = a[lane]; break;
    default: EACH_LANE(lane, mask) result[lane] = converted(i.opcode, a[lane], from, part);
    }
  }
}

static void execute_aggregate(Frame &frame, const Instruction &i, u64 mask) {
  size_t parts = i.shape->parts.size(), given = i.operand_shape->parts.size();
  auto copy = [&](uint32_t to, Operand from, int part) {
    u64 *target = &frame.registers[(i.result + to) * LANES], *source = frame.at(from, part);
    EACH_LANE(lane, mask) target[lane] = source[lane];
  };
  switch (i.opcode) {
  case OP_SELECT:
    for (size_t p = 0; p < parts; ++p) {
      u64 *chosen = frame.at(i.operands[0], given > 1 ? p : 0), *yes = frame.at(i.operands[1], p);
      u64 *no = frame.at(i.operands[2], p), *result = &frame.registers[(i.result + p) * LANES];
      EACH_LANE(lane, mask) result[lane] = chosen[lane] ? yes[lane] : no[lane];
    }
    return;
  case OP_EXTRACTVALUE:
    for (int64_t p = 0; p < i.numbers[1]; ++p) copy(p, i.operands[0], i.numbers[0] + p);
    return;
  case OP_INSERTVALUE:
    for (size_t p = 0; p < parts; ++p) copy(p, i.operands[0], p);
    for (int64_t p = 0; p < i.numbers[1]; ++p) copy(i.numbers[0] + p, i.operands[1], p);
    return;
  case OP_SHUFFLE:
    for (size_t p = 0; p < parts; ++p) {
      int64_t from = i.numbers[p] < 0 ? 0 : i.numbers[p];
      bool is_second = from >= (int64_t)given;
      copy(p, i.operands[is_second], is_second ? from - given : from);
    }
    return;
  case OP_EXTRACT: {
    u64 *index = frame.at(i.operands[1]);
    EACH_LANE(lane, mask)
    frame.registers[i.result * LANES + lane] = frame.at(i.operands[0], index[lane] % given)[lane];
    return;
  }
  default: {
    u64 *index = frame.at(i.operands[2]), *value = frame.at(i.operands[1]);
    for (size_t p = 0; p < parts; ++p) copy(p, i.operands[0], p);
    EACH_LANE(lane, mask) frame.registers[(i.result + index[lane] % parts) * LANES + lane] = value[lane];
  }
  }
}

static void execute_alloca(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  u64 align = std::max<u64>(i.numbers[1], 1), start = (wave.stack_top + align - 1) / align * align;
  u64 count = frame.at(i.operands[0])[__builtin_ctzll(mask)], size = i.numbers[0] * count;
  wave.stack_top = start + size;
  EACH_LANE(lane, wave.lanes) {
    if (wave.stack[lane].size() < wave.stack_top) wave.stack[lane].resize(2 * wave.stack_top);
    poison(&wave.stack[lane][start], size);
  }
  EACH_LANE(lane, mask) frame.registers[i.result * LANES + lane] = start;
}

/* --- functions ------------------------------------------------------------------------------------ */

static void run_function(Wave &, Frame &, u64 mask, std::vector<std::vector<u64>> *results);

static void execute_call(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  if (i.builtin) {
    i.builtin(wave, frame, i, mask);
    return;
  }
  Function &callee = const_cast<Function &>(*i.callee);
  decode(*wave.group->launch->module, callee);
  Frame inner = {&callee, std::vector<u64>(callee.registers * LANES, 0xdeadbeefdeadbeef)};
  for (size_t a = 0; a < callee.parameters.size(); ++a)
    for (size_t p = 0; p < callee.shapes[a]->parts.size(); ++p)
      memcpy(inner.at(callee.parameters[a], p), frame.at(i.operands[a], p), LANES * sizeof(u64));
  u64 top = wave.stack_top;
  std::vector<std::vector<u64>> results(i.shape->parts.size(), std::vector<u64>(LANES));
  run_function(wave, inner, mask, &results);
  wave.stack_top = top;
  for (size_t p = 0; p < results.size(); ++p)
    EACH_LANE(lane, mask) frame.registers[(i.result + p) * LANES + lane] = results[p][lane];
}

static void execute(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  switch (i.opcode) {
  case OP_LOAD: return execute_load(wave, frame, i, mask);
  case OP_STORE: return execute_store(wave, frame, i, mask);
  case OP_RMW:
  case OP_CMPXCHG: return execute_atomic(wave, frame, i, mask);
  case OP_GEP: return execute_address(frame, i, mask);
  case OP_BITCAST: return execute_bitcast(frame, i, mask);
  case OP_ALLOCA: return execute_alloca(wave, frame, i, mask);
  case OP_CALL: return execute_call(wave, frame, i, mask);
  case OP_FENCE: return;
  case OP_SELECT: case OP_EXTRACT: case OP_INSERT: case OP_SHUFFLE: case OP_EXTRACTVALUE: case OP_INSERTVALUE:
    return execute_aggregate(frame, i, mask);
  default: return execute_parts(wave, frame, i, mask);
  }
}

/* Lanes of a function: where each of them goes on. */
struct Course {
  int block[LANES];
  u64 active;
};

static void follow(Frame &frame, const Edge &edge, u64 mask, Course &course) {
  if (!mask) return;
  std::vector<u64> read;
  for (const Copy &copy : edge.copies)
    for (uint32_t p = 0; p < copy.parts; ++p) {
      u64 *from = frame.at(copy.from, p);
      read.insert(read.end(), from, from + LANES);
    }
  size_t at = 0;
  for (const Copy &copy : edge.copies)
    for (uint32_t p = 0; p < copy.parts; ++p, at += LANES)
      EACH_LANE(lane, mask) frame.registers[(copy.to + p) * LANES + lane] = read[at + lane];
  EACH_LANE(lane, mask) course.block[lane] = edge.block;
}

static void leave_block(Wave &wave, Frame &frame, const Instruction &i, u64 mask, Course &course,
                        std::vector<std::vector<u64>> *results) {
  switch (i.opcode) {
  case OP_BR: {
    u64 taken = mask;
    if (i.edges.size() > 1) {
      u64 *condition = frame.at(i.operands[0]);
      taken = 0;
      EACH_LANE(lane, mask) taken |= u64{condition[lane] & 1} << lane;
      follow(frame, i.edges[1], mask & ~taken, course);
    }
    return follow(frame, i.edges[0], taken, course);
  }
  case OP_SWITCH: {
    u64 *value = frame.at(i.operands[0]), left = mask;
    for (size_t c = 0; c < i.numbers.size(); ++c) {
      u64 taken = 0;
      EACH_LANE(lane, left) taken |= u64{value[lane] == (u64)i.numbers[c]} << lane;
      follow(frame, i.edges[c + 1], taken, course);
      left &= ~taken;
    }
    return follow(frame, i.edges[0], left, course);
  }
  case OP_RET:
    if (results && !i.operands.empty())
      for (size_t p = 0; p < results->size(); ++p)
        EACH_LANE(lane, mask)(*results)[p][lane] = frame.at(i.operands[0], p)[lane];
    course.active &= ~mask;
    return;
  default: wave.at = &i; fail_at(wave, __builtin_ctzll(mask), "unreachable code is reached");
  }
}

static void pause(Wave &);

static void run_function(Wave &wave, Frame &frame, u64 mask, std::vector<std::vector<u64>> *results) {
  Course course = {{}, mask};
  bool is_kernel = !results;
  while (course.active) {
    int first = INT32_MAX;
    EACH_LANE(lane, course.active) first = std::min(first, course.block[lane]);
    u64 together = 0;
    EACH_LANE(lane, course.active) together |= u64{course.block[lane] == first} << lane;
    const Block &block = frame.function->blocks[first];
    for (size_t n = 0; n + 1 < block.instructions.size(); ++n) {
      wave.at = &block.instructions[n];
      execute(wave, frame, block.instructions[n], together);
    }
    leave_block(wave, frame, block.instructions.back(), together, course, results);
    if (is_kernel) wave.live = course.active;
    if (seed_of_order() && random_below(8) == 0) pause(wave);
  }
}

/* --- workgroups ----------------------------------------------------------------------------------- */

enum class State { READY, AT_BARRIER, DONE };

struct Runner {
  Wave wave;
  State state;
  const Instruction *barrier;
  ucontext_t context;
};

static ucontext_t scheduler;
static Runner *running;

constexpr size_t STACK = 512 * 1024;

/* The stacks serve one block after the other. */
static char *stack_of(size_t number) {
  static std::vector<std::unique_ptr<char[]>> stacks;
  while (stacks.size() <= number) stacks.emplace_back(new char[STACK]);
  return stacks[number].get();
}

static void pause(Wave &) { swapcontext(&running->context, &scheduler); }

void wait_at_barrier(Wave &wave, const Instruction &barrier) {
  running->state = State::AT_BARRIER;
  running->barrier = &barrier;
  pause(wave);
}

static void run_wave() {
  Wave &wave = running->wave;
  const Launch &launch = *wave.group->launch;
  const Function &kernel = *launch.kernel;
  Frame frame = {&kernel, std::vector<u64>(kernel.registers * LANES, 0xdeadbeefdeadbeef)};
  u64 offset = 0;
  for (size_t a = 0; a < kernel.parameters.size(); ++a) {
    LLVMTypeRef type = LLVMTypeOf(LLVMGetParam(kernel.source, a));
    u64 align = LLVMABIAlignmentOfType(launch.module->layout, type);
    offset = (offset + align - 1) / align * align;
    const uint8_t *bytes = reach(launch.arguments + offset, kernel.shapes[a]->size);
    for (size_t p = 0; p < kernel.shapes[a]->parts.size(); ++p)
      std::fill_n(frame.at(kernel.parameters[a], p), LANES, load_part(bytes, kernel.shapes[a]->parts[p]));
    offset += kernel.shapes[a]->size;
  }
  run_function(wave, frame, wave.lanes, nullptr);
  running->state = State::DONE;
}

static void enter(Runner &runner) {
  running = &runner;
  swapcontext(&scheduler, &runner.context);
}

static void pass_barrier(std::vector<std::unique_ptr<Runner>> &runners) {
  const Instruction *barrier = nullptr;
  for (auto &runner : runners) {
    Runner &one = *runner;
    if (one.state == State::DONE || (barrier && one.barrier != barrier))
      fail_at(one.wave, __builtin_ctzll(one.wave.lanes), "a barrier that not all threads of the block reach");
    barrier = one.barrier;
    one.state = State::READY;
  }
  ++runners.front()->wave.group->epoch;
}

static void run_group(Workgroup &group) {
  const Launch &launch = *group.launch;
  uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  uint32_t size = launch.module->wave_size;
  std::vector<std::unique_ptr<Runner>> runners;
  for (uint32_t first = 0; first < threads; first += size) {
    runners.emplace_back(new Runner{});
    Runner &runner = *runners.back();
    uint32_t count = std::min(size, threads - first);
    u64 lanes = count == 64 ? ~u64{0} : (u64{1} << count) - 1;
    runner.wave.group = &group, runner.wave.first = first;
    runner.wave.lanes = runner.wave.live = lanes, runner.wave.stack_top = 16;
    getcontext(&runner.context);
    runner.context.uc_stack.ss_sp = stack_of(runners.size() - 1);
    runner.context.uc_stack.ss_size = STACK;
    runner.context.uc_link = &scheduler;
    makecontext(&runner.context, run_wave, 0);
  }
  for (;;) {
    std::vector<Runner *> ready;
    size_t done = 0;
    for (auto &runner : runners) {
      if (runner->state == State::READY) ready.push_back(runner.get());
      done += runner->state == State::DONE;
    }
    if (done == runners.size()) return;
    if (ready.empty())
      pass_barrier(runners);
    else
      enter(*ready[seed_of_order() ? random_below(ready.size()) : 0]);
  }
}

void run_launch(const Launch &launch) {
  u64 count = u64{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  std::vector<u64> order(count);
  for (u64 i = 0; i < count; ++i) order[i] = i;
  if (seed_of_order())
    for (u64 i = count; i > 1; --i) std::swap(order[i - 1], order[random_below(i)]);
  Recording recording(launch);
  begin_races((uint32_t)count);
  for (u64 number : order) {
    Workgroup group = {};
    group.launch = &launch;
    group.number = number_for_races(number);
    group.id[0] = number % launch.grid[0];
    group.id[1] = number / launch.grid[0] % launch.grid[1];
    group.id[2] = number / launch.grid[0] / launch.grid[1];
    group.memory.resize(launch.module->workgroup_size + launch.dynamic);
    poison(group.memory.data(), group.memory.size());
    group.is_variable.resize(group.memory.size(), false);
    for (auto &[begin, end] : launch.module->workgroup_memory)
      std::fill(group.is_variable.begin() + begin, group.is_variable.begin() + end, true);
    std::fill(group.is_variable.begin() + launch.module->workgroup_size, group.is_variable.end(), true);
    run_group(group);
    recording.count_block();
  }
}
