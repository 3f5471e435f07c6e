/* Arithmetic, comparisons and conversions. */
#include <limits>
#include <type_traits>

#include "number.h"
#include "select.h"

namespace ptx {

namespace {

template <class T> using Unsigned = std::make_unsigned_t<T>;
template <class T> using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;

template <class F> Handler by_integer(Type type, F f) {
  switch (type) {
  case Type::u8: case Type::b8: return f.template operator()<uint8_t>();
  case Type::s8: return f.template operator()<int8_t>();
  case Type::u16: case Type::b16: return f.template operator()<uint16_t>();
  case Type::s16: return f.template operator()<int16_t>();
  case Type::u32: case Type::b32: return f.template operator()<uint32_t>();
  case Type::s32: return f.template operator()<int32_t>();
  case Type::u64: case Type::b64: return f.template operator()<uint64_t>();
  case Type::s64: return f.template operator()<int64_t>();
  default: return nullptr;
  }
}

/* Integers --------------------------------------------------------------------------------- */

template <class T, T (*F)(T, T)> Step binary(Thread &t, const Inst &i) {
  write<T>(t, i.op[0], F(read<T>(t, i.op[1]), read<T>(t, i.op[2])));
  return kNext;
}
template <class T, T (*F)(T)> Step unary(Thread &t, const Inst &i) {
  write<T>(t, i.op[0], F(read<T>(t, i.op[1])));
  return kNext;
}

template <class T> T add(T a, T b) { return (T)((Unsigned<T>)a + (Unsigned<T>)b); }
template <class T> T sub(T a, T b) { return (T)((Unsigned<T>)a - (Unsigned<T>)b); }
template <class T> T mul(T a, T b) { return (T)((uint64_t)a * (uint64_t)b); }
template <class T> T high(T a, T b) { return (T)((Wide<T>)a * (Wide<T>)b >> (sizeof(T) * 8)); }
template <class T> T least(T a, T b) { return b < a ? b : a; }
template <class T> T most(T a, T b) { return a < b ? b : a; }
template <class T> T div(T a, T b) {
  if (b == 0)
    return (T)-1; /* not defined; what NVIDIA's GPUs leave */
  if constexpr (std::is_signed_v<T>)
    if (b == -1)
      return (T)(0 - (Unsigned<T>)a);
  return (T)(a / b);
}
template <class T> T rem(T a, T b) {
  if (b == 0)
    return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1)
      return 0;
  return (T)(a % b);
}
template <class T> T both(T a, T b) { return (T)(a & b); }
template <class T> T either(T a, T b) { return (T)(a | b); }
template <class T> T differ(T a, T b) { return (T)(a ^ b); }
template <class T> T complement(T a) { return (T)~a; }
template <class T> T cnot(T a) { return a == 0; }
template <class T> T negative(T a) { return (T)(0 - (Unsigned<T>)a); }
template <class T> T absolute(T a) { return a < 0 ? negative(a) : a; }

template <class T> Step shift_left(Thread &t, const Inst &i) {
  uint32_t by = read<uint32_t>(t, i.op[2]);
  write<T>(t, i.op[0], by >= sizeof(T) * 8 ? 0 : (T)((Unsigned<T>)read<T>(t, i.op[1]) << by));
  return kNext;
}
template <class T> Step shift_right(Thread &t, const Inst &i) {
  uint32_t by = read<uint32_t>(t, i.op[2]), most_by = sizeof(T) * 8 - 1;
  T value = read<T>(t, i.op[1]);
  write<T>(t, i.op[0], by <= most_by ? (T)(value >> by) : (T)(value < 0 ? -1 : 0));
  return kNext;
}

template <class T> Step multiply_wide(Thread &t, const Inst &i) {
  using Double = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                                    std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
  write<Double>(t, i.op[0], (Double)((uint64_t)(Double)read<T>(t, i.op[1]) * (uint64_t)(Double)read<T>(t, i.op[2])));
  return kNext;
}
template <class T> Step mad_wide(Thread &t, const Inst &i) {
  using Double = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                                    std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
  uint64_t product = (uint64_t)(Double)read<T>(t, i.op[1]) * (uint64_t)(Double)read<T>(t, i.op[2]);
  write<Double>(t, i.op[0], (Double)(product + (uint64_t)read<Double>(t, i.op[3])));
  return kNext;
}
template <class T> Step mad(Thread &t, const Inst &i) {
  T a = read<T>(t, i.op[1]), b = read<T>(t, i.op[2]), c = read<T>(t, i.op[3]);
  write<T>(t, i.op[0], add<T>(i.flags & kHigh ? high<T>(a, b) : mul<T>(a, b), c));
  return kNext;
}

/* add.cc, addc, sub.cc, subc: `code` 1 takes the carry, 2 leaves it. */
template <class T, bool kIsSub> Step with_carry(Thread &t, const Inst &i) {
  unsigned __int128 a = (Unsigned<T>)read<T>(t, i.op[1]), b = (Unsigned<T>)read<T>(t, i.op[2]);
  unsigned __int128 carry = i.code & 1 ? t.carry : 0;
  unsigned __int128 whole = kIsSub ? a - b - carry : a + b + carry;
  if (i.code & 2)
    t.carry = (uint32_t)(whole >> (sizeof(T) * 8)) & 1;
  write<T>(t, i.op[0], (T)whole);
  return kNext;
}
template <class T> Step mad_carry(Thread &t, const Inst &i) {
  T a = read<T>(t, i.op[1]), b = read<T>(t, i.op[2]);
  T product = i.flags & kHigh ? high<T>(a, b) : mul<T>(a, b);
  unsigned __int128 whole = (unsigned __int128)(Unsigned<T>)product + (Unsigned<T>)read<T>(t, i.op[3]) +
                            (i.code & 1 ? t.carry : 0);
  if (i.code & 2)
    t.carry = (uint32_t)(whole >> (sizeof(T) * 8)) & 1;
  write<T>(t, i.op[0], (T)whole);
  return kNext;
}

template <class T> Step sad(Thread &t, const Inst &i) {
  T a = read<T>(t, i.op[1]), b = read<T>(t, i.op[2]);
  write<T>(t, i.op[0], add<T>(a < b ? sub<T>(b, a) : sub<T>(a, b), read<T>(t, i.op[3])));
  return kNext;
}

template <class T> Step popc(Thread &t, const Inst &i) {
  put(t, i.op[0], (uint64_t)__builtin_popcountll((uint64_t)(Unsigned<T>)read<T>(t, i.op[1])));
  return kNext;
}
template <class T> Step clz(Thread &t, const Inst &i) {
  uint64_t value = (Unsigned<T>)read<T>(t, i.op[1]);
  put(t, i.op[0], value ? (uint64_t)__builtin_clzll(value) - (64 - sizeof(T) * 8) : sizeof(T) * 8);
  return kNext;
}
template <class T> Step bfind(Thread &t, const Inst &i) {
  T value = read<T>(t, i.op[1]);
  uint64_t bits = (Unsigned<T>)(value < 0 ? ~value : value);
  uint32_t found = bits ? 63 - (uint32_t)__builtin_clzll(bits) : ~0u;
  if (bits && i.code)
    found = sizeof(T) * 8 - 1 - found;
  put(t, i.op[0], found);
  return kNext;
}
template <class T> Step brev(Thread &t, const Inst &i) {
  write<T>(t, i.op[0], (T)(__builtin_bitreverse64((Unsigned<T>)read<T>(t, i.op[1])) >> (64 - sizeof(T) * 8)));
  return kNext;
}
template <class T> Step bfe(Thread &t, const Inst &i) {
  T value = read<T>(t, i.op[1]);
  uint32_t at = read<uint32_t>(t, i.op[2]) & 255, length = read<uint32_t>(t, i.op[3]) & 255;
  const uint32_t most_at = sizeof(T) * 8 - 1;
  bool sign = std::is_signed_v<T> && length && value >> (at + length - 1 < most_at ? at + length - 1 : most_at) & 1;
  T result = 0;
  for (uint32_t bit = 0; bit <= most_at; ++bit) {
    bool is_set = bit < length && at + bit <= most_at ? value >> (at + bit) & 1 : sign;
    result = (T)(result | (T)((Unsigned<T>)is_set << bit));
  }
  write<T>(t, i.op[0], result);
  return kNext;
}
template <class T> Step bfi(Thread &t, const Inst &i) {
  T a = read<T>(t, i.op[1]), result = read<T>(t, i.op[2]);
  uint32_t at = read<uint32_t>(t, i.op[3]) & 255, length = read<uint32_t>(t, i.op[4]) & 255;
  for (uint32_t bit = 0; bit < length && at + bit < sizeof(T) * 8; ++bit) {
    T one = (T)((Unsigned<T>)1 << (at + bit));
    result = a >> bit & 1 ? (T)(result | one) : (T)(result & ~one);
  }
  write<T>(t, i.op[0], result);
  return kNext;
}
Step bmsk(Thread &t, const Inst &i) {
  uint32_t at = read<uint32_t>(t, i.op[1]), length = read<uint32_t>(t, i.op[2]);
  at = i.code ? at & 31 : at, length = i.code ? length & 31 : length;
  uint64_t mask = at > 31 ? 0 : (length > 31 ? ~0ull : (1ull << length) - 1) << at;
  put(t, i.op[0], (uint32_t)mask);
  return kNext;
}
Step prmt(Thread &t, const Inst &i) {
  uint64_t bytes = read<uint32_t>(t, i.op[1]) | (uint64_t)read<uint32_t>(t, i.op[2]) << 32;
  uint32_t selector = read<uint32_t>(t, i.op[3]), result = 0;
  for (uint32_t at = 0; at < 4; ++at) {
    uint32_t low = selector & 3, choice = selector >> 4 * at & 15;
    switch (i.code) {
    case 1: choice = low + at; break;                                  /* f4e */
    case 2: choice = (low + 8 - at) & 7; break;                        /* b4e */
    case 3: choice = low; break;                                       /* rc8 */
    case 4: choice = at < low ? low : at; break;                       /* ecl */
    case 5: choice = at < low ? at : low; break;                       /* ecr */
    case 6: choice = (low & 1) * 2 + (at & 1); break;                  /* rc16 */
    default: break;
    }
    uint8_t byte = (uint8_t)(bytes >> 8 * (choice & 7));
    if (choice & 8)
      byte = byte & 0x80 ? 0xff : 0;
    result |= (uint32_t)byte << 8 * at;
  }
  put(t, i.op[0], result);
  return kNext;
}
template <class T> Step lop3(Thread &t, const Inst &i) {
  T a = read<T>(t, i.op[1]), b = read<T>(t, i.op[2]), c = read<T>(t, i.op[3]), result = 0;
  uint32_t table = read<uint32_t>(t, i.op[4]);
  for (int row = 0; row < 8; ++row)
    if (table >> row & 1)
      result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
  write<T>(t, i.op[0], result);
  return kNext;
}
/* shf: `code` 1 to the right, 2 clamped. */
Step funnel(Thread &t, const Inst &i) {
  uint64_t pair = read<uint32_t>(t, i.op[1]) | (uint64_t)read<uint32_t>(t, i.op[2]) << 32;
  uint32_t by = read<uint32_t>(t, i.op[3]);
  by = i.code & 2 ? (by < 32 ? by : 32) : by & 31;
  put(t, i.op[0], i.code & 1 ? (uint32_t)(pair >> by) : (uint32_t)(pair << by >> 32));
  return kNext;
}
/* dp4a, dp2a: `code` 1 and 2 for signed operands, 4 and 8 for dp2a.lo and .hi. */
Step dot(Thread &t, const Inst &i) {
  uint32_t a = read<uint32_t>(t, i.op[1]), b = read<uint32_t>(t, i.op[2]), sum = read<uint32_t>(t, i.op[3]);
  bool is_two = i.code & 12;
  for (int at = 0; at < (is_two ? 2 : 4); ++at) {
    int left = is_two ? (i.code & 1 ? (int16_t)(a >> 16 * at) : (uint16_t)(a >> 16 * at))
                      : (i.code & 1 ? (int8_t)(a >> 8 * at) : (uint8_t)(a >> 8 * at));
    int from = 8 * (at + (i.code & 8 ? 2 : 0));
    int right = i.code & 2 ? (int8_t)(b >> from) : (uint8_t)(b >> from);
    sum += (uint32_t)(left * right);
  }
  put(t, i.op[0], sum);
  return kNext;
}
Step mul24(Thread &t, const Inst &i) {
  bool is_signed = i.type == Type::s32;
  uint32_t a = read<uint32_t>(t, i.op[1]) << 8, b = read<uint32_t>(t, i.op[2]) << 8;
  uint64_t product = is_signed ? (uint64_t)((int64_t)((int32_t)a >> 8) * ((int32_t)b >> 8)) : (uint64_t)(a >> 8) * (b >> 8);
  uint32_t part = (uint32_t)(i.flags & kHigh ? product >> 16 : product);
  put(t, i.op[0], i.code ? part + read<uint32_t>(t, i.op[3]) : part);
  return kNext;
}

template <class T> Step add_sat(Thread &t, const Inst &i) {
  int64_t a = read<int32_t>(t, i.op[1]), b = read<int32_t>(t, i.op[2]), sum = i.code ? a - b : a + b;
  write<int32_t>(t, i.op[0], (int32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum));
  return kNext;
}

template <class T> Step negate_predicate(Thread &t, const Inst &i) {
  put(t, i.op[0], !(t.get(i.op[1]) & 1));
  return kNext;
}

/* Floating point ----------------------------------------------------------------------------- */

enum Operation : uint8_t { kAdd, kSub, kMul, kDiv, kMin, kMax, kCopySign, kFma, kSqrt, kRcp, kRsqrt, kSin, kCos, kEx2, kLg2,
                           kTanh, kAbs, kNeg };

template <class T> bool is_nan(T value) { return value_of(value) != value_of(value); }

template <class T> T flushed(T value, uint8_t flags) {
  if constexpr (std::is_same_v<T, float>)
    if (flags & kFtz && fabsf(value) < std::numeric_limits<float>::min())
      return copysignf(0, value);
  if constexpr (std::is_same_v<T, Half>)
    if (flags & kFtz && !(value.bits & 0x7c00))
      return {(uint16_t)(value.bits & 0x8000)};
  return value;
}

template <class T> T quiet() {
  if constexpr (std::is_same_v<T, float>)
    return float_of(0x7fffffff);
  else if constexpr (std::is_same_v<T, double>)
    return std::numeric_limits<double>::quiet_NaN();
  else
    return {0x7fff};
}

template <class T> T finished(T value, uint8_t flags) {
  value = flushed(value, flags);
  if (is_nan(value))
    return flags & kSat ? T{} : std::is_same_v<T, double> ? value : quiet<T>();
  if (flags & kSat) {
    double wide = value_of(value);
    if constexpr (std::is_floating_point_v<T>)
      return wide <= 0 ? T{} : wide > 1 ? (T)1 : value;
    else
      return wide <= 0 ? T{} : wide > 1 ? of_value<T>(1) : value;
  }
  if (flags & kRelu && value_of(value) < 0)
    return T{};
  return value;
}

template <class T> T lesser(T a, T b, bool is_max, uint8_t flags) {
  if (is_nan(a) || is_nan(b)) {
    if (flags & kNan || (is_nan(a) && is_nan(b)))
      return quiet<T>();
    return is_nan(a) ? b : a;
  }
  double left = value_of(a), right = value_of(b);
  bool is_less = left < right || (left == right && std::signbit(left) && !std::signbit(right));
  return is_less != is_max ? a : b;
}

/* The sum of an exact product and a number, with the last bit set where it is not exact: rounding it again
 * to fewer bits gives what one rounding would have given. */
inline long double fma_odd(double a, double b, double c) {
  double product = a * b; /* exact: both have at most 11 bits */
  long double sum = (long double)product + c;
  long double back = sum - (long double)product;
  long double error = ((long double)product - (sum - back)) + ((long double)c - back);
  if (error != 0 && std::isfinite((double)sum)) {
    uint64_t mantissa;
    memcpy(&mantissa, &sum, sizeof mantissa);
    if (!(mantissa & 1))
      sum = nextafterl(sum, error > 0 ? INFINITY : -INFINITY);
  }
  return sum;
}

double computed(uint8_t operation, double a, double b) {
  switch (operation) {
  case kAdd: return a + b;
  case kSub: return a - b;
  case kMul: return a * b;
  case kDiv: return a / b;
  case kSqrt: return sqrt(a);
  case kRcp: return 1 / a;
  case kRsqrt: return 1 / sqrt(a);
  case kSin: return sin(a);
  case kCos: return cos(a);
  case kEx2: return exp2(a);
  case kLg2: return log2(a);
  case kTanh: return tanh(a);
  default: return a;
  }
}

float computed_float(uint8_t operation, float a, float b, uint8_t rounding) {
  volatile float left = a, right = b, result;
  RoundingScope scope(rounding);
  result = operation == kAdd ? left + right : operation == kSub ? left - right : operation == kMul ? left * right
           : operation == kDiv ? left / right : operation == kSqrt ? sqrtf(left) : 1 / left;
  return result;
}
double computed_double(uint8_t operation, double a, double b, uint8_t rounding) {
  volatile double left = a, right = b, result;
  RoundingScope scope(rounding);
  result = operation == kAdd ? left + right : operation == kSub ? left - right : operation == kMul ? left * right
           : operation == kDiv ? left / right : operation == kSqrt ? sqrt(left) : 1 / left;
  return result;
}

template <class T, uint8_t kOperation> T apply(T a, T b, const Inst &i) {
  a = flushed(a, i.flags), b = flushed(b, i.flags);
  T result;
  if constexpr (kOperation == kMin || kOperation == kMax) {
    result = lesser(a, b, kOperation == kMax, i.flags);
    if (i.code) { /* xorsign.abs */
      bool sign = std::signbit(value_of(a)) != std::signbit(value_of(b));
      if constexpr (std::is_floating_point_v<T>)
        result = std::copysign(lesser(std::fabs(a), std::fabs(b), kOperation == kMax, i.flags), sign ? (T)-1 : (T)1);
    }
  } else if constexpr (kOperation >= kRsqrt || !std::is_floating_point_v<T>) {
    double wide = computed(kOperation, value_of(a), value_of(b));
    if constexpr (std::is_floating_point_v<T>)
      result = (T)wide;
    else
      result = of_value<T>(wide, i.rounding);
  } else if (i.rounding) {
    if constexpr (std::is_same_v<T, float>)
      result = computed_float(kOperation, a, b, i.rounding);
    else
      result = computed_double(kOperation, a, b, i.rounding);
  } else if constexpr (kOperation == kAdd) {
    result = a + b;
  } else if constexpr (kOperation == kSub) {
    result = a - b;
  } else if constexpr (kOperation == kMul) {
    result = a * b;
  } else if constexpr (kOperation == kDiv) {
    result = a / b;
  } else if constexpr (kOperation == kSqrt) {
    result = std::sqrt(a);
  } else {
    result = 1 / a;
  }
  return finished(result, i.flags);
}

template <class T> T negated(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return -value;
  else
    return {(uint16_t)(value.bits ^ 0x8000)};
}
template <class T> T without_sign(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fabs(value);
  else
    return {(uint16_t)(value.bits & 0x7fff)};
}

template <class T, uint8_t kOperation> T apply_one(T a, const Inst &i) {
  if constexpr (kOperation == kNeg)
    return flushed(negated(a), i.flags);
  else if constexpr (kOperation == kAbs)
    return flushed(without_sign(a), i.flags);
  else
    return apply<T, kOperation>(a, a, i);
}

template <class T> T fused(T a, T b, T c, const Inst &i) {
  a = flushed(a, i.flags), b = flushed(b, i.flags), c = flushed(c, i.flags);
  if constexpr (!std::is_floating_point_v<T>) {
    return finished(of_value<T>(fma_odd(value_of(a), value_of(b), value_of(c)), i.rounding), i.flags);
  } else if (i.rounding) {
    volatile T x = a, y = b, z = c, result;
    RoundingScope scope(i.rounding);
    result = std::fma((T)x, (T)y, (T)z);
    return finished((T)result, i.flags);
  } else {
    return finished(std::fma(a, b, c), i.flags);
  }
}

/* A type, or two of it in one register. */
template <class T, bool kIsPair, class F> void lanes(Thread &t, const Inst &i, F f) {
  if constexpr (!kIsPair) {
    write<T>(t, i.op[0], f([&](int at) { return read<T>(t, i.op[at]); }));
  } else {
    uint32_t result = 0;
    for (int lane = 0; lane < 2; ++lane) {
      T one = f([&](int at) { return T{(uint16_t)(t.get(i.op[at]) >> 16 * lane)}; });
      result |= (uint32_t)one.bits << 16 * lane;
    }
    put(t, i.op[0], result);
  }
}
template <class T, bool kIsPair, uint8_t kOperation> Step float_two(Thread &t, const Inst &i) {
  lanes<T, kIsPair>(t, i, [&](auto operand) { return apply<T, kOperation>(operand(1), operand(2), i); });
  return kNext;
}
template <class T, bool kIsPair, uint8_t kOperation> Step float_one(Thread &t, const Inst &i) {
  lanes<T, kIsPair>(t, i, [&](auto operand) { return apply_one<T, kOperation>(operand(1), i); });
  return kNext;
}
template <class T, bool kIsPair> Step float_fma(Thread &t, const Inst &i) {
  lanes<T, kIsPair>(t, i, [&](auto operand) { return fused<T>(operand(1), operand(2), operand(3), i); });
  return kNext;
}
/* min and max of three (sm_100). */
template <class T, bool kIsPair, uint8_t kOperation> Step float_three(Thread &t, const Inst &i) {
  lanes<T, kIsPair>(t, i, [&](auto operand) {
    return apply<T, kOperation>(apply<T, kOperation>(operand(1), operand(2), i), operand(3), i);
  });
  return kNext;
}
template <class T> Step copy_sign(Thread &t, const Inst &i) {
  write<T>(t, i.op[0], std::copysign(read<T>(t, i.op[2]), read<T>(t, i.op[1])));
  return kNext;
}
template <class T> Step test_property(Thread &t, const Inst &i) {
  T value = read<T>(t, i.op[1]);
  bool found[] = {std::isfinite(value), std::isinf(value), !std::isnan(value), std::isnan(value), std::isnormal(value),
                  value != 0 && std::isfinite(value) && !std::isnormal(value)};
  put(t, i.op[0], found[i.code]);
  return kNext;
}

template <class F> Handler by_float(Type type, F f) {
  switch (type) {
  case Type::f32: return f.template operator()<float, false>();
  case Type::f64: return f.template operator()<double, false>();
  case Type::f16: return f.template operator()<Half, false>();
  case Type::bf16: return f.template operator()<Bfloat, false>();
  case Type::f16x2: return f.template operator()<Half, true>();
  case Type::bf16x2: return f.template operator()<Bfloat, true>();
  default: return nullptr;
  }
}

template <uint8_t kOperation> Handler float_binary(const Inst &i, size_t operands) {
  return by_float(i.type, [&]<class T, bool kIsPair>() -> Handler {
    if constexpr (kOperation == kMin || kOperation == kMax)
      if (operands == 4)
        return &float_three<T, kIsPair, kOperation>;
    return &float_two<T, kIsPair, kOperation>;
  });
}
template <uint8_t kOperation> Handler float_unary(const Inst &i) {
  return by_float(i.type, []<class T, bool kIsPair>() -> Handler { return &float_one<T, kIsPair, kOperation>; });
}

/* Comparisons -------------------------------------------------------------------------------- */

enum Comparison : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kNum, kIsNan };
enum Combination : uint8_t { kAlone, kAnd, kOr, kXor };

