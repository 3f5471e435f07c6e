/* Matrices that the threads of a warp hold together: wmma, mma.sync, ldmatrix, stmatrix, movmatrix. */
#include <cstdlib>

#include "number.h"
#include "select.h"

namespace ptx {

namespace {

/* Elements in registers --------------------------------------------------------------------- */

enum class Element : uint8_t { none, f16, bf16, tf32, f32, f64, s8, u8, s32, s4, u4, e4m3, e5m2, b16 };
struct ElementName {
  const char *name;
  Element element;
  unsigned bits;
};
const ElementName kElements[] = {
    {"f16", Element::f16, 16}, {"bf16", Element::bf16, 16}, {"tf32", Element::tf32, 32}, {"f32", Element::f32, 32},
    {"f64", Element::f64, 64}, {"s8", Element::s8, 8}, {"u8", Element::u8, 8}, {"s32", Element::s32, 32},
    {"s4", Element::s4, 4}, {"u4", Element::u4, 4}, {"e4m3", Element::e4m3, 8}, {"e5m2", Element::e5m2, 8},
    {"b16", Element::b16, 16},
};
Element element_of(const std::string &name) {
  for (const ElementName &known : kElements)
    if (name == known.name)
      return known.element;
  return Element::none;
}
unsigned bits_in(Element element) {
  for (const ElementName &known : kElements)
    if (known.element == element)
      return known.bits;
  return 0;
}

double value_of(uint64_t bits, Element element) {
  switch (element) {
  case Element::f16: return value_of(Half{(uint16_t)bits});
  case Element::bf16: return value_of(Bfloat{(uint16_t)bits});
  case Element::tf32: return float_of((uint32_t)bits & 0xffffe000); /* the rest is not looked at */
  case Element::f32: return float_of((uint32_t)bits);
  case Element::s8: return (int8_t)bits;
  case Element::u8: return (uint8_t)bits;
  case Element::s4: return (int8_t)(bits << 4) >> 4;
  case Element::u4: return (double)(bits & 15);
  case Element::s32: return (int32_t)bits;
  case Element::e4m3: case Element::e5m2: return float8_value((uint32_t)bits & 255, element == Element::e4m3);
  default: {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  }
}

uint64_t element_bits_of(double value, Element element) {
  switch (element) {
  case Element::f16: return of_value<Half>(value).bits;
  case Element::bf16: return of_value<Bfloat>(value).bits;
  case Element::f32: case Element::tf32: return ptx::bits_of((float)value);
  case Element::s32: return (uint32_t)(int64_t)value;
  default: {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
  }
  }
}

/* An element in the registers that begin at `first` of the operands. */
uint64_t get(const Thread &t, uint32_t first, uint32_t index, unsigned bits) {
  unsigned by = bits == 64 ? 1 : 32 / bits;
  uint64_t whole = t.get(t.waits_at->list[first + index / by]);
  return bits == 64 ? whole : whole >> index % by * bits & ((1ull << bits) - 1);
}
void set(Thread &t, uint32_t first, uint32_t index, unsigned bits, uint64_t value) {
  unsigned by = bits == 64 ? 1 : 32 / bits;
  uint64_t &whole = t.registers[t.waits_at->list[first + index / by]];
  if (bits == 64) {
    whole = value;
    return;
  }
  uint64_t mask = ((1ull << bits) - 1) << index % by * bits;
  whole = ((whole & ~mask) | (value << index % by * bits & mask)) & 0xffffffff;
}

/* Instructions ------------------------------------------------------------------------------- */

struct Shape {
  unsigned m = 0, n = 0, k = 0;
};
Shape shape_of(const RawInst &raw) {
  Shape shape;
  for (const std::string &modifier : raw.modifiers)
    if (modifier[0] == 'm' && sscanf(modifier.c_str(), "m%un%uk%u", &shape.m, &shape.n, &shape.k) == 3)
      return shape;
  return shape;
}
std::vector<Element> elements_of(const RawInst &raw) {
  std::vector<Element> found;
  for (const std::string &modifier : raw.modifiers)
    if (element_of(modifier) != Element::none)
      found.push_back(element_of(modifier));
  return found;
}
uint32_t registers_in(const Inst &i, size_t operand) {
  const RawOperand &raw = i.raw->operands[operand];
  return raw.kind == RawOperand::list ? (uint32_t)raw.parts.size() : 1;
}

/* wmma: PTX leaves open which lane has which element. Here it goes by the seed; where a fragment has more
 * places than the matrix has elements, each is there twice. */
struct Place {
  uint32_t lane, index;
};
Place wmma_place(uint32_t element, uint32_t elements, uint32_t by_lane) {
  uint32_t at = (uint32_t)((element * (2 * settings().seed + 1) + settings().seed * 7) % elements);
  return {at / by_lane % 32, at % by_lane};
}

using Matrix = std::vector<double>;

Matrix wmma_read(Thread *const *lanes, uint32_t first, uint32_t registers, Element element, uint32_t size) {
  unsigned bits = bits_in(element), by_lane = registers * (bits == 64 ? 1 : 32 / bits);
  Matrix matrix(size);
  if (by_lane * 32 > size) /* both copies */
    by_lane = size / 32;
  for (uint32_t at = 0; at < size; ++at) {
    Place place = wmma_place(at, size, by_lane);
    matrix[at] = value_of(get(*lanes[place.lane], first, place.index, bits), element);
  }
  return matrix;
}
void wmma_write(Thread *const *lanes, uint32_t first, uint32_t registers, Element element, uint32_t at, uint32_t size,
                uint64_t value) {
  unsigned bits = bits_in(element), held = registers * (bits == 64 ? 1 : 32 / bits);
  uint32_t by_lane = held * 32 > size ? size / 32 : held;
  Place place = wmma_place(at, size, by_lane);
  for (uint32_t copy = place.index; copy < held; copy += by_lane)
    set(*lanes[place.lane], first, copy, bits, value);
}

/* Multiplies matrices; sums are exact up to 53 bits, and rounded once. */
Matrix product(const Matrix &a, const Matrix &b, Matrix c, Shape shape) {
  for (uint32_t row = 0; row < shape.m; ++row)
    for (uint32_t column = 0; column < shape.n; ++column) {
      double sum = c[row * shape.n + column];
      for (uint32_t k = 0; k < shape.k; ++k)
        sum += a[row * shape.k + k] * b[k * shape.n + column];
      c[row * shape.n + column] = sum;
    }
  return c;
}

bool is_bits(Element element) { return element == Element::s32; }
double wrapped(double value, Element element, bool saturates) {
  if (!is_bits(element))
    return value;
  if (saturates)
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
  return (int32_t)(uint32_t)(int64_t)value;
}

struct Part { /* of wmma: rows and columns of a, b, or c and d */
  uint32_t rows, columns;
};
Part part_of(const RawInst &raw, Shape shape) {
  return raw.has("a") ? Part{shape.m, shape.k} : raw.has("b") ? Part{shape.k, shape.n} : Part{shape.m, shape.n};
}

void wmma_load(Thread *const *lanes, uint32_t) {
  const Inst &i = *lanes[0]->waits_at;
  Part part = part_of(*i.raw, shape_of(*i.raw));
  Element element = elements_of(*i.raw).back();
  uint32_t registers = registers_in(i, 0), bytes = bits_in(element) / 8, size = part.rows * part.columns;
  bool is_column = i.raw->has("col");
  for (uint32_t at = 0; at < size; ++at) {
    uint32_t row = at / part.columns, column = at % part.columns;
    Place place = wmma_place(at, size, std::min<uint32_t>(size / 32, 64));
    Thread &t = *lanes[place.lane];
    uint64_t base = t.get(t.waits_at->list[registers]) + t.get(t.waits_at->list[registers + 1]);
    uint64_t stride = i.list_size > registers + 2 ? (uint32_t)t.get(t.waits_at->list[registers + 2])
                                                  : (is_column ? part.rows : part.columns);
    uint64_t index = is_column ? column * stride + row : row * stride + column, value = 0;
    memcpy(&value, resolve(t, *t.waits_at, i.space, base + index * bytes, bytes, kRead), bytes);
    wmma_write(lanes, 0, registers, element, at, size, value);
  }
}

/* list: address, offset, registers, stride */
void wmma_store(Thread *const *lanes, uint32_t) {
  const Inst &i = *lanes[0]->waits_at;
  Part part = part_of(*i.raw, shape_of(*i.raw));
  Element element = elements_of(*i.raw).back();
  uint32_t registers = registers_in(i, 1), bytes = bits_in(element) / 8, size = part.rows * part.columns;
  uint32_t by_lane = size / 32;
  bool is_column = i.raw->has("col");
  for (uint32_t at = 0; at < size; ++at) {
    uint32_t row = at / part.columns, column = at % part.columns;
    Place place = wmma_place(at, size, by_lane);
    Thread &t = *lanes[place.lane];
    uint64_t base = t.get(t.waits_at->list[0]) + t.get(t.waits_at->list[1]);
    uint64_t stride = i.list_size > registers + 2 ? (uint32_t)t.get(t.waits_at->list[registers + 2])
                                                  : (is_column ? part.rows : part.columns);
    uint64_t index = is_column ? column * stride + row : row * stride + column;
    uint64_t value = get(t, 2, place.index, bits_in(element));
    memcpy(resolve(t, *t.waits_at, i.space, base + index * bytes, bytes, kWrite), &value, bytes);
  }
}

/* list: d, a, b, c. The types are written as d.a.b.c, as d.c for f16, or as one for f64. */
struct Types {
  Element d, a, b, c;
};
Types types_of(const RawInst &raw) {
  std::vector<Element> found = elements_of(raw);
  if (found.size() == 4)
    return {found[0], found[1], found[2], found[3]};
  if (found.size() == 2)
    return {found[0], Element::f16, Element::f16, found[1]};
  return {found[0], found[0], found[0], found[0]};
}

void wmma_multiply(Thread *const *lanes, uint32_t) {
  const Inst &i = *lanes[0]->waits_at;
  Shape shape = shape_of(*i.raw);
  Types types = types_of(*i.raw);
  uint32_t count[4], first[4] = {};
  for (size_t operand = 0; operand < 4; ++operand) {
    count[operand] = registers_in(i, operand);
    if (operand)
      first[operand] = first[operand - 1] + count[operand - 1];
  }
  Matrix a = wmma_read(lanes, first[1], count[1], types.a, shape.m * shape.k);
  Matrix b = wmma_read(lanes, first[2], count[2], types.b, shape.k * shape.n);
  Matrix c = wmma_read(lanes, first[3], count[3], types.c, shape.m * shape.n);
  Matrix d = product(a, b, c, shape);
  for (uint32_t at = 0; at < d.size(); ++at)
    wmma_write(lanes, 0, count[0], types.d, at, (uint32_t)d.size(),
               element_bits_of(wrapped(d[at], types.d, i.raw->has("satfinite")), types.d));
}

/* mma.sync: "Matrix fragments for mma" of the PTX ISA. Element `index` of a lane. */
Place mma_a(uint32_t row, uint32_t k, unsigned bits, unsigned rows) {
  uint32_t by = bits == 64 ? 1 : 32 / bits, block = k / (4 * by), within = k % (4 * by);
  uint32_t reg = rows == 8 ? block : block * 2 + row / 8;
  return {row % 8 * 4 + within / by, reg * by + within % by};
}
Place mma_b(uint32_t k, uint32_t column, unsigned bits) {
  uint32_t by = bits == 64 ? 1 : 32 / bits, block = k / (4 * by), within = k % (4 * by);
  return {column * 4 + within / by, block * by + within % by};
}
Place mma_c(uint32_t row, uint32_t column) { return {row % 8 * 4 + column / 2, row / 8 * 2 + column % 2}; }

void mma_multiply(Thread *const *lanes, uint32_t) {
  const Inst &i = *lanes[0]->waits_at;
  Shape shape = shape_of(*i.raw);
  Types types = types_of(*i.raw);
  uint32_t b_at = registers_in(i, 0) + registers_in(i, 1), c_at = b_at + registers_in(i, 2);
  Matrix a(shape.m * shape.k), b(shape.k * shape.n), c(shape.m * shape.n);
  auto fetch = [&](uint32_t first, Place place, Element element) {
    return value_of(get(*lanes[place.lane], first, place.index, bits_in(element)), element);
  };
  for (uint32_t row = 0; row < shape.m; ++row)
    for (uint32_t k = 0; k < shape.k; ++k)
      a[row * shape.k + k] = fetch(registers_in(i, 0), mma_a(row, k, bits_in(types.a), shape.m), types.a);
  for (uint32_t k = 0; k < shape.k; ++k)
    for (uint32_t column = 0; column < shape.n; ++column)
      b[k * shape.n + column] = fetch(b_at, mma_b(k, column, bits_in(types.b)), types.b);
  for (uint32_t row = 0; row < shape.m; ++row)
    for (uint32_t column = 0; column < shape.n; ++column)
      c[row * shape.n + column] = fetch(c_at, mma_c(row, column), types.c);
  Matrix d = product(a, b, c, shape);
  for (uint32_t row = 0; row < shape.m; ++row)
    for (uint32_t column = 0; column < shape.n; ++column) {
      Place place = mma_c(row, column);
      double value = wrapped(d[row * shape.n + column], types.d, i.raw->has("satfinite"));
      set(*lanes[place.lane], 0, place.index, bits_in(types.d), element_bits_of(value, types.d));
    }
}

/* ldmatrix: 8 x 8 elements of 16 bits each; lanes 8 n to 8 n + 7 bring the addresses of the rows of matrix n. */
uint64_t row_address(const Thread &t, uint32_t first) {
  return t.get(t.waits_at->list[first]) + t.get(t.waits_at->list[first + 1]);
}
void matrix_load(Thread *const *lanes, uint32_t) {
  const Inst &i = *lanes[0]->waits_at;
  uint32_t count = registers_in(i, 0);
  bool is_transposed = i.raw->has("trans");
  for (uint32_t matrix = 0; matrix < count; ++matrix) {
    uint16_t rows[8][8];
    for (uint32_t row = 0; row < 8; ++row) {
      Thread &t = *lanes[matrix * 8 + row];
      memcpy(rows[row], resolve(t, *t.waits_at, Space::shared, row_address(t, count) & ~kWindowMask, 16, kRead), 16);
    }
    for (uint32_t lane = 0; lane < 32; ++lane)
      for (uint32_t at = 0; at < 2; ++at) {
        uint32_t major = lane / 4, minor = lane % 4 * 2 + at;
        set(*lanes[lane], matrix, at, 16, is_transposed ? rows[minor][major] : rows[major][minor]);
      }
  }
}
void matrix_store(Thread *const *lanes, uint32_t) {
  const Inst &i = *lanes[0]->waits_at;
  uint32_t count = registers_in(i, 1);
  bool is_transposed = i.raw->has("trans");
  for (uint32_t matrix = 0; matrix < count; ++matrix) {
    uint16_t rows[8][8];
    for (uint32_t lane = 0; lane < 32; ++lane)
      for (uint32_t at = 0; at < 2; ++at) {
        uint32_t major = lane / 4, minor = lane % 4 * 2 + at;
        (is_transposed ? rows[minor][major] : rows[major][minor]) = (uint16_t)get(*lanes[lane], 2 + matrix, at, 16);
      }
    for (uint32_t row = 0; row < 8; ++row) {
      Thread &t = *lanes[matrix * 8 + row];
      memcpy(resolve(t, *t.waits_at, Space::shared, row_address(t, 0) & ~kWindowMask, 16, kWrite), rows[row], 16);
    }
  }
}
void matrix_move(Thread *const *lanes, uint32_t) {
  uint16_t rows[8][8];
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t at = 0; at < 2; ++at)
      rows[lane / 4][lane % 4 * 2 + at] = (uint16_t)get(*lanes[lane], 1, at, 16);
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t at = 0; at < 2; ++at)
      set(*lanes[lane], 0, at, 16, rows[lane % 4 * 2 + at][lane / 4]);
}

/* wgmma: each warp of four has 16 rows of d; a and b are in workgroup memory ("Asynchronous warpgroup level matrix
 * instructions"), swizzled by 128 bytes. list: d, a, b, whether d is added, signs of a and b, whether they are transposed. */
struct Descriptor {
  uint64_t address, leading, stride;
  bool is_swizzled;
};
Descriptor descriptor_of(uint64_t bits) {
  return {(bits & 0x3fff) << 4, (bits >> 16 & 0x3fff) << 4, (bits >> 32 & 0x3fff) << 4, bits >> 62 == 1};
}
uint64_t place_in(const Descriptor &from, uint32_t major, uint32_t k, bool is_transposed) {
  uint64_t at = is_transposed
                    ? from.address + major / 64 * from.leading + k / 8 * from.stride + k % 8 * 128 + major % 64 * 2
                    : from.address + major / 8 * from.stride + major % 8 * 128 + k * 2;
  return at ^ (at >> 7 & 7) << 4;
}
void warpgroup_multiply(Thread *const *lanes, uint32_t) {
  Thread &t = *lanes[0];
  const Inst &i = *t.waits_at;
  Shape shape = shape_of(*i.raw);
  Element element = elements_of(*i.raw)[1];
  uint32_t count = registers_in(i, 0), group_row = t.warp % 4 * 16;
  auto operand = [&](uint32_t at) { return t.get(i.list[count + at]); };
  Descriptor from_a = descriptor_of(operand(0)), from_b = descriptor_of(operand(1));
  if (!from_a.is_swizzled || !from_b.is_swizzled || count != shape.n / 2)
    fault(t, i, "matrices of another form than swizzled by 128 bytes with sums of 32 bits");
  bool adds = operand(2) & 1;
  double sign = (double)(int32_t)operand(3) * (double)(int32_t)operand(4);
  auto fetch = [&](const Descriptor &from, uint32_t major, uint32_t k, bool is_transposed) {
    uint16_t bits;
    memcpy(&bits, resolve(t, i, Space::shared, place_in(from, major, k, is_transposed), 2, kRead), 2);
    return value_of(bits, element);
  };
  for (uint32_t row = 0; row < 16; ++row)
    for (uint32_t column = 0; column < shape.n; ++column) {
      Place place = {row % 8 * 4 + column % 8 / 2, column / 8 * 4 + row / 8 * 2 + column % 2};
      double sum = adds ? value_of(get(*lanes[place.lane], 0, place.index, 32), Element::f32) : 0;
      for (uint32_t k = 0; k < shape.k; ++k)
        sum += sign * fetch(from_a, group_row + row, k, operand(5) & 1) * fetch(from_b, column, k, operand(6) & 1);
      set(*lanes[place.lane], 0, place.index, 32, element_bits_of(sum, Element::f32));
    }
}
Step ordered(Thread &, const Inst &) { return kNext; }

Step whole_warp(Thread &t, const Inst &i) {
  if (t.block->size % 32 && t.warp == t.block->size / 32)
    fault(t, i, "a warp of %u threads, where all 32 are needed", t.block->size % 32);
  return wait_for_warp(t, i, 0xffffffff);
}

bool is_supported(const RawInst &raw, const Inst &) {
  Shape shape = shape_of(raw);
  if (raw.opcode == "mma")
    return !(shape.m == 8 && shape.k == 4 && !raw.has("f64")) && !raw.has("sp") && raw.has("row") && raw.has("col") &&
           !raw.has("b1");
  return true;
}

} // namespace

Handler matrix_handler(const RawInst &raw, Inst &i) {
  const std::string &name = raw.opcode;
  i.space = raw.has("shared") ? Space::shared : raw.has("global") ? Space::global : Space::generic;
  if (name == "wmma")
    i.meet = raw.has("load") ? wmma_load : raw.has("store") ? wmma_store : wmma_multiply;
  else if (name == "mma" && is_supported(raw, i))
    i.meet = mma_multiply;
  else if (name == "ldmatrix" || name == "stmatrix")
    i.meet = raw.has("b16") ? (name[0] == 'l' ? matrix_load : matrix_store) : nullptr;
  else if (name == "wgmma" && !raw.has("mma_async"))
    return ordered; /* fence, commit_group, wait_group: products are made at once */
  else if (name == "wgmma" && shape_of(raw).k == 16 && elements_of(raw)[0] == Element::f32)
    i.meet = warpgroup_multiply, i.flags |= kStrong;
  else if (name == "movmatrix")
    i.meet = matrix_move;
  else
    return i.space = Space::generic, nullptr;
  /* All threads of a warp execute the same instruction. */
  i.key = (uint64_t)&raw;
  return i.meet ? whole_warp : nullptr;
}

} // namespace ptx
