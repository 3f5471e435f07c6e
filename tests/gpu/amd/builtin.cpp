/* The intrinsics of the AMDGPU back end, and those of LLVM that its code uses, as they are documented:
 * llvm/include/llvm/IR/IntrinsicsAMDGPU.td, the User Guide for the AMDGPU back end, AMD's ISA documents.
 */
#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulator.h"

static u64 *result_of(Frame &frame, const Instruction &i, int part = 0) {
  return &frame.registers[(i.result + part) * LANES];
}

static int size_of_wave(const Wave &wave) { return wave.group->launch->module->wave_size; }
static int first_lane(u64 mask) { return __builtin_ctzll(mask); }

/* --- where a thread is ---------------------------------------------------------------------------- */

template <int axis> static void workitem_id(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  EACH_LANE(lane, mask) result_of(frame, i)[lane] = thread_of(wave, lane, axis);
}

static void give(Frame &frame, const Instruction &i, u64 mask, u64 value) {
  EACH_LANE(lane, mask) result_of(frame, i)[lane] = value;
}

template <int axis> static void workgroup_id(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  give(frame, i, mask, wave.group->id[axis]);
}
static void implicit_arguments(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  give(frame, i, mask, wave.group->launch->implicit);
}
static void dispatch_packet(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  give(frame, i, mask, wave.group->launch->packet);
}
static void kernel_arguments(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  give(frame, i, mask, wave.group->launch->arguments);
}
static void wavefront_size(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  give(frame, i, mask, size_of_wave(wave));
}
static void zero(Wave &, Frame &frame, const Instruction &i, u64 mask) { give(frame, i, mask, 0); }
static void nothing(Wave &, Frame &, const Instruction &, u64) {}
static void first_operand(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  for (size_t p = 0; p < i.shape->parts.size(); ++p)
    EACH_LANE(lane, mask) result_of(frame, i, p)[lane] = frame.at(i.operands[0], p)[lane];
}

static void is_shared(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  EACH_LANE(lane, mask) result_of(frame, i)[lane] = frame.at(i.operands[0])[lane] >> 32 == SHARED_APERTURE >> 32;
}
static void is_private(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  EACH_LANE(lane, mask) result_of(frame, i)[lane] = frame.at(i.operands[0])[lane] >> 32 == PRIVATE_APERTURE >> 32;
}

/* --- between the lanes of a wave ------------------------------------------------------------------ */

static void count_below(Wave &wave, Frame &frame, const Instruction &i, u64 mask, int shift) {
  (void)wave;
  u64 *bits = frame.at(i.operands[0]), *start = frame.at(i.operands[1]);
  EACH_LANE(lane, mask) {
    int below = std::clamp(lane - shift, 0, 32);
    u64 counted = (bits[lane] & 0xffffffff) & ((u64{1} << below) - 1);
    result_of(frame, i)[lane] = masked(start[lane] + __builtin_popcountll(counted), 32);
  }
}
static void mbcnt_lo(Wave &w, Frame &f, const Instruction &i, u64 mask) { count_below(w, f, i, mask, 0); }
static void mbcnt_hi(Wave &w, Frame &f, const Instruction &i, u64 mask) { count_below(w, f, i, mask, 32); }

/* Gives each lane what `source` names; lanes that are not active count as `inactive`. */
template <typename Source>
static void exchange(Frame &frame, const Instruction &i, u64 mask, const u64 *from, Source source) {
  u64 moved[LANES];
  EACH_LANE(lane, mask) {
    int other = source(lane);
    moved[lane] = mask >> other & 1 ? from[other] : 0;
  }
  EACH_LANE(lane, mask) result_of(frame, i)[lane] = moved[lane];
}

static void bpermute(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  u64 *address = frame.at(i.operands[0]);
  int last = size_of_wave(wave) - 1;
  exchange(frame, i, mask, frame.at(i.operands[1]), [&](int lane) { return (int)(address[lane] >> 2 & last); });
}

static void permute(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  u64 *address = frame.at(i.operands[0]), *value = frame.at(i.operands[1]), moved[LANES] = {};
  EACH_LANE(lane, mask) moved[address[lane] >> 2 & (size_of_wave(wave) - 1)] = value[lane];
  EACH_LANE(lane, mask) result_of(frame, i)[lane] = moved[lane];
}