template <class T> bool compare(T a, T b, uint8_t code, bool is_unordered) {
  if (a != a || b != b)
    return code == kIsNan || (is_unordered && code != kNum);
  switch (code) {
  case kEq: return a == b;
  case kNe: return a != b;
  case kLt: return a < b;
  case kLe: return a <= b;
  case kGt: return a > b;
  case kGe: return a >= b;
  case kNum: return true;
  default: return false;
  }
}
template <class T> bool compared(Thread &t, const Inst &i, int lane = 0) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>)
    return compare(value_of(flushed(T{(uint16_t)(t.get(i.op[2]) >> 16 * lane)}, i.flags)),
                   value_of(flushed(T{(uint16_t)(t.get(i.op[3]) >> 16 * lane)}, i.flags)), i.code,
                   i.flags & kUnordered);
  else if constexpr (std::is_same_v<T, float>)
    return compare(flushed(read<T>(t, i.op[2]), i.flags), flushed(read<T>(t, i.op[3]), i.flags), i.code, i.flags & kUnordered);
  else
    return compare(read<T>(t, i.op[2]), read<T>(t, i.op[3]), i.code, i.flags & kUnordered);
}
/* `rounding` is the combination; `vector` 2 where the other predicate is negated. */
bool combined(Thread &t, const Inst &i, bool value, bool is_other) {
  if (is_other)
    value = !value;
  if (i.rounding == kAlone)
    return value;
  bool other = (t.get(i.op[4]) & 1) != (i.vector == 2);
  return i.rounding == kAnd ? value && other : i.rounding == kOr ? value || other : value != other;
}
template <class T, bool kIsPair> Step set_predicate(Thread &t, const Inst &i) {
  bool value = compared<T>(t, i);
  bool second = kIsPair ? compared<T>(t, i, 1) : value;
  bool first = combined(t, i, value, false), other = combined(t, i, second, !kIsPair);
  put(t, i.op[0], first);
  if (i.op[1] >= 0)
    put(t, i.op[1], other);
  return kNext;
}
template <class T, bool kIsPair> Step set_number(Thread &t, const Inst &i) {
  bool value = combined(t, i, compared<T>(t, i), false);
  uint64_t yes = 0xffffffff;
  if (i.source_type == Type::f32)
    yes = 0x3f800000;
  else if (i.source_type == Type::f16 || i.source_type == Type::bf16)
    yes = i.source_type == Type::f16 ? 0x3c00 : 0x3f80;
  else if (size_of(i.source_type) == 2)
    yes = 0xffff;
  put(t, i.op[0], value ? yes : 0);
  return kNext;
}

