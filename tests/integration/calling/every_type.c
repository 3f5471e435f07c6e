/* Calls functions with arguments and results of every type, by the header that is made of them. */
#include <stdlib.h>

#include "every_type.h"

void check(int line, int holds);
#define CHECK(condition) check(__LINE__, condition)

static void numbers(void) {
#ifdef MLIR_HAVE_F16
  CHECK(_mlir_ciface_half((mlir_f16)1.5f) == 3.0f);
#endif
#ifdef MLIR_HAVE_BF16
  CHECK((float)_mlir_ciface_bhalf((mlir_bf16)1.5f) == 1.5f);
#endif
  CHECK(_mlir_ciface_flip(true) == false);
  CHECK(_mlir_ciface_flip(false) == true);
  CHECK(_mlir_ciface_trunc(0x12345678180) == -128);
  CHECK(_mlir_ciface_parity(2) == false);
  CHECK(_mlir_ciface_parity(3) == true);
  CHECK(_mlir_ciface_sum(1, 2, 3, 0.5f, 0.25) == 6.75);
  mlir_complex_f32 swapped;
  _mlir_ciface_swap(&swapped, 1, 2, 3);
  CHECK(swapped.re == 2 && swapped.im == 1);
}

static void memrefs(void) {
  struct fill_results filled;
  _mlir_ciface_fill(&filled, 4, 2.5f);
  CHECK(filled.result0 && filled.result3 == -3);
  CHECK(filled.result1.sizes[0] == 4 && filled.result1.aligned[3] == 2.5f);
  CHECK(filled.result2.re == 2 && filled.result2.im == 2);
  free(filled.result1.allocated);

  double data[] = {0, 0, 0, 1, 2, 3, 4};
  mlir_memref_2d_f64 shifted = mlir_memref_2d_f64_of(data, 2, 2), same;
  shifted.offset = 3;
  CHECK(_mlir_ciface_first(&shifted) == 3);
  _mlir_ciface_same(&same, &shifted);
  CHECK(same.aligned == data && same.offset == 3 && same.strides[0] == 2);

  mlir_unranked_memref any = {2, &shifted};
  CHECK(_mlir_ciface_rank(&any) == 2);
  _mlir_ciface_unr(&any);
  mlir_memref_1d_f32 *made = (mlir_memref_1d_f32 *)any.descriptor;
  CHECK(any.rank == 1 && made->aligned[0] == 5);
  free(made->allocated);
  free(made);

  int64_t number = 21;
  mlir_memref_0d_i64 none = mlir_memref_0d_i64_of(&number);
  CHECK(_mlir_ciface_single(&none) == 21);
  _mlir_ciface_odd_name_x();
}

static void small_numbers_and_vectors(void) {
  mlir_f8E4M3FN two = {0x40};
  CHECK(_mlir_ciface_quarter(two).bits == 0x40);
  mlir_f8E5M2 bits[2] = {{0x41}, {0}};
  mlir_memref_1d_f8E5M2 quarters = mlir_memref_1d_f8E5M2_of(bits, 2), same;
  _mlir_ciface_quarters(&same, &quarters);
  CHECK(same.aligned == bits && bits[1].bits == 0x41);

  mlir_vector_4xf32 data[2] = {{{1, 2, 3, 4}}, {{0}}};
  mlir_memref_1d_vector_4xf32 vectors = mlir_memref_1d_vector_4xf32_of(data, 2);
  mlir_memref_1d_vector_3xi16 made;
  _mlir_ciface_vectors(&made, &vectors);
  CHECK(data[1].at[0] == 2 && data[1].at[3] == 8);
  CHECK(sizeof(mlir_vector_3xi16) == 8 && made.sizes[0] == 2);
  CHECK(made.aligned[1].at[0] == 1 && made.aligned[1].at[2] == 3);
  free(made.allocated);
}

int main(void) {
  numbers();
  small_numbers_and_vectors();
  memrefs();
  return 0;
}
