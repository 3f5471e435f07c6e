/* A PTX program: what the parser reads and what the interpreter runs.
 *
 * Reference for all of this folder: NVIDIA, "Parallel Thread Execution ISA", 8.x and 9.0. */
#ifndef PTX_H
#define PTX_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ptx {

enum class Type : uint8_t {
  none, b8, b16, b32, b64, b128, u8, u16, u32, u64, s8, s16, s32, s64, f16, f16x2, bf16, bf16x2, f32, f64, pred, tf32,
};
enum class Space : uint8_t { generic, global, constant, shared, local, param };

unsigned size_of(Type);
bool is_signed(Type);
bool is_float(Type);
Type type_of(const std::string &);

/* Generic addresses of the spaces that the host does not have; no host address has these bits. */
enum : uint64_t {
  kSharedWindow = 0x4000000000000000,
  kLocalWindow = 0x4100000000000000,
  kParamWindow = 0x4200000000000000,
  kWindowMask = 0xff00000000000000,
};
enum : uint32_t { kFirstShared = 1024, kClusterShift = 24 };

/* An operand as it is written. */
struct RawOperand {
  enum Kind : uint8_t { name, number, list, address, pair } kind = name;
  std::string text; /* name */
  uint64_t bits = 0; /* number; for an address or a name, what is added */
  Type literal = Type::none; /* f32 or f64 for a number that was written as one */
  bool is_negated = false;
  std::vector<RawOperand> parts; /* of a list, an address with coordinates, or a pair a|b */
};

struct RawInst {
  std::string predicate, opcode;
  bool is_negated = false;
  std::vector<std::string> modifiers;
  std::vector<RawOperand> operands;
  int line = 0;
  uint32_t scope = 0;
  bool has(const char *modifier) const;
};

struct Thread;
struct Inst;
struct Function;
enum Step : int { kNext = 0, kStop = 1 };
using Handler = Step (*)(Thread &, const Inst &);

/* A decoded instruction. An operand is the number of a register, or the complement of that of a constant. */
struct Inst {
  Handler run = nullptr;
  int32_t predicate = -1;
  bool is_negated = false, is_store = false;
  Type type = Type::none, source_type = Type::none;
  Space space = Space::generic;
  uint8_t vector = 1, code = 0, rounding = 0, flags = 0, base = 0; /* base: 1 in the frame of private memory, 2 of parameters */
  int32_t op[5] = {};
  int64_t offset = 0;
  const int32_t *list = nullptr;
  uint32_t list_size = 0;
  int32_t target = 0;
  const Function *callee = nullptr;
  const RawInst *raw = nullptr;
  uint64_t key = 0; /* equal for instructions that meet each other in a warp */
  void (*meet)(Thread *const *lanes, uint32_t present) = nullptr; /* what the threads of a warp do together */
};

struct Variable {
  std::string name;
  Space space = Space::global;
  Type type = Type::none;
  uint64_t size = 0, align = 1;
  uint64_t address = 0; /* in its space; of local and parameters, in the frame */
  bool is_extern = false, is_weak = false, is_visible = false, is_managed = false;
  std::vector<uint8_t> init;
  struct Fix {
    uint64_t at, size, add;
    std::string symbol;
    bool is_generic;
  };
  std::vector<Fix> fixes;
};

struct Function {
  std::string name;
  bool is_entry = false, is_defined = false, is_weak = false, is_visible = false;
  std::vector<Variable> results, params;
  std::vector<uint32_t> parents; /* of each scope in the body; the names below have that of their scope behind them */
  std::map<std::string, Variable> locals; /* .local, and .param that call sequences declare */
  std::map<std::string, std::pair<int32_t, Type>> registers;
  std::map<std::string, int32_t> labels;
  std::map<std::string, std::vector<std::string>> targets; /* .branchtargets */
  std::vector<RawInst> raw;
  std::vector<Inst> code;
  std::vector<uint64_t> constants;
  std::vector<std::unique_ptr<int32_t[]>> lists;
  int32_t register_count = 0;
  uint64_t param_bytes = 0, local_bytes = 0;
  uint32_t max_threads = 0;
  uint32_t required_threads[3] = {}, cluster[3] = {};
  struct Module *module = nullptr;
  uint64_t address = 0;
  bool is_prepared = false;
  bool has_partial_sync = false;
  std::vector<const Variable *> shared; /* used here, before reachable functions are added */
  std::vector<const Function *> callees;
};

/* One PTX text; an image that was linked of several has one for each. */
struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<std::string, std::unique_ptr<Variable>> variables;
  struct Image *image = nullptr;
  int arch = 0;
};

std::string scoped(const std::string &name, uint32_t scope);

struct Image {
  std::vector<std::unique_ptr<Module>> modules;
  uint64_t shared_end = kFirstShared;
  Function *find_function(const Module *from, const std::string &name);
  Variable *find_variable(const Module *from, const std::string &name);
};

std::unique_ptr<Image> parse_image(const std::string &text);
/* Gives the variables their addresses and the instructions of all functions their handlers. */
void prepare(Image &);
void decode(Function &);

/* Ends the program: something was done that CUDA does not define, or that is not known here. */
[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

} // namespace ptx
#endif