Step select_value(Thread &t, const Inst &i) {
  put(t, i.op[0], t.get(t.get(i.op[3]) & 1 ? i.op[1] : i.op[2]));
  return kNext;
}
template <class T> Step select_by_sign(Thread &t, const Inst &i) {
  put(t, i.op[0], t.get(read<T>(t, i.op[3]) >= 0 ? i.op[1] : i.op[2]));
  return kNext;
}

/* Conversions -------------------------------------------------------------------------------- */

template <class D, class S> Step convert_integer(Thread &t, const Inst &i) {
  write<D>(t, i.op[0], (D)read<S>(t, i.op[1]));
  return kNext;
}
template <class D, class S> Step convert_clamped(Thread &t, const Inst &i) {
  __int128 value = read<S>(t, i.op[1]), low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
  write<D>(t, i.op[0], (D)(value < low ? low : value > high ? high : value));
  return kNext;
}

long double source(Thread &t, const Inst &i, int32_t operand) {
  switch (i.source_type) {
  case Type::u8: return read<uint8_t>(t, operand);
  case Type::s8: return read<int8_t>(t, operand);
  case Type::u16: return read<uint16_t>(t, operand);
  case Type::s16: return read<int16_t>(t, operand);
  case Type::u32: return read<uint32_t>(t, operand);
  case Type::s32: return read<int32_t>(t, operand);
  case Type::u64: return read<uint64_t>(t, operand);
  case Type::s64: return read<int64_t>(t, operand);
  case Type::f16: return value_of(flushed(read<Half>(t, operand), i.flags));
  case Type::bf16: return value_of(read<Bfloat>(t, operand));
  case Type::f32: case Type::tf32: return flushed(read<float>(t, operand), i.flags);
  default: return read<double>(t, operand);
  }
}

