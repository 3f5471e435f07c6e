/* Races in global memory. */
#include <cstdlib>

#include "machine.h"

namespace ptx {

static race::Order &current() {
  static auto *made = new race::Order(); /* never destroyed: programs still call at their exit */
  return *made;
}

void begin_launch(uint32_t blocks) { current().begin_launch(blocks); }

uint32_t block_id(uint32_t number) { return current().first_block + number; }

void synchronize_blocks(Gang &gang) {
  for (const Block &block : gang.blocks)
    current().release(block.id);
  for (Block &block : gang.blocks)
    block.acquired = current().now();
}

static bool is_ordered(const Thread &thread, const race::Trace &before) {
  const Block &block = *thread.block;
  if (current().is_earlier_launch(before) || current().is_visible(before, block.acquired))
    return true;
  if (before.block != block.id)
    return false;
  return before.epoch != block.epoch || before.thread == thread.number ||
         (before.thread < thread.clocks.size() && before.clock <= thread.clocks[before.thread]);
}

void note_global(Thread &thread, const Inst &inst, Allocation &memory, uint64_t at, uint32_t size, Purpose purpose,
                 bool writes_same) {
  enum { kStrong = 128 };
  Block &block = *thread.block;
  if (inst.flags & kStrong)
    return current().synchronize(block.id, block.acquired, memory.begin + at);
  if (!memory.words) /* zero, and taken from the system where it is used */
    memory.words = (race::Word *)calloc(memory.size / 4 + 1, sizeof(race::Word));
  race::Trace own = {block.id, block.epoch, thread.clock, current().released_by(block.id), (uint16_t)thread.number, 0,
                     purpose == kAtomic};
  race::note(
      memory.words, at, size, own, (race::Purpose)purpose, writes_same,
      [&](const race::Trace &before) { return is_ordered(thread, before); },
      [&](uint64_t byte, const race::Trace &before, race::Purpose earlier) {
        fault(thread, inst,
              "data race at offset %llu of global memory of %llu bytes: %s here, %s by thread %u of %s block, and "
              "nothing orders them",
              (unsigned long long)byte, (unsigned long long)memory.size, race::name_of((race::Purpose)purpose),
              race::name_of(earlier), before.thread, before.block == block.id ? "this" : "another");
      });
  if (purpose == kAtomic)
    current().synchronize(block.id, block.acquired, memory.begin + at);
}

} // namespace ptx
