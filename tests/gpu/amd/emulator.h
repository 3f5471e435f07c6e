/* An AMD GPU for tests: executes the LLVM IR that the device link embeds in a code object.
 *
 * A wave runs in lockstep: one instruction for all lanes that are active (EXEC). Where lanes take different
 * ways, the block that comes first in an order that keeps loops together runs first, so that lanes meet
 * again where their ways join. Each wave has a stack of its own, and waits there at barriers.
 */
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../race.h"
#include "llvm_c.h"

typedef uint64_t u64;
constexpr int LANES = 64;

/* Ends the program with what is wrong with the device code, or with what it does. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- memory.cpp: device memory, which the host cannot touch ------------------------------------- */

struct Region {
  u64 start, size;
  uint8_t *data;
  bool is_device;
  mutable race::Word *words = nullptr; /* who read and wrote them */
};
u64 allocate_device(u64 size);
bool free_device(u64 address);
void add_host_region(u64 address, u64 size);
bool remove_host_region(u64 address);
const Region *find_region(u64 address);
/* Returns where the bytes are, NULL where they are not all of one region. */
uint8_t *reach(u64 address, u64 size);
void poison(uint8_t *data, u64 size);
std::vector<Region> all_regions();

/* --- decode.cpp: functions as the interpreter reads them ----------------------------------------- */

enum class Kind : uint8_t { INT, HALF, BFLOAT, FLOAT, DOUBLE, POINTER };

/* A number that a value consists of; `offset` is its first byte in memory, `shift` its first bit there. */
struct Part {
  Kind kind;
  uint16_t bits;
  uint8_t space;
  uint32_t offset;
  uint8_t shift;
};
struct Shape {
  std::vector<Part> parts;
  u64 size, stored; /* with and without the bytes that fill it up */
};

/* A value: its first part in the registers of the function, or among the constants. */
struct Operand {
  bool is_constant;
  uint32_t index;
};
struct Copy {
  Operand from;
  uint32_t to, parts;
};
struct Edge {
  int block;
  std::vector<Copy> copies;
};
struct Scaled {
  Operand index;
  int64_t by;
  uint16_t bits;
};
struct Function;
struct Instruction;
struct Wave;
struct Frame;
typedef void (*Builtin)(Wave &, Frame &, const Instruction &, u64 mask);

struct Instruction {
  int opcode;
  const Shape *shape, *operand_shape;
  uint32_t result;
  std::vector<Operand> operands;
  int detail;                   /* predicate, operation, space */
  std::vector<int64_t> numbers; /* offsets, masks, cases */
  std::vector<Scaled> scaled;
  std::vector<Edge> edges;
  const Function *callee;
  Builtin builtin;
  LLVMValueRef source;
  bool is_strong; /* atomic or volatile */
};
struct Block {
  std::vector<Instruction> instructions;
};
struct Function {
  std::string name;
  LLVMValueRef source;
  std::vector<Block> blocks;
  std::vector<Operand> parameters;
  std::vector<const Shape *> shapes;
  const Shape *result;
  uint32_t registers;
  bool is_decoded;
};

struct Module {
  LLVMModuleRef module;
  LLVMTargetDataRef layout;
  int wave_size;
  std::map<std::string, Function> functions;
  std::map<LLVMValueRef, Function *> by_value;
  std::map<LLVMValueRef, u64> addresses; /* of globals */
  std::map<std::string, std::pair<u64, u64>> variables;
  std::vector<std::pair<u64, u64>> workgroup_memory; /* begin and end of each variable */
  u64 workgroup_size;
  std::map<LLVMTypeRef, std::unique_ptr<Shape>> shapes;
};
std::unique_ptr<Module> load_module(const char *bitcode, size_t size, int wave_size);
/* The kernel, NULL where there is none. */
Function *find_kernel(Module &, const std::string &name);
void decode(Module &, Function &);
const Shape *shape_of(Module &, LLVMTypeRef);
void store_part(uint8_t *bytes, const Part &, u64 bits);
u64 *constant(uint32_t index);