long double to_whole(long double value, uint8_t rounding) {
  return rounding == kZero ? truncl(value) : rounding == kDown ? floorl(value) : rounding == kUp ? ceill(value) : rintl(value);
}

uint64_t integer_of(long double value, Type type, Type from) {
  unsigned bits = size_of(type) * 8;
  bool is_wide = bits == 64 || from == Type::f64;
  if (value != value)
    return !is_wide ? 0 : is_signed(type) ? (uint64_t)(-1ll << (bits - 1)) : 1ull << (bits - 1);
  long double low = is_signed(type) ? -ldexpl(1, (int)bits - 1) : 0;
  long double high = ldexpl(1, is_signed(type) ? (int)bits - 1 : (int)bits) - 1;
  value = value < low ? low : value > high ? high : value;
  return is_signed(type) ? (uint64_t)(int64_t)value : (uint64_t)value;
}

uint64_t float_bits(long double value, Type type, uint8_t rounding, uint8_t flags) {
  switch (type) {
  case Type::f64: {
    volatile long double wide = value;
    volatile double result;
    {
      RoundingScope scope(rounding);
      result = (double)wide;
    }
    double plain = result;
    uint64_t bits;
    memcpy(&bits, &plain, sizeof bits);
    return bits;
  }
  case Type::f32: {
    volatile long double wide = value;
    volatile float result;
    {
      RoundingScope scope(rounding);
      result = (float)wide;
    }
    return bits_of(finished<float>(result, flags));
  }
  case Type::f16: return finished(of_value<Half>(value, rounding), flags).bits;
  case Type::bf16: return finished(of_value<Bfloat>(value, rounding), flags).bits;
  default: return (uint64_t)narrow(value, 8, 10, rounding) << 13; /* tf32 */
  }
}

