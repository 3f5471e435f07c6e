/* Checks that the processor has the instructions that the image was compiled for. Included by cpu_device.c.
 * Source of the numbers: CPUID and XCR0 in Intel's Software Developer's Manual, volumes 1 and 2A, and in AMD's
 * Architecture Programmer's Manual, volume 3. The table has the features that LLVM uses of itself.
 */
#include <cpuid.h>

/* 1 if clang defines the macro of a feature (as 1), otherwise 0. */
#define MO_IS_ON(macro) MO_PREFIXED(macro)
#define MO_PREFIXED(value) MO_SECOND(MO_BEFORE_##value 1, 0)
#define MO_BEFORE_1 0,
#define MO_SECOND(...) MO_SECOND_OF(__VA_ARGS__, 0)
#define MO_SECOND_OF(first, second, ...) second

enum { EAX, EBX, ECX, EDX };
enum { ANY = 0, YMM = 0x6, ZMM = 0xe6, R31 = 0x80000 }; /* the registers that the operating system must save */

static const struct {
  const char *name;
  uint32_t is_used, leaf, subleaf, word, bit, saved;
} features[] = {
    {"sse3", MO_IS_ON(__SSE3__), 0x1, 0, ECX, 0, ANY},
    {"ssse3", MO_IS_ON(__SSSE3__), 0x1, 0, ECX, 9, ANY},
    {"fma", MO_IS_ON(__FMA__), 0x1, 0, ECX, 12, YMM},
    {"sse4.1", MO_IS_ON(__SSE4_1__), 0x1, 0, ECX, 19, ANY},
    {"sse4.2", MO_IS_ON(__SSE4_2__), 0x1, 0, ECX, 20, ANY},
    {"movbe", MO_IS_ON(__MOVBE__), 0x1, 0, ECX, 22, ANY},
    {"popcnt", MO_IS_ON(__POPCNT__), 0x1, 0, ECX, 23, ANY},
    {"avx", MO_IS_ON(__AVX__), 0x1, 0, ECX, 28, YMM},
    {"f16c", MO_IS_ON(__F16C__), 0x1, 0, ECX, 29, YMM},
    {"bmi", MO_IS_ON(__BMI__), 0x7, 0, EBX, 3, ANY},
    {"avx2", MO_IS_ON(__AVX2__), 0x7, 0, EBX, 5, YMM},
    {"bmi2", MO_IS_ON(__BMI2__), 0x7, 0, EBX, 8, ANY},
    {"avx512f", MO_IS_ON(__AVX512F__), 0x7, 0, EBX, 16, ZMM},
    {"avx512dq", MO_IS_ON(__AVX512DQ__), 0x7, 0, EBX, 17, ZMM},
    {"avx512ifma", MO_IS_ON(__AVX512IFMA__), 0x7, 0, EBX, 21, ZMM},
    {"avx512cd", MO_IS_ON(__AVX512CD__), 0x7, 0, EBX, 28, ZMM},
    {"avx512bw", MO_IS_ON(__AVX512BW__), 0x7, 0, EBX, 30, ZMM},
    {"avx512vl", MO_IS_ON(__AVX512VL__), 0x7, 0, EBX, 31, ZMM},
    {"avx512vbmi", MO_IS_ON(__AVX512VBMI__), 0x7, 0, ECX, 1, ZMM},
    {"avx512vbmi2", MO_IS_ON(__AVX512VBMI2__), 0x7, 0, ECX, 6, ZMM},
    {"gfni", MO_IS_ON(__GFNI__), 0x7, 0, ECX, 8, ANY},
    {"avx512vnni", MO_IS_ON(__AVX512VNNI__), 0x7, 0, ECX, 11, ZMM},
    {"avx512bitalg", MO_IS_ON(__AVX512BITALG__), 0x7, 0, ECX, 12, ZMM},
    {"avx512vpopcntdq", MO_IS_ON(__AVX512VPOPCNTDQ__), 0x7, 0, ECX, 14, ZMM},
    {"avx512fp16", MO_IS_ON(__AVX512FP16__), 0x7, 0, EDX, 23, ZMM},
    {"avxvnni", MO_IS_ON(__AVXVNNI__), 0x7, 1, EAX, 4, YMM},
    {"avx512bf16", MO_IS_ON(__AVX512BF16__), 0x7, 1, EAX, 5, ZMM},
    {"avxifma", MO_IS_ON(__AVXIFMA__), 0x7, 1, EAX, 23, YMM},
    {"avxvnniint8", MO_IS_ON(__AVXVNNIINT8__), 0x7, 1, EDX, 4, YMM},
    {"avxneconvert", MO_IS_ON(__AVXNECONVERT__), 0x7, 1, EDX, 5, YMM},
    {"avxvnniint16", MO_IS_ON(__AVXVNNIINT16__), 0x7, 1, EDX, 10, YMM},
    {"avx10", MO_IS_ON(__AVX10_1__), 0x7, 1, EDX, 19, ZMM},
    {"apxf", MO_IS_ON(__APX_F__), 0x7, 1, EDX, 21, R31},
    {"lzcnt", MO_IS_ON(__LZCNT__), 0x80000001, 0, ECX, 5, ANY},
    {"sse4a", MO_IS_ON(__SSE4A__), 0x80000001, 0, ECX, 6, ANY},
    {"xop", MO_IS_ON(__XOP__), 0x80000001, 0, ECX, 11, YMM},
    {"fma4", MO_IS_ON(__FMA4__), 0x80000001, 0, ECX, 16, YMM},
    {"tbm", MO_IS_ON(__TBM__), 0x80000001, 0, ECX, 21, ANY},
};

/* For code that runs before the check. */
#ifdef __APX_F__
#define MO_NO_APX ",no-egpr,no-ndd,no-ccmp,no-nf,no-zu,no-push2pop2,no-ppx"
#else
#define MO_NO_APX ""
#endif
#define MO_ANY_PROCESSOR \
  __attribute__((noinline, target("no-sse3,no-avx,no-bmi,no-bmi2,no-lzcnt,no-popcnt,no-movbe,no-tbm" MO_NO_APX)))

MO_ANY_PROCESSOR static uint32_t saved_registers(void) {
  uint32_t words[4], low, high;
  enum { OSXSAVE = 1u << 27 };
  if (!__get_cpuid(1, &words[EAX], &words[EBX], &words[ECX], &words[EDX]) || !(words[ECX] & OSXSAVE)) return 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  (void)high;
  return low;
}

/* Returns the name of a feature that the image uses and the processor lacks, or NULL. */
MO_ANY_PROCESSOR static const char *missing_feature(void) {
  static _Atomic uint32_t has_all; /* CPUID takes microseconds in a virtual machine */
  if (has_all) return NULL;
  uint32_t saved = saved_registers();
  for (size_t number = 0; number < sizeof features / sizeof *features; ++number) {
    uint32_t words[4], leaf = features[number].leaf, needed = features[number].saved;
    if (!features[number].is_used) continue;
    int is_known = __get_cpuid_count(leaf, features[number].subleaf, &words[EAX], &words[EBX], &words[ECX], &words[EDX]);
    if (!is_known || !(words[features[number].word] >> features[number].bit & 1) || (saved & needed) != needed)
      return features[number].name;
  }
  has_all = 1;
  return NULL;
}
