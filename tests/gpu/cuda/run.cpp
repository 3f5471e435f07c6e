/* Runs a launch: block after block, the threads of a block in order or in a random one. */
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>
#include <unistd.h>

#include "number.h"

namespace ptx {

namespace {
uint64_t number_of(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}
enum { kExitStatus = 97 };
} // namespace

const Settings &settings() {
  static const Settings made = {number_of("PTX_SEED", 0), number_of("PTX_STEPS", 2000000000ull),
                                (int)number_of("PTX_ARCH", 90), (int)number_of("PTX_DEVICES", 1)};
  return made;
}

void stop(const char *format, ...) {
  fflush(stdout);
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "ptx: error: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  _exit(kExitStatus);
}

namespace {
std::string text_of(const Inst &inst) {
  if (!inst.raw)
    return "the end of the function";
  std::string text = inst.raw->opcode;
  for (const std::string &modifier : inst.raw->modifiers)
    text += "." + modifier;
  return text + " in line " + std::to_string(inst.raw->line);
}
} // namespace

void fault(const Thread &t, const Inst &inst, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  flush_output();
  stop("%s\n  %s of %s, block (%u, %u, %u), thread (%u, %u, %u)", text, text_of(inst).c_str(), t.function->name.c_str(),
       t.block->at[0], t.block->at[1], t.block->at[2], t.at[0], t.at[1], t.at[2]);
}

/* Warps -------------------------------------------------------------------------------------- */

namespace {

/* The threads of the warp that a mask means and that have not ended; null if one is still on its way. */
bool gather(Thread &t, Thread **lanes, uint32_t &present) {
  Block &block = *t.block;
  present = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    lanes[lane] = nullptr;
    uint32_t number = t.warp * 32 + lane;
    if (!(t.mask >> lane & 1) || number >= block.size || block.threads[number].state == State::ended)
      continue;
    Thread &other = block.threads[number];
    if (other.state != State::warp || other.waits_at->key != t.waits_at->key || other.mask != t.mask)
      return false;
    lanes[lane] = &other;
    present |= 1u << lane;
  }
  return true;
}

bool try_warp(Thread &t) {
  Thread *lanes[32];
  uint32_t present;
  if (!t.mask || !gather(t, lanes, present))
    return false;
  t.waits_at->meet(lanes, present);
  for (Thread *lane : lanes)
    if (lane)
      lane->state = State::ready;
  return true;
}

/* Lets the threads go on that wait in activemask: nothing else of their warp can run. */
bool release_active(Block &block, std::mt19937_64 &random) {
  bool is_any = false;
  for (uint32_t warp = 0; warp * 32 < block.size; ++warp) {
    std::map<const Inst *, uint32_t> groups;
    for (uint32_t number = warp * 32; number < block.size && number < warp * 32 + 32; ++number)
      if (block.threads[number].state == State::warp && !block.threads[number].mask)
        groups[block.threads[number].waits_at] |= 1u << (number & 31);
    for (auto &group : groups) {
      uint32_t chosen = settings().seed ? (uint32_t)random() & group.second : group.second;
      for (uint32_t part : {chosen, group.second & ~chosen}) {
        Thread *lanes[32] = {};
        for (uint32_t lane = 0; lane < 32; ++lane)
          if (part >> lane & 1)
            lanes[lane] = &block.threads[warp * 32 + lane];
        if (part)
          group.first->meet(lanes, part), is_any = true;
        for (Thread *lane : lanes)
          if (lane)
            lane->state = State::ready;
      }
    }
  }
  return is_any;
}

} // namespace

Step wait_for_warp(Thread &t, const Inst &i, uint32_t mask) {
  if (mask && !(mask >> t.lane & 1))
    fault(t, i, "the mask 0x%08x is without the lane %u itself", mask, t.lane);
  t.state = State::warp;
  t.waits_at = &i;
  t.mask = mask;
  return try_warp(t) ? kNext : kStop;
}

/* Barriers ----------------------------------------------------------------------------------- */

namespace {

bool is_aligned(const Inst &i) { return i.raw->opcode == "bar" || i.raw->has("aligned"); }

void check_alignment(Thread &t, const Inst &i, const Barrier &barrier) {
  if (is_aligned(i))
    for (Thread *other : barrier.waiting)
      if (other->warp == t.warp && other->waits_at != &i)
        fault(t, i, "divergent barrier: thread %u of the same warp waits at %s", other->number,
              text_of(*other->waits_at).c_str());
}

void end_barrier(Block &block, Barrier &barrier) {
  complete_barrier(block, barrier);
  bool is_whole = barrier.waiting.size() == block.size;
  if (is_whole)
    ++block.epoch;
  else if (block.launch->kernel->needs_clocks)
    for (Thread *t : barrier.waiting)
      acquire(*t, barrier.clocks);
  barrier.waiting.clear();
  barrier.clocks.clear();
  barrier.arrived = barrier.count = 0;
  barrier.by_warp.clear();
}

} // namespace