/* `code` 1 rounds to a whole number of the same format. */
Step convert(Thread &t, const Inst &i) {
  long double value = source(t, i, i.op[1]);
  if (i.code || !is_float(i.type))
    value = to_whole(value, i.rounding);
  if (is_float(i.type) || i.type == Type::tf32)
    put(t, i.op[0], float_bits(value, i.type, i.code ? (uint8_t)kNearest : i.rounding, i.flags));
  else
    put(t, i.op[0], integer_of(value, i.type, i.source_type));
  return kNext;
}
/* cvt.f16x2.f32 d, a, b: a is the upper half. */
Step convert_pair(Thread &t, const Inst &i) {
  Type half = i.type == Type::f16x2 ? Type::f16 : Type::bf16;
  uint64_t upper = float_bits(source(t, i, i.op[1]), half, i.rounding, i.flags);
  put(t, i.op[0], upper << 16 | float_bits(source(t, i, i.op[2]), half, i.rounding, i.flags));
  return kNext;
}

/* Numbers of 8 bits: e4m3 has no infinity and one NaN; both saturate. */
uint32_t to_float8(long double value, bool is_e4m3, bool is_relu) {
  if (value != value)
    return 0x7f;
  if (is_relu && value < 0)
    value = 0;
  long double most_value = is_e4m3 ? 448 : 57344;
  value = value > most_value ? most_value : value < -most_value ? -most_value : value;
  if (!is_e4m3)
    return narrow(value, 5, 2);
  /* e4m3 uses the exponent of infinity for numbers, so one more bit of exponent is given and taken away. */
  long double size = fabsl(value);
  uint32_t sign = std::signbit(value) ? 0x80 : 0;
  int exponent;
  frexpl(size, &exponent);
  int lowest = exponent - 1 < -6 ? -6 : exponent - 1;
  uint32_t mantissa = (uint32_t)rintl(ldexpl(size, 3 - lowest));
  return sign | (((uint32_t)(lowest + 6) << 3) + mantissa);
}
double of_float8(uint32_t bits, bool is_e4m3) {
  if (!is_e4m3)
    return widen(bits, 5, 2);
  if ((bits & 0x7f) == 0x7f)
    return NAN;
  int exponent = (int)(bits >> 3) & 15;
  double value = exponent ? ldexp(8 + (bits & 7), exponent - 10) : ldexp(bits & 7, -9);
  return bits & 0x80 ? -value : value;
}
Step to_float8_pair(Thread &t, const Inst &i) { /* `code`: 1 e4m3, 2 from f16x2 */
  long double upper, lower;
  if (i.code & 2) {
    uint32_t pair = read<uint32_t>(t, i.op[1]);
    upper = value_of(Half{(uint16_t)(pair >> 16)}), lower = value_of(Half{(uint16_t)pair});
  } else {
    upper = read<float>(t, i.op[1]), lower = read<float>(t, i.op[2]);
  }
  bool relu = i.flags & kRelu;
  put(t, i.op[0], to_float8(upper, i.code & 1, relu) << 8 | to_float8(lower, i.code & 1, relu));
  return kNext;
}
Step of_float8_pair(Thread &t, const Inst &i) {
  uint32_t pair = read<uint16_t>(t, i.op[1]), result = 0;
  for (int at = 0; at < 2; ++at) {
    Half half = finished(of_value<Half>(of_float8(pair >> 8 * at & 255, i.code & 1)), i.flags);
    result |= (uint32_t)half.bits << 16 * at;
  }
  put(t, i.op[0], result);
  return kNext;
}

