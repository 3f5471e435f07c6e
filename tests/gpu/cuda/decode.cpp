/* Instructions with names become instructions with numbers and handlers. */
#include "machine.h"
#include "number.h"
#include "select.h"

namespace ptx {

namespace {

enum Special : uint8_t {
  kTid, kNtid, kCtaid, kNctaid, kClusterid, kNclusterid, kClusterCtaid, kClusterNctaid, kLaneid, kWarpid, kNwarpid,
  kSmid, kNsmid, kGridid, kMaskEq, kMaskLe, kMaskLt, kMaskGe, kMaskGt, kClock, kClock64, kTimer, kDynamicShared,
  kTotalShared, kClusterRank, kClusterSize, kIsCluster, kWorkspaceHigh, kWorkspaceLow,
};
const struct {
  const char *name;
  uint8_t code;
} kSpecials[] = {
    {"%tid", kTid}, {"%ntid", kNtid}, {"%ctaid", kCtaid}, {"%nctaid", kNctaid}, {"%clusterid", kClusterid},
    {"%nclusterid", kNclusterid}, {"%cluster_ctaid", kClusterCtaid}, {"%cluster_nctaid", kClusterNctaid},
    {"%laneid", kLaneid}, {"%warpid", kWarpid}, {"%nwarpid", kNwarpid}, {"%smid", kSmid}, {"%nsmid", kNsmid},
    {"%gridid", kGridid}, {"%lanemask_eq", kMaskEq}, {"%lanemask_le", kMaskLe}, {"%lanemask_lt", kMaskLt},
    {"%lanemask_ge", kMaskGe}, {"%lanemask_gt", kMaskGt}, {"%clock", kClock}, {"%clock64", kClock64},
    {"%globaltimer", kTimer}, {"%dynamic_smem_size", kDynamicShared}, {"%total_smem_size", kTotalShared},
    {"%cluster_ctarank", kClusterRank}, {"%cluster_nctarank", kClusterSize}, {"%is_explicit_cluster", kIsCluster},
    {"%envreg1", kWorkspaceHigh}, {"%envreg2", kWorkspaceLow},
};

Step move(Thread &t, const Inst &i) {
  put(t, i.op[0], t.get(i.op[1]));
  return kNext;
}
Step move_wide(Thread &t, const Inst &i) {
  uint64_t low = t.get(i.op[1]), high = t.registers[i.op[1] + 1];
  t.registers[i.op[0]] = low, t.registers[i.op[0] + 1] = high;
  return kNext;
}
Step move_predicate(Thread &t, const Inst &i) {
  put(t, i.op[0], t.get(i.op[1]) & 1);
  return kNext;
}
Step move_frame(Thread &t, const Inst &i) {
  put(t, i.op[0], (i.base == 1 ? t.local_base : t.param_base) + (uint64_t)i.offset);
  return kNext;
}
/* `vector` elements of `code` bits. */
Step pack(Thread &t, const Inst &i) {
  uint64_t whole = 0, mask = i.code == 64 ? ~0ull : (1ull << i.code) - 1;
  for (uint32_t at = 0; at < i.vector; ++at)
    whole |= (t.get(i.list[at]) & mask) << i.code * at;
  put(t, i.op[0], whole);
  return kNext;
}
Step unpack(Thread &t, const Inst &i) {
  uint64_t whole = t.get(i.op[0]), mask = (1ull << i.code) - 1;
  for (uint32_t at = 0; at < i.vector; ++at)
    put(t, i.list[at], whole >> i.code * at & mask);
  return kNext;
}
Step pack_wide(Thread &t, const Inst &i) {
  uint64_t low = t.get(i.list[0]), high = t.get(i.list[1]);
  t.registers[i.op[0]] = low, t.registers[i.op[0] + 1] = high;
  return kNext;
}
Step unpack_wide(Thread &t, const Inst &i) {
  uint64_t low = t.registers[i.op[0]], high = t.registers[i.op[0] + 1];
  put(t, i.list[0], low), put(t, i.list[1], high);
  return kNext;
}

/* Where the blocks of a cooperative launch of CUDA C++ count each other. */
uint64_t workspace() {
  static Allocation *made = nullptr;
  if (!made) {
    made = allocate(1024, 256, Allocation::device);
    memset(made->bytes, 0, made->size);
  }
  return made->begin;
}

uint64_t special_value(const Thread &t, uint8_t code, uint8_t axis) {
  const Block &block = *t.block;
  const Launch &launch = *block.launch;
  switch (code) {
  case kTid: return t.at[axis];
  case kNtid: return launch.block[axis];
  case kCtaid: return block.at[axis];
  case kNctaid: return launch.grid[axis];
  case kClusterid: return block.at[axis] / launch.cluster[axis];
  case kNclusterid: return launch.grid[axis] / launch.cluster[axis];
  case kClusterCtaid: return block.cluster_at[axis];
  case kClusterNctaid: return launch.cluster[axis];
  case kLaneid: return t.lane;
  case kWarpid: return t.warp;
  case kNwarpid: return (block.size + 31) / 32;
  case kNsmid: return 1;
  case kMaskEq: return 1u << t.lane;
  case kMaskLe: return (2ull << t.lane) - 1;
  case kMaskLt: return (1u << t.lane) - 1;
  case kMaskGe: return (uint32_t)(~0u << t.lane);
  case kMaskGt: return (uint32_t)(~1ull << t.lane);
  case kClock: case kClock64: case kTimer: return t.steps * 8 + 1000 + (uint64_t)-t.budget;
  case kDynamicShared: return launch.dynamic_shared;
  case kTotalShared: return launch.dynamic_shared + launch.kernel->static_bytes;
  case kClusterRank: return block.rank;
  case kClusterSize: return (uint64_t)launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
  case kIsCluster: return launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > 1;
  case kWorkspaceHigh: return workspace() >> 32;
  case kWorkspaceLow: return workspace() & 0xffffffff;
  default: return 0;
  }
}
Step move_special(Thread &t, const Inst &i) {
  put(t, i.op[0], i.rounding == 3 ? 0 : special_value(t, i.code, i.rounding));
  return kNext;
}

/* Control ------------------------------------------------------------------------------------ */

Step branch(Thread &t, const Inst &i) {
  t.next = t.function->code.data() + i.target;
  return kNext;
}
Step branch_indexed(Thread &t, const Inst &i) {
  uint32_t index = read<uint32_t>(t, i.op[0]);
  if (index >= i.list_size)
    fault(t, i, "branch %u of a table of %u", index, i.list_size);
  t.next = t.function->code.data() + i.list[index];
  return kNext;
}

enum : uint64_t { kFrameAlign = 256, kPoison = 0xa55a5aa5c33c3cc3, kFunctions = 0x5000000000000000 };

uint64_t above(uint64_t base, uint64_t size) { return (base + size + kFrameAlign - 1) / kFrameAlign * kFrameAlign; }

} // namespace

void enter(Thread &t, const Function &function, uint64_t registers, uint64_t params, uint64_t local) {
  uint64_t wanted = registers + (uint64_t)function.register_count + 2;
  if (wanted > 1u << 22)
    stop("device functions call each other without end");
  if (t.register_stack.size() < wanted)
    t.register_stack.resize(wanted);
  std::fill(t.register_stack.begin() + (int64_t)registers, t.register_stack.begin() + (int64_t)wanted,
            kPoison ^ (settings().seed + t.number) * 0x9e3779b97f4a7c15ull);
  t.register_base = registers;
  t.registers = t.register_stack.data() + registers;
  t.param_base = params, t.local_base = local;
  t.param_stack.resize(params + function.param_bytes, 0xc7);
  t.local_stack.resize(local);
  t.local_stack.resize(local + function.local_bytes, (uint8_t)(0xb3 + settings().seed * 29));
  t.function = &function;
  t.constants = function.constants.data();
  t.next = function.code.data();
}

namespace {

/* `list`: where results and arguments are in the caller's frame; `target` of them are results. */
Step call(Thread &t, const Inst &i) {
  const Function *callee = i.callee;
  if (!callee) {
    uint64_t address = t.get(i.op[0]);
    Function *found = nullptr;
    for (auto &module : t.function->module->image->modules)
      for (auto &entry : module->functions)
        if (entry.second->address == address)
          found = entry.second.get();
    if (!found)
      fault(t, i, "call of 0x%llx, which is no function", (unsigned long long)address);
    callee = t.function->module->image->find_function(found->module, found->name);
  }
  if (!callee->is_defined)
    return call_builtin(t, i, callee->name.c_str());
  if ((uint32_t)i.target != callee->results.size() || i.list_size - (uint32_t)i.target != callee->params.size())
    fault(t, i, "call of %s with %u arguments, of which it has %zu", callee->name.c_str(),
          i.list_size - (uint32_t)i.target, callee->params.size());
  uint64_t caller = t.param_base;
  t.frames.push_back({t.function, t.next, t.register_base, t.param_base, t.local_base});
  enter(t, *callee, t.register_base + (uint64_t)t.function->register_count + 2,
        above(t.param_base, t.function->param_bytes), above(t.local_base, t.function->local_bytes));
  for (size_t at = 0; at < callee->params.size(); ++at)
    memcpy(&t.param_stack[t.param_base + callee->params[at].address],
           &t.param_stack[caller + (uint64_t)i.list[(size_t)i.target + at]], callee->params[at].size);
  return kNext;
}

Step leave(Thread &t, const Inst &) {
  if (t.frames.empty()) {
    end_thread(t);
    return kStop;
  }
  Frame frame = t.frames.back();
  t.frames.pop_back();
  const Inst &from = frame.back[-1];
  for (size_t at = 0; at < t.function->results.size(); ++at)
    memcpy(&t.param_stack[frame.params + (uint64_t)from.list[at]],
           &t.param_stack[t.param_base + t.function->results[at].address], t.function->results[at].size);
  t.function = frame.function;
  t.constants = frame.function->constants.data();
  t.next = frame.back;
  t.register_base = frame.registers;
  t.registers = t.register_stack.data() + frame.registers;
  t.param_base = frame.params, t.local_base = frame.local;
  return kNext;
}

Step end(Thread &t, const Inst &) {
  end_thread(t);
  return kStop;
}
Step trap(Thread &t, const Inst &) {
  t.block->gang->status = kTrap;
  return kStop;
}

class Decoder {
public:
  explicit Decoder(Function &function) : function_(function), image_(*function.module->image) {}