/* --- wave.cpp ------------------------------------------------------------------------------------- */

struct Launch {
  Module *module;
  Function *kernel;
  uint32_t grid[3], block[3]; /* blocks, threads */
  u64 dynamic;
  u64 arguments, implicit, packet; /* addresses in device memory */
};
void run_launch(const Launch &);

/* --- record.cpp: what a launch found in memory, and what its first blocks left there ---------------- */

class Recording {
public:
  explicit Recording(const Launch &);
  ~Recording();
  void count_block();

private:
  std::string name; /* empty: not asked for, or complete */
  u64 left = 0;
};

struct Workgroup {
  const Launch *launch;
  uint32_t id[3];
  std::vector<uint8_t> memory;
  std::vector<char> is_variable; /* by byte: accesses between variables are out of bounds */
  uint32_t number, epoch, acquired; /* see ../race.h */
  std::vector<race::Word> words;    /* who read and wrote its memory; empty before the first access */
};
struct Frame {
  const Function *function;
  std::vector<u64> registers;
  u64 *at(Operand value, int part = 0) {
    return value.is_constant ? constant(value.index + part) : &registers[(value.index + part) * LANES];
  }
};
struct Wave {
  Workgroup *group;
  uint32_t first; /* the number of its first thread */
  u64 lanes;      /* that exist */
  u64 live;       /* that have not returned from the kernel */
  std::vector<uint8_t> stack[LANES];
  u64 stack_top;
  const Instruction *at;
  int lane; /* that is at work, for messages */
};
/* Waits for the other waves of the group at a barrier. */
void wait_at_barrier(Wave &, const Instruction &);
/* Returns the bytes that a pointer of an address space means to a lane. */
uint8_t *access(Wave &, int lane, u64 pointer, int space, u64 size);
uint32_t thread_of(const Wave &, int lane, int axis);
/* Ends the program for a race in memory. */
void check_race(Wave &, int lane, u64 pointer, int space, u64 size, race::Purpose, bool is_strong, bool writes_same);

/* --- race.cpp: accesses that nothing orders ------------------------------------------------------ */

struct Race {
  race::Purpose earlier;
  uint32_t first; /* the number of the first thread of the other wave */
  bool is_same_block;
};
void begin_races(uint32_t blocks);
uint32_t number_for_races(u64 block);
std::optional<Race> note_access(const Wave &, u64 address, u64 size, race::Purpose, bool is_strong, bool writes_same);
/* The same for an address within workgroup memory. */
std::optional<Race> note_workgroup_access(const Wave &, u64 address, u64 size, race::Purpose, bool is_strong,
                                          bool writes_same);

/* --- builtin.cpp ---------------------------------------------------------------------------------- */

/* Returns what executes the function, NULL where it is not known. */
Builtin find_builtin(const std::string &name);
/* Returns the address of what kernels leave messages to the host in. */
u64 hostcall_buffer();

/* Where pointers to workgroup and private memory lie among all others. */
constexpr u64 SHARED_APERTURE = u64{0x8100} << 48, PRIVATE_APERTURE = u64{0x8200} << 48;

double as_double(u64 bits, const Part &);
u64 from_double(double, const Part &);
int64_t as_signed(u64 bits, int width);
inline u64 masked(u64 bits, int width) { return width >= 64 ? bits : bits & ((u64{1} << width) - 1); }

#define EACH_LANE(lane, mask)                                                                          \
  for (u64 mo_rest = (mask); mo_rest; mo_rest &= mo_rest - 1)                                          \
    for (int lane = __builtin_ctzll(mo_rest), mo_once = 1; mo_once; mo_once = 0)

/* 0: blocks, waves and lanes in their order; another number: in one of many random orders. */
u64 seed_of_order();
uint32_t random_below(uint32_t);
