/* From LLVM IR to what the interpreter executes: values are numbered, constants are computed. */
#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

#include "emulator.h"

static std::vector<std::unique_ptr<u64[]>> constants;
constexpr u64 UNDEFINED = 0xdeadbeefdeadbeef;

u64 *constant(uint32_t index) { return constants[index].get(); }

static uint32_t add_constant(u64 value) {
  std::unique_ptr<u64[]> lanes(new u64[LANES]);
  std::fill_n(lanes.get(), LANES, value);
  constants.push_back(std::move(lanes));
  return (uint32_t)constants.size() - 1;
}

/* `offset` is in bits, because a vector of integers that are not whole bytes has no gaps. */
static void add_parts(Module &m, LLVMTypeRef type, u64 offset, std::vector<Part> &parts) {
  auto add = [&](Kind kind, unsigned bits, unsigned space = 0) {
    parts.push_back({kind, (uint16_t)bits, (uint8_t)space, (uint32_t)(offset / 8), (uint8_t)(offset % 8)});
  };
  switch (LLVMGetTypeKind(type)) {
  case TYPE_VOID:
  case TYPE_METADATA: return;
  case TYPE_HALF: return add(Kind::HALF, 16);
  case TYPE_BFLOAT: return add(Kind::BFLOAT, 16);
  case TYPE_FLOAT: return add(Kind::FLOAT, 32);
  case TYPE_DOUBLE: return add(Kind::DOUBLE, 64);
  case TYPE_INTEGER:
    if (LLVMGetIntTypeWidth(type) > 64) fail("an integer of %u bits", LLVMGetIntTypeWidth(type));
    return add(Kind::INT, LLVMGetIntTypeWidth(type));
  case TYPE_POINTER: {
    unsigned space = LLVMGetPointerAddressSpace(type);
    return add(Kind::POINTER, space == 3 || space == 5 ? 32 : 64, space);
  }
  case TYPE_STRUCT:
    for (unsigned i = 0; i < LLVMCountStructElementTypes(type); ++i)
      add_parts(m, LLVMStructGetTypeAtIndex(type, i), offset + 8 * LLVMOffsetOfElement(m.layout, type, i), parts);
    return;
  case TYPE_ARRAY:
  case TYPE_VECTOR: {
    LLVMTypeRef element = LLVMGetElementType(type);
    bool is_array = LLVMGetTypeKind(type) == TYPE_ARRAY;
    u64 count = is_array ? LLVMGetArrayLength2(type) : LLVMGetVectorSize(type);
    u64 step = is_array ? 8 * LLVMABISizeOfType(m.layout, element) : LLVMSizeOfTypeInBits(m.layout, element);
    for (u64 i = 0; i < count; ++i) add_parts(m, element, offset + i * step, parts);
    return;
  }
  default: fail("a type of kind %d", LLVMGetTypeKind(type));
  }
}

const Shape *shape_of(Module &m, LLVMTypeRef type) {
  std::unique_ptr<Shape> &shape = m.shapes[type];
  if (!shape) {
    shape.reset(new Shape);
    int kind = LLVMGetTypeKind(type);
    bool is_sized = kind != TYPE_VOID && kind != TYPE_METADATA;
    shape->size = is_sized ? LLVMABISizeOfType(m.layout, type) : 0;
    shape->stored = is_sized ? LLVMStoreSizeOfType(m.layout, type) : 0;
    if (shape->size <= 4096) add_parts(m, type, 0, shape->parts);
  }
  return shape.get();
}

/* --- constants ------------------------------------------------------------------------------------ */

static std::vector<u64> evaluate(Module &m, LLVMValueRef value);