Step wait_at_barrier(Thread &t, const Inst &i, uint32_t number, uint32_t count, bool is_waiting) {
  Block &block = *t.block;
  Barrier &barrier = block.barriers[number];
  uint32_t warps = (block.size + 31) / 32;
  if (!count && block.ended && block.gang->status == kSuccess)
    fault(t, i, "divergent barrier: %u threads of the block have ended without it", block.ended);
  if (barrier.arrived && barrier.count != count)
    fault(t, i, "barrier %u of %u threads, for which others wait with %u", number, count, barrier.count);
  check_alignment(t, i, barrier);
  barrier.count = count;
  barrier.by_warp.resize(warps);
  ++barrier.arrived;
  if (block.launch->kernel->needs_clocks)
    release(t, barrier.clocks);
  t.waits_at = &i;
  if (is_waiting) {
    t.state = State::barrier;
    barrier.waiting.push_back(&t);
  }
  /* Warps count as a whole, as soon as all of their threads are there. */
  ++barrier.by_warp[t.warp];
  uint32_t arrived = 0;
  for (uint32_t warp = 0; warp < warps; ++warp) {
    uint32_t lanes = warp + 1 == warps ? block.size - warp * 32 : 32;
    arrived += barrier.by_warp[warp] / lanes * 32;
  }
  if (arrived < (count ? count : warps * 32))
    return is_waiting ? kStop : kNext;
  end_barrier(block, barrier);
  return kNext;
}

void end_thread(Thread &t) {
  Block &block = *t.block;
  t.state = State::ended;
  ++block.ended;
  for (const Barrier &barrier : block.barriers)
    for (Thread *other : barrier.waiting)
      if (!barrier.count && block.gang->status == kSuccess)
        fault(*other, *other->waits_at, "divergent barrier: thread %u of the block has ended without it", t.number);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t number = t.warp * 32 + lane;
    if (number < block.size && block.threads[number].state == State::warp)
      try_warp(block.threads[number]);
  }
}

/* Threads ------------------------------------------------------------------------------------ */

