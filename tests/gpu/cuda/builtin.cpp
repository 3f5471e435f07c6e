/* Functions that the driver brings along: printf, assertions, memory. */
#include <cstdio>
#include <string>

#include "machine.h"

namespace ptx {

namespace {

/* What kernels print waits, as in the buffer of the device, until the host synchronises. */
std::string &output() {
  static auto *made = new std::string(); /* never destroyed: programs still call at their exit */
  return *made;
}

template <class T> T argument(Thread &t, const Inst &i, uint32_t at) {
  T value;
  memcpy(&value, &t.param_stack[t.param_base + (uint64_t)i.list[(uint32_t)i.target + at]], sizeof value);
  return value;
}
template <class T> void result(Thread &t, const Inst &i, T value) {
  if (i.target)
    memcpy(&t.param_stack[t.param_base + (uint64_t)i.list[0]], &value, sizeof value);
}

std::string string_at(Thread &t, const Inst &i, uint64_t address) {
  std::string text;
  while (char c = (char)*resolve(t, i, Space::generic, address++, 1, kRead))
    text += c;
  return text;
}

uint64_t packed(Thread &t, const Inst &i, uint64_t &at, unsigned size) {
  at = (at + size - 1) / size * size;
  uint64_t value = 0;
  memcpy(&value, resolve(t, i, Space::generic, at, size, kRead), size);
  at += size;
  return value;
}

/* One conversion of a format, without its length: the arguments are in the buffer, each at its alignment. */
std::string converted(Thread &t, const Inst &i, std::string conversion, uint64_t &at, int longs) {
  char letter = conversion.back(), text[512];
  conversion.pop_back();
  if (strchr("eEfFgGaA", letter)) {
    uint64_t bits = packed(t, i, at, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    snprintf(text, sizeof text, (conversion + letter).c_str(), value);
  } else if (letter == 's') {
    uint64_t address = packed(t, i, at, 8);
    return string_at(t, i, address);
  } else if (letter == 'p') {
    snprintf(text, sizeof text, "0x%llx", (unsigned long long)packed(t, i, at, 8));
  } else if (letter == 'c') {
    snprintf(text, sizeof text, (conversion + letter).c_str(), (int)packed(t, i, at, 4));
  } else if (longs) {
    snprintf(text, sizeof text, (conversion + "ll" + letter).c_str(), packed(t, i, at, 8));
  } else {
    snprintf(text, sizeof text, (conversion + letter).c_str(), (int)packed(t, i, at, 4));
  }
  return text;
}

int print(Thread &t, const Inst &i) {
  std::string format = string_at(t, i, argument<uint64_t>(t, i, 0)), text;
  uint64_t at = argument<uint64_t>(t, i, 1);
  int count = 0;
  for (size_t c = 0; c < format.size(); ++c) {
    if (format[c] != '%' || format[c + 1] == '%') {
      text += format[c];
      c += format[c] == '%';
      continue;
    }
    std::string conversion;
    int longs = 0;
    for (; c < format.size(); ++c) {
      if (format[c] == 'l' || format[c] == 'j' || format[c] == 'z' || format[c] == 't')
        ++longs;
      else if (format[c] == '*')
        conversion += std::to_string((int)packed(t, i, at, 4));
      else
        conversion += format[c];
      if (isalpha((unsigned char)format[c]) && !strchr("lhjzt", format[c]))
        break;
    }
    text += converted(t, i, conversion, at, longs);
    ++count;
  }
  print_to_host(text);
  return count;
}

void fail_assertion(Thread &t, const Inst &i) {
  std::string message = string_at(t, i, argument<uint64_t>(t, i, 0)), file = string_at(t, i, argument<uint64_t>(t, i, 1));
  uint32_t line = argument<uint32_t>(t, i, 2);
  std::string function = string_at(t, i, argument<uint64_t>(t, i, 3));
  flush_output();
  fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file.c_str(), line,
          function.c_str(), t.block->at[0], t.block->at[1], t.block->at[2], t.at[0], t.at[1], t.at[2], message.c_str());
  t.block->gang->status = kAssert;
  t.state = State::ended; /* the other threads go on: each failure is told */
  ++t.block->ended;
}

} // namespace

void print_to_host(const std::string &text) { output() += text; }
void flush_output() {
  fwrite(output().data(), 1, output().size(), stdout);
  output().clear();
}

Step call_builtin(Thread &t, const Inst &i, const char *name) {
  std::string called = name;
  if (called == "vprintf") {
    result<int32_t>(t, i, print(t, i));
  } else if (called == "__assertfail") {
    fail_assertion(t, i);
    return kStop;
  } else if (called == "malloc") {
    Allocation *made = allocate(argument<uint64_t>(t, i, 0), 16, Allocation::device);
    result<uint64_t>(t, i, made ? made->begin : 0);
  } else if (called == "free") {
    uint64_t address = argument<uint64_t>(t, i, 0);
    Allocation *found = find_allocation(address);
    if (address && (!found || found->begin != address || found->is_freed))
      fault(t, i, "free of 0x%llx, which malloc did not give", (unsigned long long)address);
    if (found)
      found->is_freed = true;
  } else {
    fault(t, i, "call of %s, which is defined nowhere", name);
  }
  return kNext;
}

} // namespace ptx