static void swizzle(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  u64 offset = frame.at(i.operands[1])[0];
  exchange(frame, i, mask, frame.at(i.operands[0]), [&](int lane) -> int {
    int base = lane & ~31, within = lane & 31;
    if (!(offset & 0x8000)) return base + (((within & (offset & 31)) | (offset >> 5 & 31)) ^ (offset >> 10 & 31));
    if ((offset & 0xff00) == 0x8000) return (lane & ~3) + (offset >> 2 * (lane & 3) & 3);
    fail("ds_swizzle of offset 0x%llx", (unsigned long long)offset);
  });
}

static void read_lane(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  int lane = frame.at(i.operands[1])[first_lane(mask)] & (size_of_wave(wave) - 1);
  for (size_t p = 0; p < i.shape->parts.size(); ++p) {
    u64 value = frame.at(i.operands[0], p)[lane];
    EACH_LANE(each, mask) result_of(frame, i, p)[each] = value;
  }
}

static void read_first_lane(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  for (size_t p = 0; p < i.shape->parts.size(); ++p) {
    u64 value = frame.at(i.operands[0], p)[first_lane(mask)];
    EACH_LANE(each, mask) result_of(frame, i, p)[each] = value;
  }
}

static void active_lanes(Wave &, Frame &frame, const Instruction &i, u64 mask) { give(frame, i, mask, mask); }

static void ballot(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  u64 found = 0;
  EACH_LANE(lane, mask) found |= (frame.at(i.operands[0])[lane] & 1) << lane;
  give(frame, i, mask, masked(found, i.shape->parts[0].bits));
}

/* Data-parallel primitives: (old, source, control, row mask, bank mask, bound control). */
static void update_dpp(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  u64 *old = frame.at(i.operands[0]), *from = frame.at(i.operands[1]), moved[LANES];
  u64 control = frame.at(i.operands[2])[0], rows = frame.at(i.operands[3])[0], banks = frame.at(i.operands[4])[0];
  bool is_bound = frame.at(i.operands[5])[0];
  int size = size_of_wave(wave);
  EACH_LANE(lane, mask) {
    int row = lane & ~15, in_row = lane & 15, amount = control & 15, other = -1;
    auto of_row = [&](int within) { return within >= 0 && within < 16 ? row + within : -1; };
    if (control < 0x100) other = (lane & ~3) + (control >> 2 * (lane & 3) & 3);
    else if (control < 0x110) other = of_row(in_row + amount);
    else if (control < 0x120) other = of_row(in_row - amount);
    else if (control < 0x130) other = row + (in_row - amount & 15);
    else if (control == 0x130) other = lane + 1 < size ? lane + 1 : -1;
    else if (control == 0x134) other = (lane + 1) % size;
    else if (control == 0x138) other = lane - 1;
    else if (control == 0x13c) other = (lane + size - 1) % size;
    else if (control == 0x140) other = row + 15 - in_row;
    else if (control == 0x141) other = (lane & ~7) + 7 - (lane & 7);
    else if (control == 0x142) other = row ? row - 1 : -1;
    else if (control == 0x143) other = lane >= 32 ? 31 : -1;
    else fail("dpp control 0x%llx", (unsigned long long)control);
    bool is_enabled = rows >> (lane / 16) & 1 && banks >> (in_row / 4) & 1;
    bool is_valid = other >= 0 && mask >> other & 1;
    moved[lane] = !is_enabled ? old[lane] : is_valid ? from[other] : is_bound ? 0 : old[lane];
  }
  EACH_LANE(lane, mask) result_of(frame, i)[lane] = moved[lane];
}

static void permute_other_row(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  u64 low = frame.at(i.operands[2])[0], high = frame.at(i.operands[3])[0];
  exchange(frame, i, mask, frame.at(i.operands[1]), [&](int lane) {
    u64 choices = low | high << 32;
    return (lane & ~31) + ((lane & 16) ^ 16) + (int)(choices >> 4 * (lane & 15) & 15);
  });
}
static void permute_row(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  u64 low = frame.at(i.operands[2])[0], high = frame.at(i.operands[3])[0];
  exchange(frame, i, mask, frame.at(i.operands[1]), [&](int lane) {
    return (lane & ~15) + (int)((low | high << 32) >> 4 * (lane & 15) & 15);
  });
}
static void permute_half(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  exchange(frame, i, mask, frame.at(i.operands[0]), [&](int lane) { return lane ^ 32; });
}

