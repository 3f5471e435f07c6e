/* The memory around the first blocks of a launch, for an interpreter of machine code to compare with.
 *
 * AMD_EMULATOR_RECORD names a folder, AMD_EMULATOR_BLOCKS how many blocks are recorded. Of the first launch of a
 * kernel, KERNEL.launch describes what is launched and where the memory is; KERNEL.before and KERNEL.after are its
 * bytes, region after region. */
#include <cstdio>
#include <cstdlib>
#include <set>

#include "emulator.h"

namespace {

std::string folder() {
  const char *named = getenv("AMD_EMULATOR_RECORD");
  return named ? named : "";
}

FILE *create(const std::string &name, const char *suffix) {
  FILE *file = fopen((folder() + "/" + name + suffix).c_str(), "wb");
  if (!file) fail("cannot write the record of %s", name.c_str());
  return file;
}

void write_memory(const std::string &name, const char *suffix) {
  FILE *file = create(name, suffix);
  for (const Region &region : all_regions()) fwrite(region.data, 1, region.size, file);
  fclose(file);
}

} // namespace

Recording::Recording(const Launch &launch) {
  static auto *seen = new std::set<std::string>();
  if (folder().empty() || !seen->insert(launch.kernel->name).second) return;
  const char *asked = getenv("AMD_EMULATOR_BLOCKS");
  name = launch.kernel->name, left = asked ? strtoull(asked, nullptr, 10) : ~u64{0};
  FILE *file = create(name, ".launch");
  fprintf(file, "%u %u %u\n%u %u %u\n", launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1],
          launch.block[2]);
  fprintf(file, "%llu %llu %llu\n", (unsigned long long)launch.dynamic, (unsigned long long)launch.arguments,
          (unsigned long long)launch.packet);
  for (const Region &region : all_regions())
    fprintf(file, "%llu %llu\n", (unsigned long long)region.start, (unsigned long long)region.size);
  fclose(file);
  write_memory(name, ".before");
}

void Recording::count_block() {
  if (name.empty() || --left) return;
  write_memory(name, ".after");
  name.clear();
}

Recording::~Recording() {
  if (!name.empty()) write_memory(name, ".after");
}