  void decode() {
    scratch_ = function_.register_count;
    function_.code.reserve(function_.raw.size() + 1);
    for (const RawInst &raw : function_.raw) {
      Inst inst;
      inst.raw = &raw;
      scope_ = raw.scope;
      if (!raw.predicate.empty())
        inst.predicate = slot_of_register(raw.predicate);
      inst.is_negated = raw.is_negated;
      inst.key = std::hash<std::string>()(raw.opcode);
      for (const std::string &modifier : raw.modifiers)
        inst.key = inst.key * 31 + std::hash<std::string>()(modifier);
      choose(raw, inst);
      if (!inst.run)
        unknown(raw);
      function_.code.push_back(inst);
    }
    Inst last;
    last.run = leave;
    last.raw = function_.raw.empty() ? nullptr : &function_.raw.back();
    function_.code.push_back(last);
  }

private:
  [[noreturn]] void unknown(const RawInst &raw) {
    std::string text = raw.opcode;
    for (const std::string &modifier : raw.modifiers)
      text += "." + modifier;
    stop("PTX line %d: %s is not known to the interpreter", raw.line, text.c_str());
  }

  /* Looks in the scope of the instruction, then in those around it. */
  template <class M> typename M::iterator look_up(M &names, const std::string &name) {
    for (uint32_t scope = scope_;; scope = function_.parents[scope]) {
      auto found = names.find(scoped(name, scope));
      if (found != names.end() || !scope)
        return found;
    }
  }
  bool is_register(const std::string &name) { return look_up(function_.registers, name) != function_.registers.end(); }

