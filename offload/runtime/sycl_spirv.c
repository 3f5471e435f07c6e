/* Reads the parameters of a kernel from its SPIR-V module (SPIR-V specification, "Binary Form"), because OpenCL
 * requires the size of every argument and has no query for it. */
#include <stdlib.h>
#include <string.h>

#include "sycl.h"

enum {
  SPIRV_HEADER_WORDS = 5,
  SPIRV_BOUND = 3, /* the word with the largest ID plus one */
  SPIRV_KERNEL = 6,
  SPIRV_POINTER_BYTES = 8, /* Physical64, which mo_sycl_find_module checks */

  OP_NAME = 5,
  OP_ENTRY_POINT = 15,
  OP_TYPE_BOOL = 20,
  OP_TYPE_INT = 21,
  OP_TYPE_FLOAT = 22,
  OP_TYPE_VECTOR = 23,
  OP_TYPE_ARRAY = 28,
  OP_TYPE_STRUCT = 30,
  OP_TYPE_POINTER = 32,
  OP_CONSTANT = 43,
  OP_FUNCTION = 54,
  OP_FUNCTION_PARAMETER = 55,
  OP_FUNCTION_END = 56,
  OP_DECORATE = 71,

  STORAGE_WORKGROUP = 4,
  DECORATION_PACKED = 10,
  DECORATION_PARAMETER_ATTRIBUTE = 38,
  ATTRIBUTE_BY_VALUE = 2,
};

/* The properties of an ID: the size of a type, or a constant. */
typedef struct spirv_id {
  uint64_t size_bytes; /* 0: not a type, or a type that the host cannot pass */
  uint64_t constant;
  uint32_t alignment, storage, pointee;
  bool is_pointer, is_packed, is_by_value, is_failures;
} spirv_id;

typedef struct spirv_reader {
  spirv_id *ids;
  uint32_t bound, function;
  bool is_inside; /* the function of the kernel */
  mo_sycl_signature *signature;
  const char *kernel, *fault;
} spirv_reader;

static void take_entry_point(spirv_reader *reader, const uint32_t *operands, size_t count) {
  size_t room = count > 2 ? (count - 2) * sizeof *operands : 0;
  size_t length = strlen(reader->kernel) + 1;
  if (room >= length && operands[0] == SPIRV_KERNEL &&
      !memcmp(&operands[2], reader->kernel, length))
    reader->function = operands[1];
}

static void set_type(spirv_id *type, uint64_t size_bytes, uint32_t alignment) {
  type->size_bytes = size_bytes;
  type->alignment = alignment;
}

static uint64_t align_up(uint64_t place, uint64_t alignment) {
  return (place + alignment - 1) / alignment * alignment;
}

static void take_struct(spirv_reader *reader, const uint32_t *operands, size_t count) {
  spirv_id *type = &reader->ids[operands[0]];
  uint64_t end = 0;
  uint32_t largest = 1;
  for (size_t i = 1; i < count; ++i) {
    const spirv_id *member = operands[i] < reader->bound ? &reader->ids[operands[i]] : type;
    uint32_t alignment = type->is_packed ? 1 : member->alignment;
    if (!member->size_bytes)
      return;
    end = align_up(end, alignment) + member->size_bytes;
    largest = alignment > largest ? alignment : largest;
  }
  set_type(type, align_up(end, largest), largest);
}

/* A vector of three elements has the size of one of four (OpenCL C, "Alignment of Types"). */
static void take_vector(spirv_reader *reader, spirv_id *type, uint32_t element, uint32_t count) {
  uint64_t size = reader->ids[element].size_bytes * (count == 3 ? 4 : count);
  set_type(type, size, (uint32_t)size);
}

static void take_parameter(spirv_reader *reader, const spirv_id *type, const spirv_id *id) {
  mo_sycl_parameter parameter = {PASS_VALUE, type->size_bytes};
  mo_sycl_signature *signature = reader->signature;
  if (id->is_failures)
    parameter.passing = PASS_FAILURES;
  else if (id->is_by_value && type->is_pointer)
    parameter.size_bytes = reader->ids[type->pointee].size_bytes;
  else if (type->is_pointer)
    parameter.passing = type->storage == STORAGE_WORKGROUP ? PASS_LOCAL_MEMORY : PASS_POINTER;
  if (!parameter.size_bytes)
    reader->fault = "it has a parameter that the host cannot pass";
  size_t size = (signature->count + 1) * sizeof parameter;
  signature->parameters = realloc(signature->parameters, size);
  if (signature->parameters)
    signature->parameters[signature->count++] = parameter;
  else
    reader->fault = "out of host memory";
}

/* The name in translate/spirv/assertion.py. */
static void take_name(spirv_reader *reader, const uint32_t *operands, size_t count) {
  static const char name[] = "mo.failures";
  if ((count - 1) * sizeof *operands >= sizeof name && !memcmp(&operands[1], name, sizeof name))
    reader->ids[operands[0]].is_failures = true;
}

