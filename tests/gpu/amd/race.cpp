/* Races in device and workgroup memory, between the waves of a launch. The lanes of a wave run in lockstep, and are not compared. */
#include "emulator.h"

static race::Order order;

void begin_races(uint32_t blocks) { order.begin_launch(blocks); }

uint32_t number_for_races(u64 number) { return order.first_block + (uint32_t)number; }

static bool is_ordered(const Wave &wave, const race::Trace &before) {
  const Workgroup &group = *wave.group;
  if (order.is_earlier_launch(before) || order.is_visible(before, group.acquired)) return true;
  return before.block == group.number && (before.epoch != group.epoch || before.thread == wave.first);
}

/* The number of each word of workgroup memory among those of all blocks, for what atomic operations order. */
static u64 place_of(const Workgroup &group, u64 address) { return SHARED_APERTURE | u64{group.number} << 20 | address; }

static std::optional<Race> note_words(const Wave &wave, race::Word *words, u64 at, u64 place, u64 size,
                                      race::Purpose purpose, bool is_strong, bool writes_same) {
  Workgroup &group = *wave.group;
  std::optional<Race> race;
  if (!is_strong) {
    race::Trace own = {group.number, group.epoch, 0, order.released_by(group.number), (uint16_t)wave.first, 0,
                       purpose == race::kAtomic};
    race::note(
        words, at, size, own, purpose, writes_same,
        [&](const race::Trace &before) { return is_ordered(wave, before); },
        [&](u64, const race::Trace &before, race::Purpose earlier) {
          race = Race{earlier, before.thread, before.block == group.number};
        });
  }
  if (is_strong || purpose == race::kAtomic) order.synchronize(group.number, group.acquired, place);
  return race;
}

std::optional<Race> note_access(const Wave &wave, u64 address, u64 size, race::Purpose purpose, bool is_strong,
                                bool writes_same) {
  const Region *region = find_region(address);
  if (!region) return {};
  if (!region->words && !is_strong) region->words = (race::Word *)calloc(region->size / 4 + 1, sizeof(race::Word));
  return note_words(wave, region->words, address - region->start, address, size, purpose, is_strong, writes_same);
}

std::optional<Race> note_workgroup_access(const Wave &wave, u64 address, u64 size, race::Purpose purpose,
                                          bool is_strong, bool writes_same) {
  Workgroup &group = *wave.group;
  if (group.words.empty()) group.words.resize(group.memory.size() / 4 + 1);
  u64 place = place_of(group, address);
  return note_words(wave, group.words.data(), address, place, size, purpose, is_strong, writes_same);
}