  int32_t slot_of_register(const std::string &name) {
    auto found = look_up(function_.registers, name);
    if (found == function_.registers.end())
      stop("%s: no register %s", function_.name.c_str(), name.c_str());
    return found->second.first;
  }

  int32_t constant(uint64_t bits) {
    for (size_t at = 0; at < function_.constants.size() && at < 256; ++at)
      if (function_.constants[at] == bits)
        return ~(int32_t)at;
    function_.constants.push_back(bits);
    return ~(int32_t)(function_.constants.size() - 1);
  }

  static uint64_t literal(const RawOperand &operand, Type type) {
    if (operand.literal == Type::f64 && type == Type::f32) {
      double wide;
      memcpy(&wide, &operand.bits, sizeof wide);
      return bits_of((float)wide);
    }
    return operand.bits;
  }

  /* A symbol of a frame: sets `base` and returns true. */
  bool frame_symbol(const std::string &name, Inst &inst, int64_t &offset) {
    auto local = look_up(function_.locals, name);
    if (local != function_.locals.end()) {
      inst.base = local->second.space == Space::local ? 1 : 2;
      offset = (int64_t)local->second.address;
      return true;
    }
    for (const auto *list : {&function_.params, &function_.results})
      for (const Variable &variable : *list)
        if (variable.name == name) {
          inst.base = 2;
          offset = (int64_t)variable.address;
          return true;
        }
    return false;
  }