static void barrier(Wave &wave, Frame &, const Instruction &i, u64 mask) {
  if (mask != wave.live || wave.live != wave.lanes)
    fail("a barrier that not all threads of the block reach: kernel %s, block: [%u,%u,%u], wave of thread %u",
         wave.group->launch->kernel->name.c_str(), wave.group->id[0], wave.group->id[1], wave.group->id[2],
         wave.first);
  wait_at_barrier(wave, i);
}

static void trap(Wave &wave, Frame &, const Instruction &, u64 mask) {
  int lane = first_lane(mask);
  fail("trap: kernel %s, block: [%u,%u,%u], thread: [%u,%u,%u]", wave.group->launch->kernel->name.c_str(),
       wave.group->id[0], wave.group->id[1], wave.group->id[2], thread_of(wave, lane, 0), thread_of(wave, lane, 1),
       thread_of(wave, lane, 2));
}

/* --- numbers -------------------------------------------------------------------------------------- */

template <double function(double)> static void on_one(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  for (size_t p = 0; p < i.shape->parts.size(); ++p) {
    const Part &part = i.shape->parts[p];
    EACH_LANE(lane, mask)
    result_of(frame, i, p)[lane] = from_double(function(as_double(frame.at(i.operands[0], p)[lane], part)), part);
  }
}
template <double function(double, double)>
static void on_two(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  for (size_t p = 0; p < i.shape->parts.size(); ++p) {
    const Part &part = i.shape->parts[p];
    EACH_LANE(lane, mask)
    result_of(frame, i, p)[lane] = from_double(
        function(as_double(frame.at(i.operands[0], p)[lane], part), as_double(frame.at(i.operands[1], p)[lane], part)),
        part);
  }
}
typedef u64 OnIntegers(u64, u64, int);
template <OnIntegers function> static void on_integers(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  for (size_t p = 0; p < i.shape->parts.size(); ++p) {
    int bits = i.shape->parts[p].bits;
    /* The second operand of some is a flag, for all parts. */
    size_t second = i.operands.size() > 1 ? 1 : 0;
    EACH_LANE(lane, mask)
    result_of(frame, i, p)[lane] =
        masked(function(frame.at(i.operands[0], p)[lane], frame.at(i.operands[second], i.detail ? 0 : p)[lane], bits), bits);
  }
}

static double minimum(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b);
}
static double maximum(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
}
static double power_of_ten(double x) { return std::pow(10.0, x); }
static double reciprocal(double x) { return 1 / x; }
static double reciprocal_root(double x) { return 1 / std::sqrt(x); }
static double fraction(double x) { return x - std::floor(x); }
static double sine_of_turn(double x) { return std::sin(x * 2 * M_PI); }
static double cosine_of_turn(double x) { return std::cos(x * 2 * M_PI); }
static double same(double x) { return x; }
static double fabs_(double x) { return std::fabs(x); }
static double sqrt_(double x) { return std::sqrt(x); }
static double sin_(double x) { return std::sin(x); }
static double cos_(double x) { return std::cos(x); }
static double tan_(double x) { return std::tan(x); }
static double exp_(double x) { return std::exp(x); }
static double exp2_(double x) { return std::exp2(x); }
static double log_(double x) { return std::log(x); }
static double log2_(double x) { return std::log2(x); }
static double log10_(double x) { return std::log10(x); }
static double floor_(double x) { return std::floor(x); }
static double ceil_(double x) { return std::ceil(x); }
static double trunc_(double x) { return std::trunc(x); }
static double round_(double x) { return std::round(x); }
static double rint_(double x) { return std::rint(x); }
static double pow_(double x, double y) { return std::pow(x, y); }
static double copysign_(double x, double y) { return std::copysign(x, y); }
static double fmin_(double x, double y) { return std::fmin(x, y); }
static double fmax_(double x, double y) { return std::fmax(x, y); }

static void fused(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  for (size_t p = 0; p < i.shape->parts.size(); ++p) {
    const Part &part = i.shape->parts[p];
    u64 *a = frame.at(i.operands[0], p), *b = frame.at(i.operands[1], p), *c = frame.at(i.operands[2], p);
    EACH_LANE(lane, mask) {
      double x = as_double(a[lane], part), y = as_double(b[lane], part), z = as_double(c[lane], part);
      bool is_single = part.kind == Kind::FLOAT;
      double value = is_single ? std::fmaf((float)x, (float)y, (float)z) : std::fma(x, y, z);
      result_of(frame, i, p)[lane] = from_double(value, part);
    }
  }
}

