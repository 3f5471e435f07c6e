/* The PTX in a fat binary (layout: offload/container/fatbin.py). */
#include <dlfcn.h>

#include "cudart.h"

namespace ptx {

namespace {

struct __attribute__((packed)) Header {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;
};
struct __attribute__((packed)) Entry {
  uint16_t kind, unused;
  uint32_t header_size;
  uint64_t size;
  uint32_t compressed_size, options;
  uint16_t minor, major;
  uint32_t arch, name, name_size;
  uint64_t flags, key, inflated_size;
};
enum : uint64_t { kPtx = 1, kLz4 = 0x2000, kZstd = 0x8000 };

void *library_function(const char *library, const char *name) {
  void *handle = dlopen(library, RTLD_NOW);
  void *found = handle ? dlsym(handle, name) : nullptr;
  if (!found)
    stop("%s of %s is needed for a compressed image", name, library);
  return found;
}

std::string inflated(const char *from, const Entry &entry) {
  if (!(entry.flags & (kLz4 | kZstd)))
    return std::string(from, entry.size);
  std::string text(entry.inflated_size, '\0');
  if (entry.flags & kZstd) {
    auto *decompress = (size_t(*)(void *, size_t, const void *, size_t))library_function("libzstd.so.1", "ZSTD_decompress");
    text.resize(decompress(text.data(), text.size(), from, entry.compressed_size));
  } else {
    auto *decompress = (int (*)(const char *, char *, int, int))library_function("liblz4.so.1", "LZ4_decompress_safe");
    text.resize((size_t)decompress(from, text.data(), (int)entry.compressed_size, (int)text.size()));
  }
  return text;
}

} // namespace

std::string ptx_of_fat_binary(const void *data, int arch) {
  Header header;
  memcpy(&header, data, sizeof header);
  if (header.magic != 0xba55ed50)
    stop("a fat binary without its magic number");
  const char *at = (const char *)data + header.header_size, *end = at + header.size;
  std::string best;
  uint32_t best_arch = 0;
  while (at < end) {
    Entry entry;
    memcpy(&entry, at, sizeof entry);
    if (entry.kind == kPtx && (int)entry.arch <= arch && entry.arch > best_arch) {
      best = inflated(at + entry.header_size, entry);
      best_arch = entry.arch;
    }
    at += entry.header_size + entry.size;
  }
  return best;
}

} // namespace ptx