  bool symbol_address(const std::string &name, uint64_t &address) {
    if (Variable *variable = image_.find_variable(function_.module, name)) {
      if (variable->space == Space::shared)
        function_.shared.push_back(variable);
      address = variable->address;
      return true;
    }
    if (Function *found = image_.find_function(function_.module, name)) {
      address = found->address;
      function_.callees.push_back(found);
      return true;
    }
    return false;
  }

  int32_t slot(const RawOperand &operand, Type type = Type::none) {
    if (operand.kind == RawOperand::number)
      return constant(literal(operand, type));
    if (operand.kind != RawOperand::name)
      stop("%s: an operand of an unexpected form", function_.name.c_str());
    if (operand.text == "_")
      return scratch_;
    auto found = look_up(function_.registers, operand.text);
    if (found != function_.registers.end())
      return found->second.first;
    if (operand.text == "WARP_SZ")
      return constant(32);
    uint64_t address;
    if (symbol_address(operand.text, address))
      return constant(address + operand.bits);
    stop("%s: %s is not known", function_.name.c_str(), operand.text.c_str());
  }

  void address(const RawOperand &operand, Inst &inst, int32_t &base) {
    const RawOperand &part = operand.parts[0];
    inst.offset = 0;
    if (part.kind == RawOperand::number) {
      base = constant(part.bits);
      return;
    }
    int64_t offset = 0;
    if (frame_symbol(part.text, inst, offset)) {
      base = constant(0);
      inst.offset = offset + (int64_t)part.bits;
      return;
    }
    if (is_register(part.text)) {
      base = slot_of_register(part.text);
      inst.offset = (int64_t)part.bits;
      return;
    }
    base = slot(part);
  }

  void keep(Inst &inst, const std::vector<int32_t> &values) {
    function_.lists.push_back(std::make_unique<int32_t[]>(values.size() + 1));
    std::copy(values.begin(), values.end(), function_.lists.back().get());
    inst.list = function_.lists.back().get();
    inst.list_size = (uint32_t)values.size();
  }

