/* Races in memory: accesses of one launch to the same bytes that nothing orders. Both emulators keep them. */
#ifndef RACE_H
#define RACE_H

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace race {

enum Purpose : uint8_t { kRead, kWrite, kAtomic };
inline const char *name_of(Purpose purpose) {
  return purpose == kRead ? "read" : purpose == kWrite ? "write" : "atomic operation";
}

/* One access. `released` is how often its block had made its writes visible before. */
struct Trace {
  uint32_t block, epoch, clock, released;
  uint16_t thread;
  uint8_t bytes, is_atomic; /* `bytes`: a bit for each byte of the word; 0: there was no access */
};
/* The last write of a word of four bytes, and two of its readers: who is forgotten is found in another order. */
struct Word {
  Trace write, reads[2];
};

/* The order that atomic operations and strong accesses make between the blocks of a launch. They are taken to
 * release all that their block did, and to acquire where another access of theirs came to the same place before:
 * more than PTX and LLVM promise, so that what is reported is a race. */
class Order {
public:
  uint32_t first_block = 1;

  void begin_launch(uint32_t blocks) {
    first_block = next_block;
    next_block += blocks;
    released.clear();
    touched.clear();
  }
  uint32_t released_by(uint32_t block) const {
    auto found = released.find(block);
    return found == released.end() ? 0 : (uint32_t)found->second.size();
  }
  void synchronize(uint32_t block, uint32_t &acquired, uint64_t address) {
    release(block);
    if (!touched.try_emplace(address, block).second)
      acquired = time;
  }
  /* Makes what a block did visible to all that acquire what there is now, or later. */
  void release(uint32_t block) { released[block].push_back(++time); }
  uint32_t now() const { return time; }
  bool is_earlier_launch(const Trace &before) const { return before.block < first_block; }
  bool is_visible(const Trace &before, uint32_t acquired) const {
    auto found = released.find(before.block);
    return found != released.end() && before.released < found->second.size() &&
           found->second[before.released] <= acquired;
  }

private:
  uint32_t next_block = 1, time = 0;
  std::unordered_map<uint32_t, std::vector<uint32_t>> released; /* when, by block */
  std::unordered_map<uint64_t, uint32_t> touched;               /* the first block, by address */
};

/* Keeps an access to a word; calls `found` with an earlier one that `is_ordered` does not order before it. A read
 * next to atomic operations, which are repeated where they find something else, is left alone, and so are writes of
 * the value that is there. */
template <class Ordered, class Found>
void note_word(Word &word, const Trace &own, Purpose purpose, bool writes_same, Ordered is_ordered, Found found) {
  auto check = [&](const Trace &before, Purpose earlier) {
    if ((before.bytes & own.bytes) && !is_ordered(before))
      found(before, before.is_atomic ? kAtomic : earlier);
  };
  if (purpose == kRead) {
    if (!word.write.is_atomic)
      check(word.write, kWrite);
    for (Trace &read : word.reads)
      if (!read.bytes || (read.block == own.block && read.thread == own.thread) || is_ordered(read)) {
        read = own;
        return;
      }
    word.reads[1] = own;
    return;
  }
  if (!writes_same && !(purpose == kAtomic && word.write.is_atomic))
    check(word.write, kWrite);
  if (!writes_same && purpose == kWrite)
    for (const Trace &read : word.reads)
      check(read, kRead);
  word.write = own;
}

/* Keeps an access to a range of bytes, word by word; `found` is called with the offset, too. */
template <class Ordered, class Found>
void note(Word *words, uint64_t at, uint64_t size, Trace own, Purpose purpose, bool writes_same, Ordered is_ordered,
          Found found) {
  for (uint64_t byte = at; byte < at + size;) {
    uint64_t end = byte / 4 * 4 + 4 < at + size ? byte / 4 * 4 + 4 : at + size;
    own.bytes = (uint8_t)((0xfu >> (4 - (end - byte))) << byte % 4);
    note_word(words[byte / 4], own, purpose, writes_same, is_ordered,
              [&](const Trace &before, Purpose earlier) { found(byte, before, earlier); });
    byte = end;
  }
}

} // namespace race
#endif