Handler conversion(const RawInst &raw, Inst &i) {
  bool to_8 = raw.has("e4m3x2") || raw.has("e5m2x2");
  if (to_8) {
    const std::string &last = raw.modifiers.back();
    bool is_source = last == "e4m3x2" || last == "e5m2x2";
    i.code = (raw.has("e4m3x2") ? 1 : 0) | (!is_source && last == "f16x2" ? 2 : 0);
    return is_source ? of_float8_pair : to_float8_pair;
  }
  std::vector<Type> types;
  for (const std::string &modifier : raw.modifiers)
    if (type_of(modifier) != Type::none)
      types.push_back(type_of(modifier));
  if (types.size() != 2)
    return nullptr;
  i.type = types[0], i.source_type = types[1];
  if (i.type == Type::f16x2 || i.type == Type::bf16x2)
    return raw.operands.size() == 3 ? convert_pair : nullptr;
  for (const std::string &modifier : raw.modifiers) {
    static const char *const kWhole[] = {"rni", "rzi", "rmi", "rpi"};
    for (uint8_t at = 0; at < 4; ++at)
      if (modifier == kWhole[at]) {
        i.rounding = at;
        i.code = is_float(i.type);
      }
  }
  if (is_float(i.type) || i.type == Type::tf32 || is_float(i.source_type))
    return convert;
  return by_integer(i.type, [&]<class D>() -> Handler {
    return by_integer(i.source_type, [&]<class S>() -> Handler {
      return i.flags & kSat ? &convert_clamped<D, S> : &convert_integer<D, S>;
    });
  });
}