static u64 evaluate_expression(Module &m, LLVMValueRef value) {
  u64 first = evaluate(m, LLVMGetOperand(value, 0))[0];
  int from = shape_of(m, LLVMTypeOf(LLVMGetOperand(value, 0)))->parts[0].space;
  const Part &part = shape_of(m, LLVMTypeOf(value))->parts[0];
  auto second = [&] { return evaluate(m, LLVMGetOperand(value, 1))[0]; };
  switch (LLVMGetConstOpcode(value)) {
  case OP_ADD: return masked(first + second(), part.bits);
  case OP_SUB: return masked(first - second(), part.bits);
  case OP_XOR: return first ^ second();
  case OP_TRUNC: return masked(first, part.bits);
  case OP_PTRTOINT:
  case OP_INTTOPTR:
  case OP_BITCAST: return masked(first, part.bits);
  case OP_ADDRSPACECAST:
    if (from == 3 && part.space == 0) return SHARED_APERTURE | first;
    if (from == 5 && part.space == 0) return PRIVATE_APERTURE | first;
    return masked(first, part.bits);
  case OP_GEP: {
    LLVMTypeRef type = LLVMGetGEPSourceElementType(value);
    for (int i = 1; i < LLVMGetNumOperands(value); ++i) {
      LLVMValueRef operand = LLVMGetOperand(value, i);
      int64_t index = as_signed(evaluate(m, operand)[0], LLVMGetIntTypeWidth(LLVMTypeOf(operand)));
      if (i == 1) {
        first += index * LLVMABISizeOfType(m.layout, type);
      } else if (LLVMGetTypeKind(type) == TYPE_STRUCT) {
        first += LLVMOffsetOfElement(m.layout, type, index);
        type = LLVMStructGetTypeAtIndex(type, index);
      } else {
        type = LLVMGetElementType(type);
        first += index * LLVMABISizeOfType(m.layout, type);
      }
    }
    return masked(first, part.bits);
  }
  default: fail("a constant expression: %s", LLVMPrintValueToString(value));
  }
}