static void median(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  const Part &part = i.shape->parts[0];
  EACH_LANE(lane, mask) {
    double a = as_double(frame.at(i.operands[0])[lane], part), b = as_double(frame.at(i.operands[1])[lane], part);
    double c = as_double(frame.at(i.operands[2])[lane], part);
    double found = std::isnan(a) || std::isnan(b) || std::isnan(c) ? std::fmin(std::fmin(a, b), c)
                                                                    : std::fmax(std::fmin(a, b), std::fmin(std::fmax(a, b), c));
    result_of(frame, i)[lane] = from_double(found, part);
  }
}

static void scaled(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  const Part &part = i.shape->parts[0];
  EACH_LANE(lane, mask) {
    int by = (int)as_signed(frame.at(i.operands[1])[lane], 32);
    result_of(frame, i)[lane] = from_double(std::ldexp(as_double(frame.at(i.operands[0])[lane], part), by), part);
  }
}

static void mantissa(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  const Part &part = i.shape->parts[0];
  EACH_LANE(lane, mask) {
    int exponent;
    double value = std::frexp(as_double(frame.at(i.operands[0])[lane], part), &exponent);
    result_of(frame, i)[lane] = from_double(value, part);
  }
}
static void exponent(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  EACH_LANE(lane, mask) {
    int found = 0;
    std::frexp(as_double(frame.at(i.operands[0])[lane], i.operand_shape->parts[0]), &found);
    result_of(frame, i)[lane] = masked((u64)(int64_t)found, i.shape->parts[0].bits);
  }
}

/* llvm/ADT/FloatingPointMode.h: the classes of numbers, bit by bit. */
static void is_of_class(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  const Part &part = i.operand_shape->parts[0];
  double least = std::ldexp(1.0, part.kind == Kind::HALF ? -14 : part.kind == Kind::DOUBLE ? -1022 : -126);
  EACH_LANE(lane, mask) {
    double value = as_double(frame.at(i.operands[0])[lane], part);
    int rank = std::isinf(value) ? 0 : value == 0 ? 3 : std::fabs(value) < least ? 2 : 1;
    int bit = std::isnan(value) ? 1 : std::signbit(value) ? 2 + rank : 9 - rank;
    result_of(frame, i)[lane] = frame.at(i.operands[1])[lane] >> bit & 1;
  }
}

static u64 smin(u64 a, u64 b, int bits) { return as_signed(a, bits) < as_signed(b, bits) ? a : b; }
static u64 smax(u64 a, u64 b, int bits) { return as_signed(a, bits) > as_signed(b, bits) ? a : b; }
static u64 umin(u64 a, u64 b, int) { return std::min(a, b); }
static u64 umax(u64 a, u64 b, int) { return std::max(a, b); }
static u64 absolute(u64 a, u64, int bits) { return as_signed(a, bits) < 0 ? u64{0} - a : a; }
static u64 population(u64 a, u64, int) { return __builtin_popcountll(a); }
static u64 leading(u64 a, u64, int bits) { return a ? __builtin_clzll(a) - (64 - bits) : bits; }
static u64 trailing(u64 a, u64, int bits) { return a ? __builtin_ctzll(a) : bits; }
static u64 reversed_bytes(u64 a, u64, int bits) { return __builtin_bswap64(a) >> (64 - bits); }
static u64 reversed_bits(u64 a, u64, int bits) { return __builtin_bitreverse64(a) >> (64 - bits); }
static u64 add_saturated(u64 a, u64 b, int bits) { return masked(a + b, bits) < a ? ~u64{0} : a + b; }
static u64 sub_saturated(u64 a, u64 b, int) { return a < b ? 0 : a - b; }

template <bool is_left> static void funnel(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  for (size_t p = 0; p < i.shape->parts.size(); ++p) {
    int bits = i.shape->parts[p].bits;
    u64 *high = frame.at(i.operands[0], p), *low = frame.at(i.operands[1], p), *by = frame.at(i.operands[2], p);
    EACH_LANE(lane, mask) {
      int amount = by[lane] % bits;
      u64 value;
      if (is_left) value = amount ? high[lane] << amount | low[lane] >> (bits - amount) : high[lane];
      else value = amount ? low[lane] >> amount | high[lane] << (bits - amount) : low[lane];
      result_of(frame, i, p)[lane] = masked(value, bits);
    }
  }
}

