/* The functions of upstream's Vulkan and SPIR-V runners, which no package has: they fill a memref. */

#include <stdint.h>

#define ARRAY_1D(type) type *allocated, type *aligned, int64_t offset, int64_t size0, int64_t stride0
#define ARRAY_2D(type)                                                                                       \
  type *allocated, type *aligned, int64_t offset, int64_t size0, int64_t size1, int64_t stride0,             \
      int64_t stride1
#define ARRAY_3D(type)                                                                                       \
  type *allocated, type *aligned, int64_t offset, int64_t size0, int64_t size1, int64_t size2,               \
      int64_t stride0, int64_t stride1, int64_t stride2

#define FILL_1D(type)                                                                                        \
  for (int64_t i = 0; i < size0; ++i)                                                                        \
  aligned[offset + i * stride0] = value
#define FILL_2D(type)                                                                                        \
  for (int64_t i = 0; i < size0; ++i)                                                                        \
    for (int64_t j = 0; j < size1; ++j)                                                                      \
  aligned[offset + i * stride0 + j * stride1] = value
#define FILL_3D(type)                                                                                        \
  for (int64_t i = 0; i < size0; ++i)                                                                        \
    for (int64_t j = 0; j < size1; ++j)                                                                      \
      for (int64_t k = 0; k < size2; ++k)                                                                    \
  aligned[offset + i * stride0 + j * stride1 + k * stride2] = value

#define FUNCTIONS(name, type)                                                                                \
  void fillResource1D##name(ARRAY_1D(type), type value) { FILL_1D(type); }                                   \
  void fillResource2D##name(ARRAY_2D(type), type value) { FILL_2D(type); }                                   \
  void fillResource3D##name(ARRAY_3D(type), type value) { FILL_3D(type); }

void fillF32Buffer1D(ARRAY_1D(float), float value) { FILL_1D(float); }
void fillF32Buffer2D(ARRAY_2D(float), float value) { FILL_2D(float); }
void fillF32Buffer3D(ARRAY_3D(float), float value) { FILL_3D(float); }
void fillI32Buffer(ARRAY_1D(int32_t), int32_t value) { FILL_1D(int32_t); }
FUNCTIONS(Float, float)
FUNCTIONS(Int, int32_t)
FUNCTIONS(Int8, int8_t)