namespace {

void run_thread(Thread &t, int64_t budget) {
  t.budget = budget;
  while (t.budget-- > 0) {
    const Inst &inst = *t.next++;
    if (inst.predicate >= 0 && (t.registers[inst.predicate] & 1) == (uint64_t)inst.is_negated)
      continue;
    if (inst.run(t, inst) == kStop)
      break;
  }
  t.steps += (uint64_t)(budget - t.budget);
}

[[noreturn]] void deadlock(Gang &gang) {
  for (Block &block : gang.blocks)
    for (Thread &t : block.threads)
      if (t.state != State::ended)
        fault(t, *t.waits_at, "the block cannot go on: %s",
              t.state == State::barrier ? "divergent barrier, which not all threads reach"
                                        : "threads wait for others of their warp that do something else");
  stop("the launch cannot go on");
}

bool release_cluster(Gang &gang, uint32_t live) {
  if (!gang.cluster_waiting || gang.cluster_waiting < live)
    return false;
  gang.cluster_waiting = 0;
  ++gang.cluster_phase;
  synchronize_blocks(gang);
  for (Block &block : gang.blocks) {
    ++block.epoch;
    for (Thread &t : block.threads)
      if (t.state == State::cluster)
        t.state = State::ready;
  }
  return true;
}

void run_gang(Gang &gang, std::mt19937_64 &random, uint64_t &steps) {
  std::vector<Thread *> order;
  for (Block &block : gang.blocks)
    for (Thread &t : block.threads)
      order.push_back(&t);
  const bool is_random = settings().seed != 0;
  static const int64_t budgets[] = {2, 7, 40, 300, 100000};
  for (;;) {
    uint32_t live = 0;
    bool is_moving = false;
    if (is_random)
      std::shuffle(order.begin(), order.end(), random);
    for (Thread *t : order) {
      if (t->state == State::ended)
        continue;
      ++live;
      if (t->state != State::ready)
        continue;
      uint64_t before = t->steps;
      run_thread(*t, is_random ? budgets[random() % 5] : 100000);
      steps += t->steps - before;
      is_moving = true;
      if (gang.status == kTrap)
        return;
    }
    if (!live)
      return;
    if (steps > settings().most_steps)
      fault(*order[0], *order[0]->next, "the launch does not end within %llu steps", (unsigned long long)settings().most_steps);
    if (release_cluster(gang, live) || is_moving)
      continue;
    bool is_any = false;
    for (Block &block : gang.blocks)
      is_any |= release_active(block, random);
    if (is_any)
      continue;
    if (gang.status != kSuccess)
      return; /* threads wait for one whose assertion failed */
    deadlock(gang);
  }
}

void start_block(Block &block, Gang &gang, const Launch &launch, uint64_t number, uint32_t rank) {
  block.launch = &launch, block.gang = &gang, block.rank = rank;
  block.at[0] = (uint32_t)(number % launch.grid[0]);
  block.at[1] = (uint32_t)(number / launch.grid[0] % launch.grid[1]);
  block.at[2] = (uint32_t)(number / launch.grid[0] / launch.grid[1]);
  for (int axis = 0; axis < 3; ++axis)
    block.cluster_at[axis] = block.at[axis] % launch.cluster[axis];
  block.size = launch.block[0] * launch.block[1] * launch.block[2];
  block.ended = 0;
  block.id = block_id((uint32_t)number), block.acquired = 0;
  ++block.epoch;
  uint32_t bytes = launch.kernel->static_bytes + launch.dynamic_shared + 16;
  block.shared.resize(bytes);
  memset(block.shared.data(), (int)(0xd1 + settings().seed * 37) & 255, bytes);
  block.shadow.resize(bytes);
  block.readers.clear();
  block.released.clear();
  block.arriving.clear();
  for (Barrier &barrier : block.barriers)
    barrier = Barrier();
  block.threads.resize(block.size);
  for (uint32_t i = 0; i < block.size; ++i) {
    Thread &t = block.threads[i];
    t.block = &block, t.number = i, t.lane = i % 32, t.warp = i / 32;
    t.at[0] = i % launch.block[0];
    t.at[1] = i / launch.block[0] % launch.block[1];
    t.at[2] = i / launch.block[0] / launch.block[1];
    t.state = State::ready;
    t.waits_at = nullptr;
    t.last = nullptr;
    t.frames.clear();
    t.clocks.clear();
    t.clock = 1;
    t.copies.clear();
    t.groups.clear();
    t.cluster_phase = 0;
    t.param_stack.assign(launch.params.begin(), launch.params.end());
    t.local_stack.clear();
    enter(t, *launch.kernel->function, 0, 0, 0);
  }
}

void gather_shared(const Function &function, std::set<const Function *> &seen, std::set<const Variable *> &found,
                   bool &needs_clocks) {
  if (!seen.insert(&function).second)
    return;
  found.insert(function.shared.begin(), function.shared.end());
  needs_clocks |= function.has_partial_sync;
  for (const Function *callee : function.callees)
    gather_shared(*callee, seen, found, needs_clocks);
}

uint64_t block_number(const Launch &launch, uint64_t cluster, uint32_t rank) {
  const uint32_t *c = launch.cluster, *g = launch.grid;
  uint64_t x = cluster % (g[0] / c[0]) * c[0] + rank % c[0];
  uint64_t y = cluster / (g[0] / c[0]) % (g[1] / c[1]) * c[1] + rank / c[0] % c[1];
  uint64_t z = cluster / (g[0] / c[0]) / (g[1] / c[1]) * c[2] + rank / c[0] / c[1];
  return (z * g[1] + y) * g[0] + x;
}

} // namespace

const Kernel &kernel_of(const Function &function) {
  static std::map<const Function *, Kernel> known;
  Kernel &kernel = known[&function];
  if (kernel.function)
    return kernel;
  kernel.function = &function;
  std::set<const Function *> seen;
  std::set<const Variable *> found;
  gather_shared(function, seen, found, kernel.needs_clocks);
  uint32_t used = 0;
  for (const Variable *variable : found)
    if (variable->size) {
      used = (uint32_t)((used + variable->align - 1) / variable->align * variable->align);
      kernel.ranges.push_back({variable->address, variable->size, used});
      used += (uint32_t)variable->size;
    }
  used = (used + 15) / 16 * 16;
  kernel.static_bytes = used;
  kernel.ranges.push_back({function.module->image->shared_end, 0, used});
  return kernel;
}

int run_launch(const Launch &launch) {
  std::mt19937_64 random(settings().seed);
  uint64_t blocks = (uint64_t)launch.grid[0] * launch.grid[1] * launch.grid[2];
  uint32_t together = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
  if (launch.is_cooperative)
    together = (uint32_t)blocks;
  std::vector<uint64_t> order(blocks / together);
  std::iota(order.begin(), order.end(), 0);
  if (settings().seed)
    std::shuffle(order.begin(), order.end(), random);
  Gang gang;
  gang.blocks.resize(together);
  uint64_t steps = 0;
  begin_launch((uint32_t)blocks);
  for (uint64_t first : order) {
    gang.cluster_waiting = gang.cluster_phase = 0;
    for (uint32_t rank = 0; rank < together; ++rank)
      start_block(gang.blocks[rank], gang, launch, launch.is_cooperative ? rank : block_number(launch, first, rank), rank);
    run_gang(gang, random, steps);
    if (gang.status != kSuccess)
      break;
  }
  if (getenv("PTX_COUNT"))
    fprintf(stderr, "ptx: %s: %llu steps\n", launch.kernel->function->name.c_str(), (unsigned long long)steps);
  return gang.status;
}

} // namespace ptx