typedef __int128 Wide;
template <char operation, bool is_signed>
static void with_overflow(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  int bits = i.shape->parts[0].bits;
  EACH_LANE(lane, mask) {
    u64 a = frame.at(i.operands[0])[lane], b = frame.at(i.operands[1])[lane];
    Wide x = is_signed ? (Wide)as_signed(a, bits) : (Wide)a, y = is_signed ? (Wide)as_signed(b, bits) : (Wide)b;
    Wide exact = operation == '+' ? x + y : operation == '-' ? x - y : x * y;
    u64 value = masked((u64)exact, bits);
    result_of(frame, i)[lane] = value;
    result_of(frame, i, 1)[lane] = exact != (is_signed ? (Wide)as_signed(value, bits) : (Wide)value);
  }
}

template <int operation> static u64 combined(u64 a, u64 b, const Part &part) {
  switch (operation) {
  case '+': return part.kind == Kind::INT ? a + b : from_double(as_double(a, part) + as_double(b, part), part);
  case '*': return part.kind == Kind::INT ? a * b : from_double(as_double(a, part) * as_double(b, part), part);
  case '&': return a & b;
  case '|': return a | b;
  case '^': return a ^ b;
  case 's': return smin(a, b, part.bits);
  case 'S': return smax(a, b, part.bits);
  case 'u': return umin(a, b, part.bits);
  case 'U': return umax(a, b, part.bits);
  case 'f': return from_double(std::fmin(as_double(a, part), as_double(b, part)), part);
  case 'F': return from_double(std::fmax(as_double(a, part), as_double(b, part)), part);
  case 'm': return from_double(minimum(as_double(a, part), as_double(b, part)), part);
  default: return from_double(maximum(as_double(a, part), as_double(b, part)), part);
  }
}
template <int operation> static void reduce_vector(Wave &, Frame &frame, const Instruction &i, u64 mask) {
  const Part &part = i.shape->parts[0];
  /* Sums and products of floating-point numbers begin with a number. */
  bool has_start = i.operands.size() > 1;
  const Operand &vector = i.operands.back();
  size_t parts = LLVMGetVectorSize(LLVMTypeOf(LLVMGetOperand(i.source, i.operands.size() - 1)));
  EACH_LANE(lane, mask) {
    u64 value = has_start ? frame.at(i.operands[0])[lane] : frame.at(vector)[lane];
    for (size_t p = has_start ? 0 : 1; p < parts; ++p)
      value = masked(combined<operation>(value, frame.at(vector, p)[lane], part), part.bits);
    result_of(frame, i)[lane] = value;
  }
}

/* --- memory --------------------------------------------------------------------------------------- */

static int space_of(const Instruction &i, int operand) {
  return LLVMGetPointerAddressSpace(LLVMTypeOf(LLVMGetOperand(i.source, operand)));
}
static void copy_memory(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  EACH_LANE(lane, mask) {
    u64 size = frame.at(i.operands[2])[lane];
    if (!size) continue;
    u64 into = frame.at(i.operands[0])[lane], from = frame.at(i.operands[1])[lane];
    uint8_t *to = access(wave, lane, into, space_of(i, 0), size);
    const uint8_t *bytes = access(wave, lane, from, space_of(i, 1), size);
    check_race(wave, lane, from, space_of(i, 1), size, race::kRead, false, false);
    check_race(wave, lane, into, space_of(i, 0), size, race::kWrite, false, !memcmp(to, bytes, size));
    memmove(to, bytes, size);
  }
}
static void set_memory(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  EACH_LANE(lane, mask) {
    u64 size = frame.at(i.operands[2])[lane];
    if (!size) continue;
    u64 into = frame.at(i.operands[0])[lane];
    uint8_t *to = access(wave, lane, into, space_of(i, 0), size), byte = (uint8_t)frame.at(i.operands[1])[lane];
    bool writes_same = std::all_of(to, to + size, [&](uint8_t old) { return old == byte; });
    check_race(wave, lane, into, space_of(i, 0), size, race::kWrite, false, writes_same);
    memset(to, byte, size);
  }
}