Handler comparison(const RawInst &raw, Inst &i) {
  static const struct { const char *name; uint8_t code; bool is_unordered; } kNames[] = {
      {"eq", kEq, false}, {"ne", kNe, false}, {"lt", kLt, false}, {"le", kLe, false}, {"gt", kGt, false},
      {"ge", kGe, false}, {"lo", kLt, false}, {"ls", kLe, false}, {"hi", kGt, false}, {"hs", kGe, false},
      {"equ", kEq, true}, {"neu", kNe, true}, {"ltu", kLt, true}, {"leu", kLe, true}, {"gtu", kGt, true},
      {"geu", kGe, true}, {"num", kNum, false}, {"nan", kIsNan, false}};
  for (const auto &known : kNames)
    if (raw.modifiers[0] == known.name) {
      i.code = known.code;
      if (known.is_unordered)
        i.flags |= kUnordered;
    }
  i.rounding = raw.has("and") ? kAnd : raw.has("or") ? kOr : raw.has("xor") ? kXor : kAlone;
  i.type = type_of(raw.modifiers.back());
  bool is_set = raw.opcode == "set";
  if (is_set)
    i.source_type = type_of(raw.modifiers[raw.modifiers.size() - 2]);
  if (Handler found = by_integer(i.type, [&]<class T>() -> Handler {
        return is_set ? &set_number<T, false> : &set_predicate<T, false>;
      }))
    return found;
  return by_float(i.type, [&]<class T, bool kIsPair>() -> Handler {
    return is_set ? (kIsPair ? nullptr : &set_number<T, false>) : &set_predicate<T, kIsPair>;
  });
}

#define INTEGER(function) \
  by_integer(i.type, []<class T>() -> Handler { return &function; })

Handler integer_handler(const RawInst &raw, Inst &i) {
  const std::string &name = raw.opcode;
  if (name == "add" || name == "sub" || name == "addc" || name == "subc") {
    bool is_sub = name[0] == 's';
    i.code = (name.size() == 4 ? 1 : 0) | (raw.has("cc") ? 2 : 0);
    if (i.code)
      return is_sub ? INTEGER((with_carry<T, true>)) : INTEGER((with_carry<T, false>));
    if (i.flags & kSat)
      return i.code = is_sub, &add_sat<int32_t>;
    return is_sub ? INTEGER((binary<T, sub<T>>)) : INTEGER((binary<T, add<T>>));
  }
  if (name == "mul")
    return raw.has("wide") ? INTEGER(multiply_wide<T>)
           : raw.has("hi") ? INTEGER((binary<T, high<T>>)) : INTEGER((binary<T, mul<T>>));
  if (name == "mad" || name == "madc") {
    i.code = (name.size() == 4 ? 1 : 0) | (raw.has("cc") ? 2 : 0);
    if (i.code)
      return INTEGER(mad_carry<T>);
    return raw.has("wide") ? INTEGER(mad_wide<T>) : INTEGER(mad<T>);
  }
  if (name == "mul24" || name == "mad24")
    return i.code = name[1] == 'a', mul24;
  if (name == "div") return INTEGER((binary<T, div<T>>));
  if (name == "rem") return INTEGER((binary<T, rem<T>>));
  if (name == "min") return INTEGER((binary<T, least<T>>));
  if (name == "max") return INTEGER((binary<T, most<T>>));
  if (name == "neg") return INTEGER((unary<T, negative<T>>));
  if (name == "abs") return INTEGER((unary<T, absolute<T>>));
  if (name == "sad") return INTEGER(sad<T>);
  if (name == "shl") return INTEGER(shift_left<T>);
  if (name == "shr") return INTEGER(shift_right<T>);
  return nullptr;
}

