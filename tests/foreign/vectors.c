/* Vectors and matrices of CPUs: most releases of LLVM change the types of their intrinsics. */

#if defined(__riscv)
#include <riscv_vector.h>

void deinterleave(const float *from, float *first, float *second, size_t count) {
  for (size_t step; count; count -= step, from += 2 * step, first += step, second += step) {
    step = __riscv_vsetvl_e32m1(count);
    vfloat32m1x2_t pair = __riscv_vlseg2e32_v_f32m1x2(from, step);
    vfloat32m1_t a = __riscv_vget_v_f32m1x2_f32m1(pair, 0), b = __riscv_vget_v_f32m1x2_f32m1(pair, 1);
    __riscv_vse32_v_f32m1(first, __riscv_vfmacc_vf_f32m1(a, 2.0f, b, step), step);
    __riscv_vse32_v_f32m1(second, __riscv_vfredusum_vs_f32m1_f32m1(a, b, step), step);
  }
}

void gather(const float *from, const unsigned *index, float *to, size_t step) {
  vuint32m1_t places = __riscv_vle32_v_u32m1(index, step);
  vbool32_t mask = __riscv_vmsne_vx_u32m1_b32(places, 0, step);
  vfloat32m1x3_t read = __riscv_vloxseg3ei32_v_f32m1x3_m(mask, from, places, step);
  __riscv_vsseg3e32_v_f32m1x3_m(mask, to, read, step);
  size_t found;
  __riscv_vse32_v_f32m1(to, __riscv_vle32ff_v_f32m1(from, &found, step), step);
  __riscv_vsse32_v_f32m1(to, 8, __riscv_vlse32_v_f32m1_m(mask, from, 8, step), found);
}
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <arm_sve.h>

void deinterleave(const float *from, float *first, float *second, long count) {
  for (long place = 0; place < count; place += svcntw()) {
    svbool_t mask = svwhilelt_b32(place, count);
    svfloat32x2_t pair = svld2_f32(mask, from + 2 * place);
    svfloat32_t a = svget2_f32(pair, 0), b = svget2_f32(pair, 1);
    svst1_f32(mask, first + place, svmla_f32_x(mask, a, b, svdup_n_f32(2)));
    svst2_f32(mask, second + place, svcreate2_f32(a, b));
  }
}

float gather(const float *from, const unsigned *index, signed char *bytes, float *to) {
  svbool_t mask = svptrue_b32();
  svuint32_t places = svldff1_u32(mask, index);
  svst1_scatter_u32index_f32(mask, to, places, svld1_gather_u32index_f32(mask, from, places));
  svst1b_s32(mask, bytes, svldnt1_s32(mask, (const int *)index));
  svprfw(mask, from, SV_PLDL1KEEP);
  int16x8_t products = vmull_s8(vld1_s8(bytes), vld1_s8(bytes + 8));
  int32x4_t sum = vpadalq_s16(vdupq_n_s32(0), products);
  return svaddv_f32(mask, svld1rq_f32(mask, from)) + (float)vaddvq_s32(sum);
}
#else
#include <immintrin.h>

void multiply(const signed char *a, const signed char *b, int *to) {
  __tile1024i left = {16, 64}, right = {16, 64}, sum = {16, 64};
  __tile_loadd(&left, a, 64);
  __tile_loadd(&right, b, 64);
  __tile_zero(&sum);
  __tile_dpbssd(&sum, left, right);
  __tile_dpbf16ps(&sum, left, right);
  __tile_stored(to, 64, sum);
}

__m512i dot(__m512i sum, __m512i a, __m512i b, __mmask64 mask) {
  sum = _mm512_dpbusd_epi32(sum, a, b);
  sum = _mm512_mask_compress_epi8(sum, mask, _mm512_popcnt_epi8(a));
  return _mm512_ternarylogic_epi32(sum, _mm512_permutex2var_epi8(a, b, sum), b, 0x96);
}

__m512h halves(__m512h a, __m512h b, __m512 c, int *status) {
  *status = _kortestz_mask16_u8(_mm512_cmp_ps_mask(c, c, _CMP_EQ_OQ), 3);
  return _mm512_fmadd_ph(a, _mm512_max_ph(a, b), _mm512_fcmul_pch(a, b));
}
#endif