static void take_decoration(spirv_reader *reader, const uint32_t *operands, size_t count) {
  spirv_id *target = &reader->ids[operands[0]];
  if (operands[1] == DECORATION_PACKED)
    target->is_packed = true;
  if (operands[1] == DECORATION_PARAMETER_ATTRIBUTE && count > 2 &&
      operands[2] == ATTRIBUTE_BY_VALUE)
    target->is_by_value = true;
}

/* The minimal number of operands of each instruction, and the number of IDs among these. */
static bool is_whole(const spirv_reader *reader, unsigned operation, const uint32_t *operands,
                     size_t count) {
  static const struct {
    uint8_t operation, operands, ids;
  } forms[] = {{OP_NAME, 2, 1},         {OP_TYPE_BOOL, 1, 1},    {OP_TYPE_INT, 3, 1},   {OP_TYPE_FLOAT, 2, 1},
               {OP_TYPE_VECTOR, 3, 2},  {OP_TYPE_ARRAY, 3, 3}, {OP_TYPE_STRUCT, 1, 1},
               {OP_TYPE_POINTER, 3, 1}, {OP_CONSTANT, 3, 2},   {OP_FUNCTION, 4, 2},
               {OP_DECORATE, 2, 1},     {OP_FUNCTION_PARAMETER, 2, 2}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; ++i) {
    if (forms[i].operation != operation)
      continue;
    if (count < forms[i].operands)
      return false;
    for (size_t j = 0; j < forms[i].ids; ++j)
      if (operands[j] >= reader->bound)
        return false;
  }
  return true;
}

static void take_type(spirv_reader *reader, unsigned operation, const uint32_t *operands,
                      size_t count) {
  spirv_id *ids = reader->ids, *type = &ids[operands[0]];
  switch (operation) {
  case OP_TYPE_BOOL:
    set_type(type, 1, 1);
    break;
  case OP_TYPE_INT:
  case OP_TYPE_FLOAT:
    set_type(type, operands[1] / 8, operands[1] / 8);
    break;
  case OP_TYPE_VECTOR:
    take_vector(reader, type, operands[1], operands[2]);
    break;
  case OP_TYPE_ARRAY:
    set_type(type, ids[operands[1]].size_bytes * ids[operands[2]].constant,
             ids[operands[1]].alignment);
    break;
  case OP_TYPE_STRUCT:
    take_struct(reader, operands, count);
    break;
  case OP_TYPE_POINTER:
    set_type(type, SPIRV_POINTER_BYTES, SPIRV_POINTER_BYTES);
    type->is_pointer = true;
    type->storage = operands[1];
    type->pointee = operands[2] < reader->bound ? operands[2] : 0;
  }
}

static void take_instruction(spirv_reader *reader, unsigned operation, const uint32_t *operands,
                             size_t count) {
  switch (operation) {
  case OP_ENTRY_POINT:
    take_entry_point(reader, operands, count);
    break;
  case OP_NAME:
    take_name(reader, operands, count);
    break;
  case OP_DECORATE:
    take_decoration(reader, operands, count);
    break;
  case OP_CONSTANT:
    reader->ids[operands[1]].constant = operands[2];
    break;
  case OP_FUNCTION:
    reader->is_inside = operands[1] == reader->function;
    break;
  case OP_FUNCTION_PARAMETER:
    if (reader->is_inside)
      take_parameter(reader, &reader->ids[operands[0]], &reader->ids[operands[1]]);
    break;
  case OP_FUNCTION_END:
    reader->is_inside = false;
    break;
  default:
    if (operation >= OP_TYPE_BOOL && operation <= OP_TYPE_POINTER && count)
      take_type(reader, operation, operands, count);
  }
}

static void read_instructions(spirv_reader *reader, const mo_sycl_module *module) {
  const uint32_t *at = module->words + SPIRV_HEADER_WORDS;
  const uint32_t *end = module->words + module->word_count;
  while (at < end && !reader->fault) {
    size_t count = *at >> 16;
    unsigned operation = *at & 0xFFFF;
    if (!count || count > (size_t)(end - at) ||
        !is_whole(reader, operation, at + 1, count - 1)) {
      reader->fault = "its SPIR-V is damaged";
      return;
    }
    take_instruction(reader, operation, at + 1, count - 1);
    at += count;
  }
}

const char *mo_sycl_read_signature(const mo_sycl_module *module, const char *kernel,
                                   mo_sycl_signature *signature) {
  spirv_reader reader = {.signature = signature, .kernel = kernel};
  *signature = (mo_sycl_signature){0, NULL};
  /* The definition of each ID takes at least one word. */
  if (module->word_count < SPIRV_HEADER_WORDS || module->words[SPIRV_BOUND] > module->word_count)
    return "its SPIR-V is damaged";
  reader.bound = module->words[SPIRV_BOUND];
  reader.ids = calloc(reader.bound + 1, sizeof *reader.ids);
  if (!reader.ids)
    return "out of host memory";
  read_instructions(&reader, module);
  free(reader.ids);
  if (!reader.fault && !reader.function)
    return "its SPIR-V has no entry point of that name";
  return reader.fault;
}