  void elements(const RawOperand &operand, std::vector<int32_t> &into, Type type = Type::none) {
    if (operand.kind == RawOperand::list || operand.kind == RawOperand::pair) {
      for (const RawOperand &part : operand.parts)
        elements(part, into, type);
    } else if (operand.kind == RawOperand::address) {
      Inst place;
      int32_t base = 0;
      address(operand, place, base);
      into.push_back(base);
      into.push_back(constant((uint64_t)place.offset));
      for (size_t at = 1; at < operand.parts.size(); ++at)
        elements(operand.parts[at], into, type);
    } else {
      into.push_back(slot(operand, type));
    }
  }

  void choose(const RawInst &raw, Inst &inst) {
    const std::string &name = raw.opcode;
    if (name == "mov" || name == "pack")
      return choose_move(raw, inst);
    if (choose_control(raw, inst))
      return;
    if ((inst.run = warp_handler(raw, inst)) || (inst.run = matrix_handler(raw, inst)) ||
        (inst.run = async_handler(raw, inst)))
      return choose_collective(raw, inst);
    if ((inst.run = memory_handler(raw, inst)))
      return choose_memory(raw, inst);
    if (!(inst.run = arithmetic_handler(raw, inst)))
      return;
    size_t at = 0;
    for (const RawOperand &operand : raw.operands) {
      if (operand.kind == RawOperand::pair) {
        inst.op[at++] = slot(operand.parts[0], inst.type);
        inst.op[at++] = slot(operand.parts[1], inst.type);
        continue;
      }
      if (at == 1 && name == "setp" && raw.operands[0].kind != RawOperand::pair)
        inst.op[at++] = scratch_;
      else if (at == 1 && name == "set")
        inst.op[at++] = scratch_;
      if (at == 5)
        unknown(raw);
      if (at == 4 && (name == "setp" || name == "set"))
        inst.vector = operand.is_negated ? 2 : 1;
      Type type = name == "cvt" ? inst.source_type : inst.type;
      inst.op[at++] = slot(operand, type);
    }
  }

  void choose_collective(const RawInst &raw, Inst &inst) {
    std::vector<int32_t> values;
    const std::string &name = raw.opcode;
    bool has_result_pair = name == "shfl" || (name == "match" && raw.has("all")) || name == "elect";
    size_t first = 0;
    if (has_result_pair) {
      elements(raw.operands[0], values);
      if (values.size() == 1)
        values.push_back(scratch_);
      first = 1;
    }
    for (size_t at = first; at < raw.operands.size(); ++at)
      elements(raw.operands[at], values);
    keep(inst, values);
    for (size_t at = 0; at < raw.operands.size(); ++at)
      if (raw.operands[at].is_negated)
        inst.flags |= 1;
    bool is_partial = name == "mbarrier" || raw.has("warp") || raw.has("cluster") || raw.has("arrive") ||
                      ((name == "bar" || name == "barrier") && inst.list_size > 1 + inst.code / 16u);
    function_.has_partial_sync |= is_partial;
  }

  void choose_memory(const RawInst &raw, Inst &inst) {
    const std::string &name = raw.opcode;
    if (name == "ld" || name == "ldu" || name == "st") {
      bool is_store = inst.is_store = name == "st";
      address(raw.operands[is_store ? 0 : 1], inst, inst.op[0]);
      std::vector<int32_t> values;
      elements(raw.operands[is_store ? 1 : 0], values, inst.type);
      keep(inst, values);
    } else if (name == "atom" || name == "red") {
      bool is_atom = name == "atom";
      address(raw.operands[is_atom ? 1 : 0], inst, inst.op[0]);
      std::vector<int32_t> values;
      if (is_atom)
        elements(raw.operands[0], values);
      else
        values.assign(inst.vector, scratch_);
      for (size_t at = is_atom ? 2 : 1; at < raw.operands.size(); ++at)
        elements(raw.operands[at], values, inst.type);
      keep(inst, values);
      function_.has_partial_sync |= inst.space == Space::shared || inst.space == Space::generic;
    } else if (name == "cvta" || name == "isspacep") {
      inst.op[0] = slot(raw.operands[0]);
      int64_t offset = 0;
      if (raw.operands[1].kind == RawOperand::name && frame_symbol(raw.operands[1].text, inst, offset)) {
        inst.op[1] = constant(0);
        inst.offset = offset + (int64_t)raw.operands[1].bits;
      } else {
        inst.op[1] = slot(raw.operands[1]);
      }
    }
  }

