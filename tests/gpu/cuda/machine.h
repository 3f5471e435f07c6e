/* The state of a GPU that runs PTX: memory, and the threads of a launch. */
#ifndef MACHINE_H
#define MACHINE_H

#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <unordered_map>
#include <vector>

#include "../race.h"
#include "ptx.h"

namespace ptx {

/* What may be set from outside, read once. */
struct Settings {
  uint64_t seed = 0; /* 0: threads run in order */
  uint64_t most_steps = 0;
  int arch = 90;
  int devices = 1;
};
const Settings &settings();

/* Device memory ---------------------------------------------------------------------------- */

struct Allocation {
  uint64_t begin = 0, size = 0;
  uint8_t *bytes = nullptr; /* where they are for the interpreter */
  enum Kind : uint8_t { device, managed, host, constant } kind = device;
  bool is_freed = false, is_async = false;
  race::Word *words = nullptr; /* who read and wrote them */
};

/* Memory of the device has addresses that the host cannot touch; they are never used again. */
Allocation *allocate(uint64_t size, uint64_t align, Allocation::Kind kind);
Allocation *register_host(void *pointer, uint64_t size);
void forget_host(void *pointer);
Allocation *find_allocation(uint64_t address);

/* Launches --------------------------------------------------------------------------------- */

struct Block;
struct Thread;

using Clocks = std::vector<uint32_t>;

struct SharedRange {
  uint64_t begin, size;
  uint32_t at; /* in the bytes of the block */
};

/* A kernel as it is launched: what it needs of workgroup memory. */
struct Kernel {
  const Function *function = nullptr;
  std::vector<SharedRange> ranges; /* by address; the last one is the dynamic part */
  uint32_t static_bytes = 0;
  bool needs_clocks = false;
};
const Kernel &kernel_of(const Function &);

struct Launch {
  const Kernel *kernel = nullptr;
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  uint32_t dynamic_shared = 0;
  bool is_cooperative = false;
  std::vector<uint8_t> params;
};

enum Status : int { kSuccess = 0, kAssert = 710, kTrap = 719 };
int run_launch(const Launch &);
void flush_output();
void print_to_host(const std::string &text);

enum class State : uint8_t { ready, warp, barrier, cluster, ended };

struct Frame {
  const Function *function;
  const Inst *back;
  uint64_t registers, params, local; /* where those of the caller begin */
};

struct Copy { /* cp.async */
  uint64_t target, source;
  uint32_t size, read;
};

struct Thread {
  uint64_t *registers = nullptr;
  const uint64_t *constants = nullptr;
  const Inst *next = nullptr;
  const Function *function = nullptr;
  Block *block = nullptr;
  uint32_t number = 0, lane = 0, warp = 0;
  uint32_t at[3] = {};
  State state = State::ready;
  int64_t budget = 0;
  uint64_t steps = 0;

  const Inst *waits_at = nullptr;
  uint32_t mask = 0;
  uint32_t barrier = 0, barrier_count = 0;
  bool barrier_value = false;

  std::vector<uint64_t> register_stack;
  uint64_t register_base = 0;
  std::vector<uint8_t> param_stack, local_stack;
  uint64_t param_base = 0, local_base = 0;
  std::vector<Frame> frames;
  Allocation *last = nullptr;
  Clocks clocks; /* what it knows of the others; empty: nothing but its own */
  uint32_t clock = 1;
  std::vector<Copy> copies;
  std::vector<std::vector<Copy>> groups;
  uint32_t carry = 0, cluster_phase = 0;

  const uint64_t &get(int32_t operand) const { return operand >= 0 ? registers[operand] : constants[~operand]; }
};

struct Access {
  uint32_t epoch, clock;
  uint16_t thread, kind; /* kind: 0 none, 1 plain, 2 atomic, 3 read by several */
};
struct Shadow {
  Access write, read;
};

struct Barrier {
  std::vector<Thread *> waiting;
  uint32_t count = 0, arrived = 0;
  std::vector<uint32_t> by_warp;
  Clocks clocks;
};

struct Block {
  const Launch *launch = nullptr;
  struct Gang *gang = nullptr;
  uint32_t at[3] = {}, rank = 0, cluster_at[3] = {};
  uint32_t size = 0, ended = 0;
  std::vector<Thread> threads;
  std::vector<uint8_t> shared;
  std::vector<Shadow> shadow;
  std::unordered_map<uint32_t, std::vector<Access>> readers;
  uint32_t epoch = 1, id = 0, acquired = 0; /* `acquired`: when, see ../race.h */
  Barrier barriers[16];
  std::unordered_map<uint64_t, Clocks> released; /* by address in workgroup memory */
  std::unordered_map<uint64_t, std::vector<std::function<void()>>> arriving; /* bulk copies, by mbarrier */
};

/* Blocks that run at the same time: one, a cluster, or all of a cooperative launch. */
struct Gang {
  std::vector<Block> blocks;
  uint32_t cluster_waiting = 0, cluster_phase = 0;
  int status = kSuccess;
};

/* An error of the program: ends it with the place. */
[[noreturn]] void fault(const Thread &, const Inst &, const char *format, ...) __attribute__((format(printf, 3, 4)));

enum Purpose : uint8_t { kRead, kWrite, kAtomic };
/* Checks an access and returns where its bytes are. */
uint8_t *resolve(Thread &, const Inst &, Space, uint64_t address, uint32_t size, Purpose);
uint64_t shared_size(const Block &);

/* Races in global memory. */
void begin_launch(uint32_t blocks);
uint32_t block_id(uint32_t number);
void synchronize_blocks(Gang &);
void note_global(Thread &, const Inst &, Allocation &, uint64_t at, uint32_t size, Purpose, bool writes_same);

Step wait_for_warp(Thread &, const Inst &, uint32_t mask);
Step wait_at_barrier(Thread &, const Inst &, uint32_t number, uint32_t count, bool is_waiting);
void acquire(Thread &, const Clocks &);
void release(Thread &, Clocks &);
uint64_t address_of(const Thread &, const Inst &);
void enter(Thread &, const Function &, uint64_t registers, uint64_t params, uint64_t local);
void end_thread(Thread &);
void complete_barrier(Block &, Barrier &);
Step call_builtin(Thread &, const Inst &, const char *name);

} // namespace ptx
#endif
