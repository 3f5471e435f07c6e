/* Device memory: addresses that the host may keep but not use; what lies there is elsewhere. */
#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulator.h"

static std::map<u64, Region> regions;
static const Region *last_found; /* most accesses are to the memory of the one before */
constexpr u64 RESERVED = u64{1} << 36, PAGE = 4096;

void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fflush(stdout);
  fprintf(stderr, "AMD emulator: ");
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  fflush(stderr);
  va_end(arguments);
  _Exit(99);
}

void poison(uint8_t *data, u64 size) {
  for (u64 i = 0; i < size; ++i) data[i] = (uint8_t)(0xa5 + i * 37 + seed_of_order() * 91);
}

u64 allocate_device(u64 size) {
  static u64 next = 0, end = 0;
  if (!next) {
    void *all = mmap(nullptr, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) fail("no addresses for device memory");
    next = (u64)all, end = next + RESERVED;
  }
  u64 start = next + PAGE, taken = (size + 2 * PAGE - 1) / PAGE * PAGE;
  if (next + PAGE + taken >= end) return 0;
  next += PAGE + taken; /* never given out again: what was freed stays out of reach */
  uint8_t *data = (uint8_t *)malloc(size + 1);
  poison(data, size);
  regions[start] = {start, size, data, true};
  return start;
}

bool free_device(u64 address) {
  auto found = regions.find(address);
  if (found == regions.end() || !found->second.is_device) return false;
  free(found->second.data);
  free(found->second.words);
  last_found = nullptr;
  regions.erase(found);
  return true;
}

void add_host_region(u64 address, u64 size) { regions[address] = {address, size, (uint8_t *)address, false}; }

bool remove_host_region(u64 address) {
  auto found = regions.find(address);
  if (found == regions.end() || found->second.is_device) return false;
  free(found->second.words);
  last_found = nullptr;
  regions.erase(found);
  return true;
}

const Region *find_region(u64 address) {
  if (last_found && address - last_found->start < last_found->size) return last_found;
  auto behind = regions.upper_bound(address);
  if (behind == regions.begin()) return nullptr;
  const Region &region = std::prev(behind)->second;
  return address - region.start < region.size ? last_found = &region : nullptr;
}

uint8_t *reach(u64 address, u64 size) {
  const Region *region = find_region(address);
  if (!region || region->size - (address - region->start) < size) return nullptr;
  return region->data + (address - region->start);
}

std::vector<Region> all_regions() {
  std::vector<Region> found;
  for (auto &[start, region] : regions) found.push_back(region);
  return found;
}