  void choose_move(const RawInst &raw, Inst &inst) {
    Type type = type_of(raw.modifiers.back());
    const RawOperand &to = raw.operands[0], &from = raw.operands[1];
    if (to.kind == RawOperand::list || from.kind == RawOperand::list) {
      bool is_pack = from.kind == RawOperand::list;
      std::vector<int32_t> values;
      elements(is_pack ? from : to, values, type);
      keep(inst, values);
      inst.op[0] = slot(is_pack ? to : from, type);
      inst.vector = (uint8_t)values.size();
      inst.code = (uint8_t)(size_of(type) * 8 / values.size());
      if (type == Type::b128)
        inst.run = is_pack ? pack_wide : unpack_wide;
      else
        inst.run = is_pack ? pack : unpack;
      return;
    }
    inst.op[0] = slot(to);
    if (from.kind == RawOperand::name && from.text[0] == '%' && !is_register(from.text)) {
      choose_special(from.text, inst);
      return;
    }
    int64_t offset = 0;
    if (from.kind == RawOperand::name && frame_symbol(from.text, inst, offset)) {
      inst.offset = offset + (int64_t)from.bits;
      inst.run = move_frame;
      return;
    }
    inst.op[1] = slot(from, type);
    inst.run = type == Type::pred ? move_predicate : type == Type::b128 ? move_wide : move;
  }

  void choose_special(const std::string &text, Inst &inst) {
    size_t dot = text.find('.');
    std::string name = text.substr(0, dot);
    inst.rounding = dot == std::string::npos ? 0 : text[dot + 1] == 'x' ? 0 : text[dot + 1] == 'y' ? 1 : text[dot + 1] == 'z' ? 2 : 3;
    for (const auto &known : kSpecials)
      if (name == known.name) {
        inst.code = known.code;
        inst.run = move_special;
      }
  }

  bool choose_control(const RawInst &raw, Inst &inst) {
    const std::string &name = raw.opcode;
    if (name == "bra") {
      inst.target = label(raw.operands[0].text);
      inst.run = branch;
    } else if (name == "brx") {
      inst.op[0] = slot(raw.operands[0]);
      std::vector<int32_t> values;
      for (const std::string &target : function_.targets[raw.operands[1].text])
        values.push_back(label(target));
      keep(inst, values);
      inst.run = branch_indexed;
    } else if (name == "call") {
      choose_call(raw, inst);
    } else if (name == "ret") {
      inst.run = leave;
    } else if (name == "exit") {
      inst.run = end;
    } else if (name == "trap" || name == "brkpt") {
      inst.run = trap;
    } else {
      return false;
    }
    return true;
  }

  int32_t label(const std::string &name) {
    auto found = look_up(function_.labels, name);
    if (found == function_.labels.end())
      stop("%s: no label %s", function_.name.c_str(), name.c_str());
    return found->second;
  }

  int32_t param_place(const RawOperand &operand) {
    Inst place;
    int64_t offset = 0;
    if (operand.kind != RawOperand::name || !frame_symbol(operand.text, place, offset))
      stop("%s: a call with registers as arguments", function_.name.c_str());
    return (int32_t)offset;
  }

