// Each expression is computed by the compiled host code and by the PTX of the same expression, from the same numbers.
#include "cuda_bare.h"

#define BOTH static __attribute__((host)) __attribute__((device))
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long s64;
extern "C" {
int cudaMalloc(void **, unsigned long);
int cudaMemcpy(void *, const void *, unsigned long, int);
int printf(const char *, ...);
}
enum { N = 1024 };
typedef struct { u64 a, b, c; } three;

template <class F> __global__ void on_device(const three *in, u64 *out) {
  int i = __nvvm_read_ptx_sreg_ctaid_x() * 256 + __nvvm_read_ptx_sreg_tid_x();
  out[i] = F::compute(in[i]);
}

template <class T> BOTH T as(u64 bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T> BOTH u64 bits_of(T value) {
  u64 bits = 0;
  if (value != value)
    value = (T)12345; // any NaN is as good as another one
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}

static three inputs[N];
static three *device_in;
static u64 *device_out;
static int total, wrong;

template <class F> void check(const char *name) {
  static u64 got[N];
  void *parameters[] = {&device_in, &device_out};
  cudaLaunchKernel((const void *)on_device<F>, N / 256, 256, parameters, 0, 0);
  cudaMemcpy(got, device_out, sizeof got, 2);
  int bad = 0;
  for (int i = 0; i < N; ++i) {
    u64 wanted = F::compute(inputs[i]);
    if (got[i] != wanted && !bad++)
      printf("%s of %lx %lx %lx: %lx, not %lx\n", name, inputs[i].a, inputs[i].b, inputs[i].c, got[i], wanted);
  }
  ++total;
  wrong += bad != 0;
}

#define EXPRESSION(name, T, expression)                     \
  struct name {                                             \
    BOTH u64 compute(three in) {                            \
      T a = as<T>(in.a), b = as<T>(in.b), c = as<T>(in.c);  \
      (void)a, (void)b, (void)c;                            \
      return bits_of(expression);                           \
    }                                                       \
  };

#define INTEGERS(X, T)                                                                                              \
  X(T, add, (T)(a + b)) X(T, sub, (T)(a - b)) X(T, mul, (T)((u64)a * (u64)b)) X(T, mad, (T)((u64)a * (u64)b + (u64)c)) \
  X(T, div, (T)(b && !(b == (T)-1) ? a / b : 0)) X(T, rem, (T)(b && !(b == (T)-1) ? a % b : 0))                      \
  X(T, least, a < b ? a : b) X(T, most, a > b ? a : b) X(T, both, (T)((a & b) | (c ^ ~a)))                               \
  X(T, left, (T)((u64)a << (b & (sizeof(T) * 8 - 1)))) X(T, right, (T)(a >> (b & (sizeof(T) * 8 - 1))))              \
  X(T, compare, (int)(a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > c) + 16 * (a >= c) + 32 * (a != c))            \
  X(T, choose, (a < b && b < c) || a == c ? a : b)                                                                   \
  X(T, to8, (s8)a) X(T, tou8, (u8)a) X(T, to16, (s16)a) X(T, tou16, (u16)a) X(T, to32, (s32)a) X(T, tou32, (u32)a)   \
  X(T, to64, (s64)a) X(T, tof, (float)a) X(T, tod, (double)a) X(T, count, __builtin_popcountll((u64)a))              \
  X(T, absolute, a < (T)0 ? (T)(0 - (u64)a) : a)

#define FLOATS(X, T)                                                                                               \
  X(T, add, a + b) X(T, sub, a - b) X(T, mul, a *b) X(T, div, a / b) X(T, negative, -a)                             \
  X(T, compare, (int)(a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > c) + 16 * (a >= c) + 32 * (a != c) + 64 * (a != a)) \
  X(T, compare_not, (int)!(a < b) + 2 * !(a <= b) + 4 * !(a > c) + 8 * !(a >= c))                                   \
  X(T, tos, (s32)(a > (T)-30000 && a < (T)30000 ? a : (T)3)) X(T, tou, (u32)(a >= (T)0 && a < (T)30000 ? a : (T)3)) \
  X(T, tol, (s64)(a > (T)-30000 && a < (T)30000 ? a : (T)3)) X(T, tof, (float)a) X(T, tod, (double)a)

#define WIDE_FLOATS(X, T, s)                                                                                      \
  X(T, fma, __builtin_fma##s(a, b, c)) X(T, sqrt, __builtin_sqrt##s(a < 0 ? -a : a)) X(T, least, __builtin_fmin##s(a, b)) \
  X(T, most, __builtin_fmax##s(a, b)) X(T, floor, __builtin_floor##s(a)) X(T, ceil, __builtin_ceil##s(a))           \
  X(T, trunc, __builtin_trunc##s(a)) X(T, rint, __builtin_rint##s(a)) X(T, sign, __builtin_copysign##s(a, b))       \
  X(T, size, __builtin_fabs##s(a)) X(T, toh, (_Float16)a)

#define OTHERS(X)                                                                                                   \
  X(u32, high, (u32)((u64)a * b >> 32)) X(s32, high, (s32)((s64)a * b >> 32)) X(u64, high, (u64)((unsigned __int128)a * b >> 64)) \
  X(s64, high, (s64)((__int128)a * b >> 64)) X(u32, wide, (u64)a * b) X(s32, wide, (s64)a * b) X(u16, wide, (u32)((u32)a * b))  \
  X(u32, reverse, __builtin_bitreverse32(a)) X(u64, reverse, __builtin_bitreverse64(a)) X(u32, zeros, a ? __builtin_clz(a) : 32) \
  X(u64, zeros, a ? __builtin_clzll(a) : 64) X(u32, trailing, a ? __builtin_ctz(a) : 32) X(u32, swap, __builtin_bswap32(a))     \
  X(u64, swap, __builtin_bswap64(a)) X(u32, rotate, __builtin_rotateleft32(a, b)) X(u64, rotate, __builtin_rotateright64(a, b)) \
  X(u32, sum128, (u64)((((unsigned __int128)a << 64 | b) + ((unsigned __int128)c << 63)) >> 40))                                  \
  X(u64, sum128, (u64)((((unsigned __int128)a << 64 | b) + ((unsigned __int128)c << 64 | a)) >> 64))                              \
  X(u64, product128, (u64)(((unsigned __int128)a * b + c) >> 64)) X(double, tosingle, (float)a) X(u32, saturated, __builtin_elementwise_add_sat(a, b)) \
  X(s32, saturated, __builtin_elementwise_add_sat(a, b)) X(s32, under, __builtin_elementwise_sub_sat(a, b))                     \
  X(u32, field, a >> (b & 15) & 0x1ff) X(u32, inserted, (a & ~0xff0u) | (b & 0xff) << 4) X(u32, logic, (a & b) | (~a & c) | (b ^ c))

#define DEFINE(T, name, expression) EXPRESSION(T##_##name, T, expression)
#define CHECK(T, name, expression) check<T##_##name>(#T " " #name);
#define ALL(X)                                                                                              \
  INTEGERS(X, u8) INTEGERS(X, s8) INTEGERS(X, u16) INTEGERS(X, s16) INTEGERS(X, u32) INTEGERS(X, s32)        \
  INTEGERS(X, u64) INTEGERS(X, s64) FLOATS(X, float) FLOATS(X, double) FLOATS(X, _Float16)                   \
  WIDE_FLOATS(X, float, f) WIDE_FLOATS(X, double, ) OTHERS(X)
ALL(DEFINE)

// Numbers of all sizes, with those at the edges among them.
static u64 number(u64 *state) {
  static const u64 edges[] = {0, 1, ~0ull, 0x7f, 0x80, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0x7fffffffffffffff,
                              0x8000000000000000, 0x3c00, 0x7c00, 0x7e00, 0x3f800000, 0x7f800000, 0x7fc00000, 0x00000001, 0x007fffff,
                              0x3ff0000000000000, 0x7ff0000000000000, 0x7ff8000000000000, 0x000fffffffffffff, 0x47efffffe0000000};
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  u64 random = *state >> 32 | *state << 32;
  switch (random >> 8 & 7) {
  case 0: return edges[(random >> 16) % (sizeof edges / sizeof *edges)];
  case 1: return random & 0xffff;
  case 2: return 0x3f000000 + (random & 0x83ffffff); // a float near 1
  case 3: return 0x3ff0000000000000 + (random >> 8 & 0x803fffffffffffff) + (random << 63);
  case 4: return 0x3000 + (random & 0x9fff);
  default: return random;
  }
}

int main() {
  u64 state = 7;
  for (int i = 0; i < N; ++i)
    inputs[i] = {number(&state), number(&state), number(&state)};
  cudaMalloc((void **)&device_in, sizeof inputs);
  cudaMalloc((void **)&device_out, N * sizeof(u64));
  cudaMemcpy(device_in, inputs, sizeof inputs, 1);
  ALL(CHECK)
  printf("%d expressions, %d wrong\n", total, wrong);
  return wrong != 0;
}