/* Elements of whole bytes. `is_packed`: those of the mask follow each other in memory (expandload, compressstore). */
template <bool is_store, bool is_packed>
static void access_masked(Wave &wave, Frame &frame, const Instruction &i, u64 mask) {
  const std::vector<Part> &parts = (is_store ? i.operand_shape : i.shape)->parts;
  int space = space_of(i, is_store);
  u64 size = (parts[0].bits + 7) / 8;
  EACH_LANE(lane, mask) {
    u64 next = frame.at(i.operands[is_store])[lane];
    for (size_t p = 0; p < parts.size(); ++p) {
      bool is_chosen = frame.at(i.operands[is_store + 1], p)[lane];
      if (!is_store && !is_chosen) result_of(frame, i, p)[lane] = frame.at(i.operands[2], p)[lane];
      if (is_chosen) {
        uint8_t *bytes = access(wave, lane, next, space, size);
        u64 value = is_store ? frame.at(i.operands[0], p)[lane] : 0;
        bool writes_same = is_store && !memcmp(bytes, &value, size);
        check_race(wave, lane, next, space, size, is_store ? race::kWrite : race::kRead, false, writes_same);
        if (!is_store) memcpy(&value, bytes, size), result_of(frame, i, p)[lane] = value;
        else memcpy(bytes, &value, size);
      }
      if (is_chosen || !is_packed) next += size;
    }
  }
}

/* --- messages to the host -------------------------------------------------------------------------- */

static std::map<u64, std::vector<u64>> messages;

static void print_message(const std::vector<u64> &words) {
  const char *format = (const char *)(words.data() + 1);
  size_t next = 1 + strlen(format) / 8 + 1;
  std::string text;
  for (const char *c = format; *c; ++c) {
    if (*c != '%' || c[1] == '%') {
      text += *c, c += *c == '%';
      continue;
    }
    size_t length = strcspn(c + 1, "diouxXcsfFeEgGaAp") + 2;
    std::string one(c, length);
    c += length - 1;
    for (size_t at; (at = one.find_first_of("lzjt")) != std::string::npos;) one.erase(at, 1);
    char buffer[512];
    char kind = one.back();
    if (kind == 's') {
      const char *string = (const char *)&words[next];
      next += strlen(string) / 8 + 1;
      snprintf(buffer, sizeof buffer, one.c_str(), string);
    } else if (strchr("fFeEgGaA", kind)) {
      double value;
      memcpy(&value, &words[next++], 8);
      snprintf(buffer, sizeof buffer, one.c_str(), value);
    } else {
      bool is_long = std::string(c - length + 1, length).find_first_of("lzjt") != std::string::npos;
      if (is_long) one.insert(one.size() - 1, "ll");
      if (is_long || kind == 'p') snprintf(buffer, sizeof buffer, one.c_str(), words[next++]);
      else snprintf(buffer, sizeof buffer, one.c_str(), (uint32_t)words[next++]);
    }
    text += buffer;
  }
  fwrite(text.data(), 1, text.size(), stdout);
}

/* ROCm-Device-Libs ockl/src/hostcall_impl.cl: a wave takes a packet from a stack, fills a slot of eight
   numbers for each lane, puts it on another stack and sleeps until the host has answered. */
struct Packets {
  u64 headers, payloads, doorbell, free_stack, ready_stack, index_mask;
};
struct PacketHeader {
  u64 next, active;
  uint32_t service, control;
};
constexpr u64 PACKETS = 64;

u64 hostcall_buffer() {
  static u64 address = 0;
  if (address) return address;
  address = allocate_device(sizeof(Packets));
  Packets made = {allocate_device(PACKETS * sizeof(PacketHeader)), allocate_device(PACKETS * 64 * 64),
                  allocate_device(64), 0, 0, PACKETS - 1};
  u64 next = 0;
  for (u64 i = 0; i < PACKETS; ++i) {
    PacketHeader header = {next, 0, 0, 0};
    memcpy(reach(made.headers + i * sizeof header, sizeof header), &header, sizeof header);
    next = i ? i : PACKETS; /* 0 is the end: the first packet has a number beyond the mask */
  }
  made.free_stack = next;
  memset(reach(made.doorbell, 64), 0, 64);
  memcpy(reach(address, sizeof made), &made, sizeof made);
  return address;
}

/* Service 2 prints. Of the numbers of a lane the first says whether a message begins (bit 0) or ends
   (bit 1), how many of the others belong to it (bits 5 to 7), and which message it is (from bit 8 on). */
static void answer(u64 *slot) {
  static u64 last = 0;
  u64 head = slot[0], id = head >> 8;
  if (head & 1) id = ++last, messages[id].clear();
  for (u64 n = 0; n < (head >> 5 & 7); ++n) messages[id].push_back(slot[1 + n]);
  if (head & 2) print_message(messages[id]), messages.erase(id);
  slot[0] = id << 8;
}

