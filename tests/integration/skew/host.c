// Programs in C that tell by exit status and output.
#include <stddef.h>
//--- loops
int printf(const char *, ...);
static const char *const words[] = {"one", "two", "three"};
__attribute__((noinline)) int sum(const int *values, int n) {
  int total = 0;
  for (int i = 0; i < n; i++) total += values[i];
  return total;
}
int main(int argc, char **argv) {
  (void)argv;
  int values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, argc};
  printf("%s\n", words[argc]);
  return sum(values, 10);
}
//--- wide
// A 128-bit integer is aligned to 16 bytes from clang 18 on, in code and in layout.
int printf(const char *, ...);
int memcmp(const void *, const void *, size_t);
struct wide { char c; __int128 i; };
static const struct wide table[3] = {{1, 2}, {3, (__int128)4 << 64}, {5, 6}};
__attribute__((noinline)) __int128 take(const struct wide *w, int n) { return w[n].i + w[n].c; }
int main(int argc, char **argv) {
  (void)argv;
  struct wide copy[3];
  __builtin_memcpy(copy, table, sizeof copy);
  __int128 value = take(copy, argc);
  int begin = (int)((char *)&copy[argc].i - (char *)copy);
  printf("%d %d %d\n", (int)sizeof copy, begin, (int)(value >> 64));
  return (int)take(copy, 2) + (int)value;
}
//--- pointers
int printf(const char *, ...);
static int cells[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static int *const into[] = {&cells[3], &cells[5]};
static char *text = "offload" + 3;
_Thread_local int counter = 4;
int main(void) {
  counter += *into[1];
  printf("%s\n", text);
  return *into[0] + counter;
}
//--- switches
__attribute__((noinline)) int choose(int n, double x) {
  switch (n) {
  case 1: return 3;
  case 2: return (int)x;
  case 3: return (int)__builtin_floor(x * 1.5);
  case 9: return 1 << n;
  default: return n & 6 ? -n : n;
  }
}
int main(int argc, char **argv) {
  (void)argv;
  return choose(argc, 4.5) + choose(3, 2.5) + choose(9, 0) % 100;
}
