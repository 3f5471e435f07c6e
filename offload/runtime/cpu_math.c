/* Functions of vectors: a permutation, and below it variants of libm functions, which LLVM calls in vectorized loops. Included by cpu_device.c;
 * translate/cpu/library.py defines LLVM's vector functions with them. They use the functions of libmvec in
 * glibc 2.35 and later that LLVM does not call itself. With an older glibc, the scalar function is called in a loop.
 */

typedef uint32_t mo_words __attribute__((vector_size(32), aligned(4)));
typedef int mo_ints __attribute__((vector_size(32)));

/* A permutation by a variable, for translate/cpu/collapse/exchange.py. `order` contains numbers less than 8. */
__attribute__((always_inline)) void mo_cpu_permute(mo_words *result, const mo_words *words, const mo_words *order) {
#ifdef __AVX2__
  *result = (mo_words)__builtin_ia32_permvarsi256((mo_ints)*words, (mo_ints)*order);
#else
  for (int i = 0; i < 8; ++i) ((uint32_t *)result)[i] = ((const uint32_t *)words)[((const uint32_t *)order)[i] & 7];
#endif
}

typedef float mo_float4 __attribute__((vector_size(16)));
typedef float mo_float8 __attribute__((vector_size(32)));
typedef float mo_float16 __attribute__((vector_size(64)));
typedef double mo_double2 __attribute__((vector_size(16)));
typedef double mo_double4 __attribute__((vector_size(32)));
typedef double mo_double8 __attribute__((vector_size(64)));

/* A strong reference to a function that every libmvec has: weak references alone do not link the library. */
mo_float4 _ZGVbN4v_expf(mo_float4);

#define MO_STEPS(type, function, lanes, letter)                                                              \
  for (; count >= lanes && _ZGV##letter##N##lanes##v_##function != NULL; x += lanes, count -= lanes) {       \
    mo_##type##lanes numbers;                                                                                \
    memcpy(&numbers, x, sizeof numbers);                                                                     \
    numbers = _ZGV##letter##N##lanes##v_##function(numbers);                                                 \
    memcpy(x, &numbers, sizeof numbers);                                                                     \
  }

#define MO_DECLARE(type, function, lanes, letter)                                                            \
  mo_##type##lanes _ZGV##letter##N##lanes##v_##function(mo_##type##lanes) __attribute__((weak));

#if defined(__AVX512F__)
#define MO_512(apply, type, function, lanes) apply(type, function, lanes, e)
#else
#define MO_512(apply, type, function, lanes)
#endif
#if defined(__AVX2__)
#define MO_256(apply, type, function, lanes) apply(type, function, lanes, d)
#elif defined(__AVX__)
#define MO_256(apply, type, function, lanes) apply(type, function, lanes, c)
#else
#define MO_256(apply, type, function, lanes)
#endif
#define MO_FORMS(apply, type, function, most, half, least)                                                   \
  MO_512(apply, type, function, most)                                                                        \
  MO_256(apply, type, function, half)                                                                        \
  apply(type, function, least, b)

/* The last loop must not be vectorized, because it would call this function recursively. */
#define MO_FUNCTION(type, function, most, half, least)                                                       \
  type function(type);                                                                                       \
  MO_FORMS(MO_DECLARE, type, function, most, half, least)                                                    \
  void mo_cpu_##function(type *x, uint32_t count) {                                                          \
    __asm__("" : : "r"(_ZGVbN4v_expf));                                                                      \
    MO_FORMS(MO_STEPS, type, function, most, half, least)                                                    \
    _Pragma("clang loop vectorize(disable) unroll(disable)") for (; count > 0; ++x, --count) *x =            \
        function(*x);                                                                                        \
  }

#define MO_LANES(name)                                                                                       \
  MO_FUNCTION(float, name##f, 16, 8, 4)                                                                      \
  MO_FUNCTION(double, name, 8, 4, 2)

MO_LANES(acos)
MO_LANES(acosh)
MO_LANES(asin)
MO_LANES(asinh)
MO_LANES(atan)
MO_LANES(atanh)
MO_LANES(cbrt)
MO_LANES(cosh)
MO_LANES(erf)
MO_LANES(erfc)
MO_LANES(exp10)
MO_LANES(exp2)
MO_LANES(expm1)
MO_LANES(log10)
MO_LANES(log1p)
MO_LANES(log2)
MO_LANES(sinh)
MO_LANES(tan)
MO_LANES(tanh)