static void serve_host(Wave &, Frame &, const Instruction &, u64) {
  Packets *packets = (Packets *)reach(hostcall_buffer(), sizeof(Packets));
  u64 next = packets->ready_stack;
  packets->ready_stack = 0;
  while (next) {
    u64 index = next & packets->index_mask;
    PacketHeader *header = (PacketHeader *)reach(packets->headers + index * sizeof *header, sizeof *header);
    if (header->service != 2) fail("hostcall service %u", header->service);
    u64 *slots = (u64 *)reach(packets->payloads + index * 64 * 64, 64 * 64);
    EACH_LANE(lane, header->active) answer(slots + 8 * lane);
    header->control &= ~1u;
    next = header->next;
  }
}

/* --- their names ----------------------------------------------------------------------------------- */

static const std::map<std::string, Builtin> &builtins() {
  static const std::map<std::string, Builtin> all = {
      {"llvm.amdgcn.workitem.id.x", workitem_id<0>},
      {"llvm.amdgcn.workitem.id.y", workitem_id<1>},
      {"llvm.amdgcn.workitem.id.z", workitem_id<2>},
      {"llvm.amdgcn.workgroup.id.x", workgroup_id<0>},
      {"llvm.amdgcn.workgroup.id.y", workgroup_id<1>},
      {"llvm.amdgcn.workgroup.id.z", workgroup_id<2>},
      {"llvm.amdgcn.implicitarg.ptr", implicit_arguments},
      {"llvm.amdgcn.dispatch.ptr", dispatch_packet},
      {"llvm.amdgcn.kernarg.segment.ptr", kernel_arguments},
      {"llvm.amdgcn.wavefrontsize", wavefront_size},
      {"llvm.amdgcn.mbcnt.lo", mbcnt_lo},
      {"llvm.amdgcn.mbcnt.hi", mbcnt_hi},
      {"llvm.amdgcn.ds.bpermute", bpermute},
      {"llvm.amdgcn.ds.permute", permute},
      {"llvm.amdgcn.ds.swizzle", swizzle},
      {"llvm.amdgcn.readlane", read_lane},
      {"llvm.amdgcn.readfirstlane", read_first_lane},
      {"llvm.amdgcn.ballot", ballot},
      {"llvm.amdgcn.update.dpp", update_dpp},
      {"llvm.amdgcn.permlanex16", permute_other_row},
      {"llvm.amdgcn.permlane16", permute_row},
      {"llvm.amdgcn.permlane64", permute_half},
      {"llvm.amdgcn.s.barrier", barrier},
      {"llvm.amdgcn.wave.barrier", nothing},
      {"llvm.amdgcn.sched.barrier", nothing},
      {"llvm.amdgcn.s.waitcnt", nothing},
      {"llvm.amdgcn.s.sleep", serve_host},
      {"llvm.amdgcn.s.sendmsg", nothing},
      {"llvm.amdgcn.s.getreg", zero},
      {"llvm.read_register", active_lanes}, /* of exec */
      {"llvm.amdgcn.endpgm", trap},
      {"llvm.amdgcn.is.shared", is_shared},
      {"llvm.amdgcn.is.private", is_private},
      {"llvm.amdgcn.rcp", on_one<reciprocal>},
      {"llvm.amdgcn.rsq", on_one<reciprocal_root>},
      {"llvm.amdgcn.sqrt", on_one<sqrt_>},
      {"llvm.amdgcn.fract", on_one<fraction>},
      {"llvm.amdgcn.sin", on_one<sine_of_turn>},
      {"llvm.amdgcn.cos", on_one<cosine_of_turn>},
      {"llvm.amdgcn.exp2", on_one<exp2_>},
      {"llvm.amdgcn.log", on_one<log2_>},
      {"llvm.amdgcn.fmed3", median},
      {"llvm.amdgcn.ldexp", scaled},
      {"llvm.amdgcn.frexp.mant", mantissa},
      {"llvm.amdgcn.frexp.exp", exponent},
      {"llvm.amdgcn.class", is_of_class},
      {"llvm.is.fpclass", is_of_class},
      {"llvm.ldexp", scaled},
      {"llvm.canonicalize", on_one<same>},
      {"llvm.fabs", on_one<fabs_>},
      {"llvm.sqrt", on_one<sqrt_>},
      {"llvm.sin", on_one<sin_>},
      {"llvm.cos", on_one<cos_>},
      {"llvm.tan", on_one<tan_>},
      {"llvm.exp", on_one<exp_>},
      {"llvm.exp2", on_one<exp2_>},
      {"llvm.exp10", on_one<power_of_ten>},
      {"llvm.log", on_one<log_>},
      {"llvm.log2", on_one<log2_>},
      {"llvm.log10", on_one<log10_>},
      {"llvm.floor", on_one<floor_>},
      {"llvm.ceil", on_one<ceil_>},
      {"llvm.trunc", on_one<trunc_>},
      {"llvm.round", on_one<round_>},
      {"llvm.roundeven", on_one<rint_>},
      {"llvm.rint", on_one<rint_>},
      {"llvm.nearbyint", on_one<rint_>},
      {"llvm.pow", on_two<pow_>},
      {"llvm.copysign", on_two<copysign_>},
      {"llvm.minnum", on_two<fmin_>},
      {"llvm.maxnum", on_two<fmax_>},
      {"llvm.minimumnum", on_two<fmin_>},
      {"llvm.maximumnum", on_two<fmax_>},
      {"llvm.minimum", on_two<minimum>},
      {"llvm.maximum", on_two<maximum>},
      {"llvm.fma", fused},
      {"llvm.fmuladd", fused},
      {"llvm.smin", on_integers<smin>},
      {"llvm.smax", on_integers<smax>},
      {"llvm.umin", on_integers<umin>},
      {"llvm.umax", on_integers<umax>},
      {"llvm.abs", on_integers<absolute>},
      {"llvm.ctpop", on_integers<population>},
      {"llvm.ctlz", on_integers<leading>},
      {"llvm.cttz", on_integers<trailing>},
      {"llvm.bswap", on_integers<reversed_bytes>},
      {"llvm.bitreverse", on_integers<reversed_bits>},
      {"llvm.uadd.sat", on_integers<add_saturated>},
      {"llvm.usub.sat", on_integers<sub_saturated>},
      {"llvm.fshl", funnel<true>},
      {"llvm.fshr", funnel<false>},
      {"llvm.uadd.with.overflow", with_overflow<'+', false>},
      {"llvm.usub.with.overflow", with_overflow<'-', false>},
      {"llvm.umul.with.overflow", with_overflow<'*', false>},
      {"llvm.sadd.with.overflow", with_overflow<'+', true>},
      {"llvm.ssub.with.overflow", with_overflow<'-', true>},
      {"llvm.smul.with.overflow", with_overflow<'*', true>},
      {"llvm.vector.reduce.add", reduce_vector<'+'>},
      {"llvm.vector.reduce.mul", reduce_vector<'*'>},
      {"llvm.vector.reduce.and", reduce_vector<'&'>},
      {"llvm.vector.reduce.or", reduce_vector<'|'>},
      {"llvm.vector.reduce.xor", reduce_vector<'^'>},
      {"llvm.vector.reduce.smin", reduce_vector<'s'>},
      {"llvm.vector.reduce.smax", reduce_vector<'S'>},
      {"llvm.vector.reduce.umin", reduce_vector<'u'>},
      {"llvm.vector.reduce.umax", reduce_vector<'U'>},
      {"llvm.vector.reduce.fmin", reduce_vector<'f'>},
      {"llvm.vector.reduce.fmax", reduce_vector<'F'>},
      {"llvm.vector.reduce.fminimum", reduce_vector<'m'>},
      {"llvm.vector.reduce.fmaximum", reduce_vector<'M'>},
      {"llvm.vector.reduce.fadd", reduce_vector<'+'>},
      {"llvm.vector.reduce.fmul", reduce_vector<'*'>},
      {"llvm.masked.load", access_masked<false, false>},
      {"llvm.masked.store", access_masked<true, false>},
      {"llvm.masked.expandload", access_masked<false, true>},
      {"llvm.masked.compressstore", access_masked<true, true>},
      {"llvm.memcpy", copy_memory},
      {"llvm.memmove", copy_memory},
      {"llvm.memset", set_memory},
      {"llvm.lifetime.start", nothing},
      {"llvm.lifetime.end", nothing},
      {"llvm.assume", nothing},
      {"llvm.dbg.value", nothing},
      {"llvm.dbg.declare", nothing},
      {"llvm.experimental.noalias.scope.decl", nothing},
      {"llvm.expect", first_operand},
      {"llvm.trap", trap},
      {"asm", first_operand},
  };
  return all;
}

Builtin find_builtin(const std::string &name) {
  /* What follows the name are the types, and the number of something that was there twice. */
  for (std::string part = name;; part.erase(part.rfind('.'))) {
    auto found = builtins().find(part);
    if (found != builtins().end()) return found->second;
    if (part.rfind('.') == std::string::npos) return nullptr;
  }
}