Handler bit_handler(const RawInst &raw, Inst &i) {
  const std::string &name = raw.opcode;
  bool is_predicate = i.type == Type::pred;
  if (is_predicate)
    i.type = Type::b8;
  if (name == "and") return INTEGER((binary<T, both<T>>));
  if (name == "or") return INTEGER((binary<T, either<T>>));
  if (name == "xor") return INTEGER((binary<T, differ<T>>));
  if (name == "not") return is_predicate ? &negate_predicate<bool> : INTEGER((unary<T, complement<T>>));
  if (name == "cnot") return INTEGER((unary<T, cnot<T>>));
  if (name == "popc") return INTEGER(popc<T>);
  if (name == "clz") return INTEGER(clz<T>);
  if (name == "bfind") return i.code = raw.has("shiftamt"), INTEGER(bfind<T>);
  if (name == "brev") return INTEGER(brev<T>);
  if (name == "bfe") return INTEGER(bfe<T>);
  if (name == "bfi") return INTEGER(bfi<T>);
  if (name == "bmsk") return i.code = raw.has("wrap"), bmsk;
  if (name == "lop3") return INTEGER(lop3<T>);
  if (name == "shf") return i.code = (raw.has("r") ? 1 : 0) | (raw.has("clamp") ? 2 : 0), funnel;
  if (name == "prmt") {
    static const char *const kModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
    for (uint8_t mode = 0; mode < 6; ++mode)
      if (raw.has(kModes[mode]))
        i.code = (uint8_t)(mode + 1);
    return prmt;
  }
  if (name == "dp4a" || name == "dp2a") {
    Type left = type_of(raw.modifiers[raw.modifiers.size() - 2]);
    i.code = (is_signed(left) ? 1 : 0) | (is_signed(i.type) ? 2 : 0) | (name == "dp2a" ? (raw.has("hi") ? 8 : 4) : 0);
    return dot;
  }
  return nullptr;
}

Handler float_handler(const RawInst &raw, Inst &i) {
  const std::string &name = raw.opcode;
  size_t count = raw.operands.size();
  if (name == "add") return float_binary<kAdd>(i, count);
  if (name == "sub") return float_binary<kSub>(i, count);
  if (name == "mul") return float_binary<kMul>(i, count);
  if (name == "div") return float_binary<kDiv>(i, count);
  if (name == "min" || name == "max") {
    i.code = raw.has("xorsign");
    return name == "min" ? float_binary<kMin>(i, count) : float_binary<kMax>(i, count);
  }
  if (name == "fma" || name == "mad")
    return by_float(i.type, []<class T, bool kIsPair>() -> Handler { return &float_fma<T, kIsPair>; });
  if (name == "neg") return float_unary<kNeg>(i);
  if (name == "abs") return float_unary<kAbs>(i);
  if (name == "sqrt") return float_unary<kSqrt>(i);
  if (name == "rcp") return float_unary<kRcp>(i);
  if (name == "rsqrt") return float_unary<kRsqrt>(i);
  if (name == "sin") return float_unary<kSin>(i);
  if (name == "cos") return float_unary<kCos>(i);
  if (name == "ex2") return float_unary<kEx2>(i);
  if (name == "lg2") return float_unary<kLg2>(i);
  if (name == "tanh") return float_unary<kTanh>(i);
  if (name == "copysign") return i.type == Type::f32 ? &copy_sign<float> : &copy_sign<double>;
  if (name == "testp") {
    static const char *const kNames[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
    for (uint8_t at = 0; at < 6; ++at)
      if (raw.has(kNames[at]))
        i.code = at;
    return i.type == Type::f32 ? &test_property<float> : &test_property<double>;
  }
  return nullptr;
}

} // namespace

uint32_t float8_bits(double value, bool is_e4m3) { return to_float8(value, is_e4m3, false); }
double float8_value(uint32_t bits, bool is_e4m3) { return of_float8(bits, is_e4m3); }

Handler arithmetic_handler(const RawInst &raw, Inst &i) {
  const std::string &name = raw.opcode;
  i.type = raw.modifiers.empty() ? Type::none : type_of(raw.modifiers.back());
  i.rounding = raw.has("rz") ? kZero : raw.has("rm") ? kDown : raw.has("rp") ? kUp : raw.has("rna") ? kAway : kNearest;
  i.flags = (raw.has("ftz") ? kFtz : 0) | (raw.has("sat") ? kSat : 0) | (raw.has("NaN") ? kNan : 0) |
            (raw.has("relu") ? kRelu : 0) | (raw.has("hi") ? kHigh : 0);
  if (name == "cvt")
    return conversion(raw, i);
  if (name == "setp" || name == "set")
    return comparison(raw, i);
  if (name == "selp")
    return select_value;
  if (name == "slct")
    return i.type == Type::f32 ? &select_by_sign<float> : &select_by_sign<int32_t>;
  if (is_float(i.type))
    return float_handler(raw, i);
  if (Handler found = integer_handler(raw, i))
    return found;
  return bit_handler(raw, i);
}

} // namespace ptx