  void choose_call(const RawInst &raw, Inst &inst) {
    size_t at = 0;
    std::vector<int32_t> values;
    if (raw.operands[0].kind == RawOperand::list)
      for (const RawOperand &part : raw.operands[at++].parts)
        values.push_back(param_place(part));
    inst.target = (int32_t)values.size();
    const RawOperand &name = raw.operands[at++];
    if (is_register(name.text)) {
      inst.op[0] = slot(name);
    } else {
      inst.callee = image_.find_function(function_.module, name.text);
      if (!inst.callee)
        stop("%s: %s is not declared", function_.name.c_str(), name.text.c_str());
      function_.callees.push_back(inst.callee);
    }
    if (at < raw.operands.size() && raw.operands[at].kind == RawOperand::list)
      for (const RawOperand &part : raw.operands[at].parts)
        values.push_back(param_place(part));
    keep(inst, values);
    inst.run = call;
  }

  Function &function_;
  Image &image_;
  int32_t scratch_ = 0;
  uint32_t scope_ = 0;
};

/* The next address of exactly this alignment: nothing is aligned better than was asked for. */
uint64_t barely_aligned(uint64_t at, uint64_t align) {
  at = (at + align - 1) / align * align;
  return at % (2 * align) ? at : at + align;
}

void place_shared(Image &image, Variable &variable) {
  variable.address = image.shared_end = barely_aligned(image.shared_end, variable.align);
  /* A gap behind each, so that an access beyond one is seen. */
  image.shared_end += variable.size + 16;
}

void place_global(Variable &variable) {
  if (variable.is_extern && !variable.size)
    return;
  Allocation::Kind kind = variable.is_managed ? Allocation::managed
                          : variable.space == Space::constant ? Allocation::constant : Allocation::device;
  Allocation *made = allocate(variable.size, variable.align, kind);
  if (!made)
    stop("no memory for %s", variable.name.c_str());
  memset(made->bytes, 0, variable.size);
  if (!variable.init.empty())
    memcpy(made->bytes, variable.init.data(), variable.init.size());
  variable.address = made->begin;
}

void fix(Image &image, Module &module, Variable &variable) {
  for (const Variable::Fix &one : variable.fixes) {
    uint64_t address = one.add;
    if (Variable *other = image.find_variable(&module, one.symbol))
      address += other->address;
    else if (Function *function = image.find_function(&module, one.symbol))
      address += function->address;
    else
      stop("%s: %s is not known", variable.name.c_str(), one.symbol.c_str());
    Allocation *place = find_allocation(variable.address);
    memcpy(place->bytes + one.at, &address, one.size);
  }
}

} // namespace

void decode(Function &function) { Decoder(function).decode(); }

void prepare(Image &image) {
  static uint64_t functions = kFunctions;
  for (auto &module : image.modules) {
    for (auto &entry : module->functions) {
      Function *known = image.find_function(module.get(), entry.first);
      if (known == entry.second.get())
        known->address = functions += 16;
    }
    for (auto &entry : module->variables) {
      Variable &variable = *entry.second;
      if (variable.space == Space::shared) {
        if (!variable.is_extern || variable.size)
          place_shared(image, variable);
      } else if (image.find_variable(module.get(), entry.first) == &variable) {
        place_global(variable);
      }
    }
  }
  uint64_t align = 16;
  for (auto &module : image.modules)
    for (auto &entry : module->variables)
      if (entry.second->space == Space::shared && entry.second->is_extern && entry.second->align > align)
        align = entry.second->align;
  image.shared_end = barely_aligned(image.shared_end, align);
  for (auto &module : image.modules)
    for (auto &entry : module->variables) {
      Variable &variable = *entry.second;
      if (variable.space == Space::shared && variable.is_extern && !variable.size)
        variable.address = image.shared_end;
      fix(image, *module, variable);
    }
  for (auto &module : image.modules)
    for (auto &entry : module->functions)
      if (entry.second->is_defined)
        decode(*entry.second);
}

} // namespace ptx