static std::vector<u64> evaluate(Module &m, LLVMValueRef value) {
  const Shape *shape = shape_of(m, LLVMTypeOf(value));
  switch (LLVMGetValueKind(value)) {
  case VALUE_UNDEF:
  case VALUE_POISON: {
    std::vector<u64> bits;
    for (const Part &part : shape->parts) bits.push_back(masked(UNDEFINED, part.bits));
    return bits;
  }
  case VALUE_INT: return {LLVMConstIntGetZExtValue(value)};
  case VALUE_FP: {
    int loses = 0;
    return {from_double(LLVMConstRealGetDouble(value, &loses), shape->parts[0])};
  }
  case VALUE_ALIAS: return evaluate(m, LLVMAliasGetAliasee(value));
  case VALUE_GLOBAL: {
    auto found = m.addresses.find(value);
    if (found == m.addresses.end()) fail("the address of %s", LLVMPrintValueToString(value));
    return {found->second};
  }
  case VALUE_FUNCTION: return {UNDEFINED};
  case VALUE_METADATA: return {};
  case VALUE_EXPRESSION: return {evaluate_expression(m, value)};
  default: break;
  }
  if (LLVMIsNull(value)) return std::vector<u64>(shape->parts.size(), 0);
  std::vector<u64> all;
  for (unsigned i = 0; all.size() < shape->parts.size(); ++i) {
    LLVMValueRef element = LLVMGetAggregateElement(value, i);
    if (!element) fail("a constant: %s", LLVMPrintValueToString(value));
    std::vector<u64> parts = evaluate(m, element);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

/* --- instructions --------------------------------------------------------------------------------- */

struct Decoder {
  Module &m;
  Function &f;
  std::map<LLVMValueRef, Operand> known;
  std::map<LLVMBasicBlockRef, int> order;

  Operand operand(LLVMValueRef value) {
    auto found = known.find(value);
    if (found != known.end()) return found->second;
    int kind = LLVMGetValueKind(value);
    if (kind == VALUE_INSTRUCTION || kind == VALUE_ARGUMENT) fail("a value before its definition");
    Operand made = {true, 0};
    if (kind != VALUE_METADATA && kind != VALUE_ASM) {
      std::vector<u64> parts = evaluate(m, value);
      made.index = (uint32_t)constants.size();
      for (u64 part : parts) add_constant(part);
    }
    return known[value] = made;
  }

  void define(LLVMValueRef value) {
    known[value] = {false, f.registers};
    f.registers += shape_of(m, LLVMTypeOf(value))->parts.size();
  }

  Edge edge(LLVMValueRef terminator, LLVMBasicBlockRef target) {
    Edge made = {order.at(target), {}};
    LLVMBasicBlockRef from = LLVMGetInstructionParent(terminator);
    for (LLVMValueRef phi = LLVMGetFirstInstruction(target);
         phi && LLVMGetInstructionOpcode(phi) == OP_PHI; phi = LLVMGetNextInstruction(phi))
      for (unsigned i = 0; i < LLVMCountIncoming(phi); ++i)
        if (LLVMGetIncomingBlock(phi, i) == from) {
          uint32_t parts = shape_of(m, LLVMTypeOf(phi))->parts.size();
          made.copies.push_back({operand(LLVMGetIncomingValue(phi, i)), known.at(phi).index, parts});
          break;
        }
    return made;
  }

  void address(Instruction &made, LLVMValueRef value) {
    LLVMTypeRef type = LLVMGetGEPSourceElementType(value);
    int64_t offset = 0;
    for (int i = 1; i < LLVMGetNumOperands(value); ++i) {
      LLVMValueRef index = LLVMGetOperand(value, i);
      if (i > 1 && LLVMGetTypeKind(type) == TYPE_STRUCT) {
        unsigned member = LLVMConstIntGetZExtValue(index);
        offset += LLVMOffsetOfElement(m.layout, type, member);
        type = LLVMStructGetTypeAtIndex(type, member);
        continue;
      }
      if (i > 1) type = LLVMGetElementType(type);
      int64_t by = LLVMABISizeOfType(m.layout, type);
      int bits = LLVMGetIntTypeWidth(LLVMTypeOf(index));
      if (LLVMGetValueKind(index) == VALUE_INT)
        offset += by * as_signed(LLVMConstIntGetZExtValue(index), bits);
      else
        made.scaled.push_back({operand(index), by, (uint16_t)bits});
    }
    made.numbers.push_back(offset);
  }

  /* Returns the first part of an element, and its type. */
  int64_t member(LLVMTypeRef &type, unsigned index) {
    int64_t before = 0;
    if (LLVMGetTypeKind(type) == TYPE_STRUCT) {
      for (unsigned i = 0; i < index; ++i)
        before += shape_of(m, LLVMStructGetTypeAtIndex(type, i))->parts.size();
      type = LLVMStructGetTypeAtIndex(type, index);
    } else {
      type = LLVMGetElementType(type);
      before = index * shape_of(m, type)->parts.size();
    }
    return before;
  }

  void call(Instruction &made, LLVMValueRef value) {
    LLVMValueRef called = LLVMGetCalledValue(value);
    if (LLVMGetValueKind(called) == VALUE_ASM) {
      made.builtin = find_builtin("asm");
      return;
    }
    size_t length = 0;
    const char *text = LLVMGetValueName2(called, &length);
    std::string name(text, length);
    made.builtin = find_builtin(name);
    auto found = m.by_value.find(called);
    if (!made.builtin && found != m.by_value.end() && !LLVMIsDeclaration(called))
      made.callee = found->second;
    if (!made.builtin && !made.callee) fail("call of %s", name.c_str());
  }

  Instruction decode(LLVMValueRef value) {
    Instruction made = {};
    made.opcode = LLVMGetInstructionOpcode(value);
    made.source = value;
    made.shape = shape_of(m, LLVMTypeOf(value));
    if (known.count(value)) made.result = known[value].index;
    int count = made.opcode == OP_CALL ? LLVMGetNumArgOperands(value) : LLVMGetNumOperands(value);
    if (made.opcode == OP_BR) count = LLVMGetNumSuccessors(value) > 1;
    if (made.opcode == OP_SWITCH) count = 1;
    for (int i = 0; i < count; ++i) made.operands.push_back(operand(LLVMGetOperand(value, i)));
    if (count) made.operand_shape = shape_of(m, LLVMTypeOf(LLVMGetOperand(value, 0)));
    if (made.opcode == OP_LOAD || made.opcode == OP_STORE)
      made.is_strong = LLVMGetVolatile(value) || LLVMGetOrdering(value);
    switch (made.opcode) {
    case OP_BR:
      for (unsigned i = 0; i < LLVMGetNumSuccessors(value); ++i)
        made.edges.push_back(edge(value, LLVMGetSuccessor(value, i)));
      break;
    case OP_SWITCH:
      for (unsigned i = 0; i < LLVMGetNumSuccessors(value); ++i) {
        made.edges.push_back(edge(value, LLVMGetSuccessor(value, i)));
        if (i) made.numbers.push_back(LLVMConstIntGetZExtValue(LLVMGetOperand(value, 2 * i)));
      }
      break;
    case OP_ICMP: made.detail = LLVMGetICmpPredicate(value); break;
    case OP_FCMP: made.detail = LLVMGetFCmpPredicate(value); break;
    case OP_RMW: made.detail = LLVMGetAtomicRMWBinOp(value); break;
    case OP_LOAD: made.detail = LLVMGetAlignment(value); break;
    case OP_STORE:
      made.detail = LLVMGetAlignment(value);
      made.numbers = {(int64_t)LLVMGetPointerAddressSpace(LLVMTypeOf(LLVMGetOperand(value, 1)))};
      break;
    case OP_GEP: address(made, value); break;
    case OP_CALL: call(made, value); break;
    case OP_ALLOCA:
      made.numbers = {(int64_t)LLVMABISizeOfType(m.layout, LLVMGetAllocatedType(value)), LLVMGetAlignment(value)};
      break;
    case OP_SHUFFLE:
      for (unsigned i = 0; i < LLVMGetNumMaskElements(value); ++i) made.numbers.push_back(LLVMGetMaskValue(value, i));
      break;
    case OP_EXTRACTVALUE:
    case OP_INSERTVALUE: {
      LLVMTypeRef type = LLVMTypeOf(LLVMGetOperand(value, 0));
      int64_t first = 0;
      for (unsigned i = 0; i < LLVMGetNumIndices(value); ++i) first += member(type, LLVMGetIndices(value)[i]);
      made.numbers = {first, (int64_t)shape_of(m, type)->parts.size()};
      break;
    }
    default: break;
    }
    return made;
  }
};

/* --- the order of blocks -------------------------------------------------------------------------- */

/* Orders blocks so that those of a loop stand together, before where it leads to: lanes that leave it wait
   for the others. */
static std::vector<LLVMBasicBlockRef> ordered_blocks(LLVMValueRef function) {
  std::vector<LLVMBasicBlockRef> blocks;
  std::map<LLVMBasicBlockRef, int> number;
  for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(function); b; b = LLVMGetNextBasicBlock(b))
    number[b] = blocks.size(), blocks.push_back(b);
  int count = blocks.size();
  std::vector<std::vector<int>> next(count), previous(count);
  for (int i = 0; i < count; ++i) {
    LLVMValueRef last = nullptr;
    for (LLVMValueRef v = LLVMGetFirstInstruction(blocks[i]); v; v = LLVMGetNextInstruction(v)) last = v;
    for (unsigned s = 0; s < LLVMGetNumSuccessors(last); ++s) {
      int to = number[LLVMGetSuccessor(last, s)];
      next[i].push_back(to), previous[to].push_back(i);
    }
  }
  std::vector<std::vector<bool>> dominates(count, std::vector<bool>(count, true)); /* [block][dominator] */
  dominates[0].assign(count, false), dominates[0][0] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 1; i < count; ++i) {
      std::vector<bool> common(count, true);
      for (int p : previous[i])
        for (int d = 0; d < count; ++d) common[d] = common[d] && dominates[p][d];
      common[i] = true;
      if (common != dominates[i]) dominates[i] = common, changed = true;
    }
  }
  std::map<int, std::set<int>> loops; /* by header */
  for (int i = 0; i < count; ++i)
    for (int header : next[i])
      if (dominates[i][header]) {
        std::vector<int> work = {i};
        loops[header].insert(header);
        while (!work.empty()) {
          int block = work.back();
          work.pop_back();
          if (loops[header].insert(block).second)
            work.insert(work.end(), previous[block].begin(), previous[block].end());
        }
      }
  std::vector<int> finished;
  std::vector<bool> seen(count);
  std::function<void(int)> visit = [&](int block) {
    if (seen[block]) return;
    seen[block] = true;
    auto loop = loops.find(block);
    if (loop != loops.end())
      for (int inside : loop->second)
        for (int to : next[inside])
          if (!loop->second.count(to)) visit(to);
    for (int to : next[block]) visit(to);
    finished.push_back(block);
  };
  visit(0);
  std::vector<LLVMBasicBlockRef> ordered;
  for (auto block = finished.rbegin(); block != finished.rend(); ++block) ordered.push_back(blocks[*block]);
  return ordered;
}

