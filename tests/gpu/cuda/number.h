/* Numbers of PTX in terms of the host's. */
#ifndef NUMBER_H
#define NUMBER_H

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "machine.h"

namespace ptx {

enum Rounding : uint8_t { kNearest, kZero, kDown, kUp, kAway };
enum Flag : uint8_t { kFtz = 1, kSat = 2, kNan = 4, kRelu = 8, kWide = 16, kHigh = 32, kUnordered = 64, kStrong = 128 };

struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

/* Rounds to a format of so many bits of exponent and mantissa. */
inline uint32_t narrow(long double value, int exponent_bits, int mantissa_bits, uint8_t rounding = kNearest) {
  uint32_t sign = std::signbit(value) ? 1u << (exponent_bits + mantissa_bits) : 0;
  uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  if (value != value)
    return infinity | ((1u << mantissa_bits) - 1);
  long double size = fabsl(value);
  if (std::isinf(size))
    return sign | infinity;
  if (size == 0)
    return sign;
  int bias = (1 << (exponent_bits - 1)) - 1, exponent;
  frexpl(size, &exponent);
  int lowest = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
  long double scaled = ldexpl(size, mantissa_bits - lowest), whole = floorl(scaled), rest = scaled - whole;
  bool is_odd = fmodl(whole, 2) != 0;
  bool up = rounding == kNearest ? rest > 0.5L || (rest == 0.5L && is_odd)
            : rounding == kAway  ? rest >= 0.5L
            : rounding == kUp    ? rest > 0 && !sign
            : rounding == kDown  ? rest > 0 && sign
                                 : false;
  uint64_t mantissa = (uint64_t)whole + up;
  uint64_t bits = ((uint64_t)(lowest + bias - 1) << mantissa_bits) + mantissa;
  if (bits >= infinity) {
    bool is_cut = rounding == kZero || (rounding == kUp && sign) || (rounding == kDown && !sign);
    return sign | (is_cut ? infinity - 1 : infinity);
  }
  return sign | (uint32_t)bits;
}

inline double widen(uint32_t bits, int exponent_bits, int mantissa_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1;
  uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  double value = exponent == (1 << exponent_bits) - 1 ? (mantissa ? NAN : INFINITY)
                 : exponent ? ldexp((double)(mantissa + (1u << mantissa_bits)), exponent - bias - mantissa_bits)
                            : ldexp((double)mantissa, 1 - bias - mantissa_bits);
  return bits >> (exponent_bits + mantissa_bits) & 1 ? -value : value;
}

inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline double value_of(Half h) { return widen(h.bits, 5, 10); }
inline double value_of(Bfloat b) { return float_of((uint32_t)b.bits << 16); }
inline double value_of(float f) { return f; }
inline double value_of(double d) { return d; }

template <class T> T of_value(long double value, uint8_t rounding = kNearest);
template <> inline Half of_value<Half>(long double value, uint8_t rounding) {
  return {(uint16_t)narrow(value, 5, 10, rounding)};
}
template <> inline Bfloat of_value<Bfloat>(long double value, uint8_t rounding) {
  return {(uint16_t)narrow(value, 8, 7, rounding)};
}

/* The bits of a type in a register, extended as PTX extends them. */
template <class T> T read(const Thread &thread, int32_t operand) {
  T value;
  memcpy(&value, &thread.get(operand), sizeof value);
  return value;
}
inline void put(Thread &thread, int32_t operand, uint64_t bits) { thread.registers[operand] = bits; }
template <class T> void write(Thread &thread, int32_t operand, T value) {
  if constexpr (std::is_integral_v<T>) {
    put(thread, operand, (uint64_t)(int64_t)value);
  } else {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    put(thread, operand, bits);
  }
}

/* Rounds otherwise for as long as it lives. Values that are volatile are computed in between. */
class RoundingScope {
public:
  explicit RoundingScope(uint8_t rounding) {
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
    fesetround(modes[rounding]);
  }
  ~RoundingScope() { fesetround(FE_TONEAREST); }
};

} // namespace ptx
#endif
