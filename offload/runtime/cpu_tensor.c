/* Warp-level matrix operations for kernels on the CPU: wmma, mma.sync, ldmatrix, stmatrix. Included by
 * cpu_device.c. Fragments: PTX ISA, "Warp level matrix instructions". PTX does not specify the mapping of the
 * elements of a wmma fragment to registers.
 */

/* The operands of a lane. translate/cpu/tensor.py defines the structure in LLVM IR. */
enum { MO_LOAD, MO_STORE, MO_WMMA, MO_MMA, MO_LOAD_ROWS, MO_STORE_ROWS };
enum { /* elements, by the names of the PTX ISA */
  MO_F16,
  MO_BF16,
  MO_TF32,
  MO_F32,
  MO_F64,
  MO_S8,
  MO_U8,
  MO_S4,
  MO_U4,
  MO_B1,
  MO_S32,
  MO_E4M3,
  MO_E5M2
};
/* MO_COLUMN_A also marks a column-major matrix in memory, and a transposed one. */
enum { MO_COLUMN_A = 1, MO_COLUMN_B = 2, MO_SATURATES = 4, MO_XOR = 8 };

typedef struct mo_fragments {
  uint32_t operation, m, n, k, a, b, c, d, flags;
  uint32_t b_at, c_at, d_at; /* offsets in registers; the registers of a, or of the moved matrix, come first */
  uint32_t stride, unused;
  char *memory;
  uint64_t registers[];
} mo_fragments;
enum { MO_REGISTERS = 64 };

enum { MOST_ELEMENTS = 16 * 256 }; /* of a or b */

typedef struct format {
  uint32_t bits, exponent, mantissa; /* of a number; exponent 0: an integer */
  int is_signed;
} format;

static const format formats[] = {
    [MO_F16] = {16, 5, 10, 1}, [MO_BF16] = {16, 8, 7, 1},  [MO_TF32] = {32, 8, 23, 1},
    [MO_F32] = {32, 8, 23, 1}, [MO_F64] = {64, 11, 52, 1}, [MO_S8] = {8, 0, 0, 1},
    [MO_U8] = {8, 0, 0, 0},    [MO_S4] = {4, 0, 0, 1},     [MO_U4] = {4, 0, 0, 0},
    [MO_B1] = {1, 0, 0, 0},    [MO_S32] = {32, 0, 0, 1},   [MO_E4M3] = {8, 4, 3, 1},
    [MO_E5M2] = {8, 5, 2, 1},
};

/* Numbers ----------------------------------------------------------------------------------- */