void decode(Module &m, Function &f) {
  if (f.is_decoded) return;
  f.is_decoded = true;
  Decoder decoder{m, f, {}, {}};
  for (unsigned i = 0; i < LLVMCountParams(f.source); ++i) {
    LLVMValueRef parameter = LLVMGetParam(f.source, i);
    decoder.define(parameter);
    f.parameters.push_back(decoder.operand(parameter));
    f.shapes.push_back(shape_of(m, LLVMTypeOf(parameter)));
  }
  std::vector<LLVMBasicBlockRef> blocks = ordered_blocks(f.source);
  for (size_t i = 0; i < blocks.size(); ++i) {
    decoder.order[blocks[i]] = i;
    for (LLVMValueRef v = LLVMGetFirstInstruction(blocks[i]); v; v = LLVMGetNextInstruction(v)) decoder.define(v);
  }
  for (LLVMBasicBlockRef block : blocks) {
    f.blocks.emplace_back();
    for (LLVMValueRef v = LLVMGetFirstInstruction(block); v; v = LLVMGetNextInstruction(v))
      if (LLVMGetInstructionOpcode(v) != OP_PHI) f.blocks.back().instructions.push_back(decoder.decode(v));
  }
}

/* --- modules -------------------------------------------------------------------------------------- */

static void write_initial(Module &m, LLVMValueRef global, uint8_t *data, u64 size) {
  LLVMValueRef value = LLVMGetInitializer(global);
  if (!value || LLVMIsNull(value)) {
    memset(data, 0, size);
    return;
  }
  Shape shape = {{}, size, size};
  add_parts(m, LLVMGlobalGetValueType(global), 0, shape.parts);
  /* Large arrays are no value of a register: their elements are evaluated here. */
  std::vector<u64> parts;
  std::function<void(LLVMValueRef)> collect = [&](LLVMValueRef part) {
    int kind = LLVMGetTypeKind(LLVMTypeOf(part));
    bool is_aggregate = kind == TYPE_ARRAY || kind == TYPE_STRUCT || kind == TYPE_VECTOR;
    LLVMValueRef element = is_aggregate ? LLVMGetAggregateElement(part, 0) : nullptr;
    if (!element) {
      for (u64 bits : evaluate(m, part)) parts.push_back(bits);
      return;
    }
    for (unsigned i = 0; element; element = LLVMGetAggregateElement(part, ++i)) collect(element);
  };
  collect(value);
  for (size_t i = 0; i < shape.parts.size() && i < parts.size(); ++i)
    store_part(data, shape.parts[i], parts[i]);
}

static void place_globals(Module &m) {
  u64 dynamic = 0;
  std::vector<LLVMValueRef> dynamic_ones, others;
  for (LLVMValueRef g = LLVMGetFirstGlobal(m.module); g; g = LLVMGetNextGlobal(g)) {
    u64 size = LLVMABISizeOfType(m.layout, LLVMGlobalGetValueType(g));
    if (LLVMGetPointerAddressSpace(LLVMTypeOf(g)) != 3) {
      size_t length = 0;
      const char *name = LLVMGetValueName2(g, &length);
      m.addresses[g] = allocate_device(size);
      m.variables[std::string(name, length)] = {m.addresses[g], size};
      others.push_back(g);
    } else if (!size) {
      dynamic_ones.push_back(g);
    } else {
      /* 64 bytes between variables belong to none. */
      m.addresses[g] = dynamic;
      m.workgroup_memory.push_back({dynamic, dynamic + size});
      dynamic = (dynamic + size + 127) / 64 * 64;
    }
  }
  m.workgroup_size = dynamic;
  for (LLVMValueRef g : dynamic_ones) m.addresses[g] = dynamic;
  for (LLVMValueRef g : others)
    if (!LLVMIsDeclaration(g)) {
      u64 size = LLVMABISizeOfType(m.layout, LLVMGlobalGetValueType(g));
      if (size) write_initial(m, g, reach(m.addresses[g], size), size);
    }
}

std::unique_ptr<Module> load_module(const char *bitcode, size_t size, int wave_size) {
  std::unique_ptr<Module> m(new Module{});
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(bitcode, size, "device");
  if (LLVMParseBitcodeInContext2(LLVMContextCreate(), buffer, &m->module)) fail("bitcode that LLVM cannot read");
  m->layout = LLVMGetModuleDataLayout(m->module);
  m->wave_size = wave_size;
  for (LLVMValueRef f = LLVMGetFirstFunction(m->module); f; f = LLVMGetNextFunction(f)) {
    size_t length = 0;
    const char *name = LLVMGetValueName2(f, &length);
    /* Local functions of a linked module may have no name. */
    std::string known(name, length);
    if (known.empty()) known = "function " + std::to_string(m->functions.size());
    Function &made = m->functions[known];
    made.name = known, made.source = f;
    m->by_value[f] = &made;
  }
  place_globals(*m);
  return m;
}

Function *find_kernel(Module &m, const std::string &name) {
  auto found = m.functions.find(name);
  if (found == m.functions.end() || LLVMIsDeclaration(found->second.source)) return nullptr;
  decode(m, found->second);
  return &found->second;
}