static double double_of(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint64_t bits_of_double(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static double power_of_two(int exponent) { return double_of((uint64_t)(exponent + 1023) << 52); }

static double widened(uint64_t bits, uint32_t element) {
  const format *from = &formats[element];
  uint64_t top = (1u << from->exponent) - 1, mantissa = bits & (((uint64_t)1 << from->mantissa) - 1);
  uint64_t exponent = bits >> from->mantissa & top, sign = bits >> (from->bits - 1) << 63;
  int bias = (1 << (from->exponent - 1)) - 1;
  uint64_t fraction = mantissa << (52 - from->mantissa), size;
  if (element == MO_E4M3 ? (bits & 0x7f) == 0x7f : exponent == top)
    size = (uint64_t)2047 << 52 | (element == MO_E4M3 ? (uint64_t)1 << 51 : fraction);
  else if (exponent == 0)
    size = bits_of_double((double)mantissa * power_of_two(1 - bias - (int)from->mantissa));
  else
    size = (exponent + 1023 - (uint64_t)bias) << 52 | fraction;
  return double_of(size | sign);
}

/* Rounds to nearest even. */
static uint64_t narrowed(double value, uint32_t element) {
  const format *to = &formats[element];
  uint64_t bits = bits_of_double(value), sign = bits >> 63 << (to->bits - 1), found;
  uint64_t infinity = (((uint64_t)1 << to->exponent) - 1) << to->mantissa;
  uint32_t dropped = 52 - to->mantissa;
  int bias = (1 << (to->exponent - 1)) - 1;
  bits &= INT64_MAX;
  if (bits > (uint64_t)2047 << 52) return sign | infinity | (uint64_t)1 << (to->mantissa - 1);
  if (bits < bits_of_double(power_of_two(1 - bias))) {
    double shift = power_of_two(53 - bias - (int)to->mantissa);
    return sign | (bits_of_double(double_of(bits) + shift) - bits_of_double(shift));
  }
  bits += (bits >> dropped & 1) + (((uint64_t)1 << (dropped - 1)) - 1);
  found = (bits >> dropped) - ((uint64_t)(1023 - bias) << to->mantissa);
  return sign | (found < infinity ? found : infinity);
}

static double value_of(uint64_t bits, uint32_t element) {
  const format *from = &formats[element];
  if (element == MO_F64) return double_of(bits);
  if (element == MO_TF32) bits &= 0xffffe000; /* the rest of the register is ignored */
  if (from->exponent != 0) return widened(bits, element);
  uint32_t unused = 64 - from->bits;
  return from->is_signed ? (double)((int64_t)(bits << unused) >> unused) : (double)bits;
}

static uint64_t bits_of(double value, uint32_t element, int saturates) {
  if (element == MO_F64) return bits_of_double(value);
  if (element != MO_S32) return narrowed(value, element);
  if (saturates && value > INT32_MAX) return INT32_MAX;
  if (saturates && value < INT32_MIN) return (uint32_t)INT32_MIN;
  return (uint32_t)(int64_t)value;
}

/* Registers --------------------------------------------------------------------------------- */

static uint64_t get(const char *from, uint64_t index, uint32_t bits) {
  uint64_t value = 0;
  if (bits < 8) return (uint8_t)from[index * bits / 8] >> index * bits % 8 & ((1u << bits) - 1);
  memcpy(&value, from + index * bits / 8, bits / 8);
  return value;
}

static void set(char *to, uint64_t index, uint32_t bits, uint64_t value) {
  if (bits >= 8) {
    memcpy(to + index * bits / 8, &value, bits / 8);
    return;
  }
  uint32_t shift = index * bits % 8, mask = ((1u << bits) - 1) << shift;
  char *byte = to + index * bits / 8;
  *byte = (char)(((uint8_t)*byte & ~mask) | ((uint32_t)value << shift & mask));
}

typedef struct place {
  uint32_t lane, index;
} place;

typedef struct shape {
  uint32_t rows, columns;
} shape;

/* Returns the location of element (row, column) of operand `part` (a, b, c or d). `group` is the index of the
 * product; mma.m8n8k4 of f16 computes four. */
static place place_of(const mo_fragments *of, char part, uint32_t row, uint32_t column, uint32_t group) {
  uint32_t element = part == 'a' ? of->a : part == 'b' ? of->b : part == 'c' ? of->c : of->d;
  uint32_t bits = formats[element].bits, by = bits == 64 ? 1 : 32 / bits;
  if (of->operation == MO_WMMA) {
    uint32_t columns = part == 'a' ? of->k : of->n, rows = part == 'b' ? of->k : of->m;
    uint32_t at = row * columns + column, held = rows * columns / MO_WARP;
    return (place){at / held, at % held};
  }
  if (of->m == 8 && of->k == 4 && of->a == MO_F16) {
    uint32_t major = part == 'b' ? column : row, minor = part == 'b' ? row : column;
    int swapped = part == 'a' ? of->flags & MO_COLUMN_A : part == 'b' ? !(of->flags & MO_COLUMN_B) : 0;
    uint32_t first = group * 4;
    if (element == MO_F32) {
      uint32_t at = (row & 2) | (column & 4) | (column & 1);
      return (place){first + row / 4 * 16 + (row & 1) + (column & 2), at};
    }
    if (swapped) return (place){first + major / 4 * 16 + minor, major % 4};
    return (place){first + major / 4 * 16 + major % 4, minor};
  }
  if (part == 'a') {
    uint32_t block = column / (4 * by), within = column % (4 * by);
    uint32_t number = of->m == 8 ? block : block * 2 + row / 8;
    return (place){row % 8 * 4 + within / by, number * by + within % by};
  }
  if (part == 'b') {
    uint32_t block = row / (4 * by), within = row % (4 * by);
    return (place){column * 4 + within / by, block * by + within % by};
  }
  return (place){row % 8 * 4 + column / 2, row / 8 * 2 + column % 2};
}

static void read_matrix(char *const *lanes, char part, uint32_t group, double *matrix) {
  const mo_fragments *of = (const mo_fragments *)lanes[0];
  uint32_t rows = part == 'b' ? of->k : of->m, columns = part == 'a' ? of->k : of->n;
  uint32_t element = part == 'a' ? of->a : part == 'b' ? of->b : of->c;
  uint32_t offset = part == 'a' ? MO_REGISTERS : part == 'b' ? of->b_at : of->c_at;
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t column = 0; column < columns; ++column) {
      place from = place_of(of, part, row, column, group);
      uint64_t bits = get(lanes[from.lane] + offset, from.index, formats[element].bits);
      matrix[row * columns + column] = value_of(bits, element);
    }
}

/* Sums are rounded once, those of f64 after each product. */
static void multiply(const mo_fragments *of, const double *a, const double *b, double *d) {
#pragma STDC FP_CONTRACT OFF
  for (uint32_t row = 0; row < of->m; ++row)
    for (uint32_t k = 0; k < of->k; ++k) {
      double factor = a[row * of->k + k], *sums = d + row * of->n;
      const double *others = b + k * of->n;
      for (uint32_t column = 0; column < of->n; ++column) {
        double other = others[column];
        if (of->flags & MO_XOR)
          sums[column] += factor != other;
        else if (of->a == MO_F64)
          sums[column] = __builtin_fma(factor, other, sums[column]);
        else
          sums[column] += factor * other;
      }
    }
}

static void write_matrix(char *const *lanes, uint32_t group, const double *matrix) {
  const mo_fragments *of = (const mo_fragments *)lanes[0];
  for (uint32_t row = 0; row < of->m; ++row)
    for (uint32_t column = 0; column < of->n; ++column) {
      place to = place_of(of, 'd', row, column, group);
      uint64_t bits = bits_of(matrix[row * of->n + column], of->d, of->flags & MO_SATURATES);
      set(lanes[to.lane] + of->d_at, to.index, formats[of->d].bits, bits);
    }
}

static void multiply_fragments(char *const *lanes) {
  const mo_fragments *of = (const mo_fragments *)lanes[0];
  int is_quartered = of->operation == MO_MMA && of->m == 8 && of->k == 4 && of->a == MO_F16;
  double a[MOST_ELEMENTS], b[MOST_ELEMENTS], d[256];
  for (uint32_t group = 0; group < (is_quartered ? 4 : 1); ++group) {
    read_matrix(lanes, 'a', group, a);
    read_matrix(lanes, 'b', group, b);
    read_matrix(lanes, 'c', group, d);
    multiply(of, a, b, d);
    write_matrix(lanes, group, d);
  }
}

/* wmma.load and wmma.store of an m x n matrix. Each lane has k elements, with copies of its f16 elements. */
static void move_fragment(char *const *lanes) {
  const mo_fragments *first = (const mo_fragments *)lanes[0];
  uint32_t size = first->m * first->n, held = size / MO_WARP, bits = formats[first->d].bits;
  for (uint32_t at = 0; at < size; ++at) {
    char *lane = lanes[at / held];
    const mo_fragments *of = (const mo_fragments *)lane;
    uint64_t row = at / of->n, column = at % of->n, stride = of->stride;
    uint64_t index = of->flags & MO_COLUMN_A ? column * stride + row : row * stride + column;
    if (of->operation == MO_STORE)
      set(of->memory, index, bits, get(lane + MO_REGISTERS, at % held, bits));
    else
      for (uint32_t copy = at % held; copy < of->k; copy += held)
        set(lane + MO_REGISTERS, copy, bits, get(of->memory, index, bits));
  }
}

/* ldmatrix and stmatrix of m matrices of 8 x 8 16-bit elements. Lanes 8 i to 8 i + 7 have the rows of matrix i. */
static void move_rows(char *const *lanes) {
  const mo_fragments *of = (const mo_fragments *)lanes[0];
  for (uint32_t number = 0; number < of->m; ++number)
    for (uint32_t row = 0; row < 8; ++row)
      for (uint32_t column = 0; column < 8; ++column) {
        uint32_t major = of->flags & MO_COLUMN_A ? column : row;
        uint32_t minor = of->flags & MO_COLUMN_A ? row : column;
        char *memory = ((const mo_fragments *)lanes[number * 8 + row])->memory + column * 2;
        char *held = lanes[major * 4 + minor / 2] + MO_REGISTERS + number * 4 + minor % 2 * 2;
        if (of->operation == MO_STORE_ROWS)
          memcpy(memory, held, 2);
        else
          memcpy(held, memory, 2);
      }
}

static void execute_fragments(char *const *lanes) {
  switch (((const mo_fragments *)lanes[0])->operation) {
  case MO_WMMA:
  case MO_MMA: multiply_fragments(lanes); break;
  case MO_LOAD:
  case MO_STORE: move_fragment(lanes); break;
  default: move_rows(lanes); break;
  }
}

void mo_cpu_fragments(mo_thread_context *context, uint32_t site, char *fragments) {
  mo_fibers *fibers = context->block->fibers;
  fibers->fibers[context->linear].meet = execute_fragments;
  mo_cpu_warp(context, site, MO_FRAGMENTS, UINT32_MAX, (uint64_t)(uintptr_t)fragments, 0, 0);
}
