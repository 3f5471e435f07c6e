// Callbacks between two launches that throw, and that end the thread, while signals come.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <pthread.h>
#include <sys/time.h>

struct Memref {
  int32_t *allocated, *aligned;
  int64_t offset, size, stride;
};
extern "C" void _mlir_ciface_twice(Memref *, int32_t);

enum { THROW = 3, END_THREAD = 5 };
static int32_t data[32];
static Memref memref = {data, data, 0, 32, 1};

extern "C" void _mlir_ciface_callback(int32_t by) {
  if (by == THROW)
    throw by;
  if (by == END_THREAD)
    pthread_exit(nullptr);
}

static void *end_thread(void *unused) {
  _mlir_ciface_twice(&memref, END_THREAD);
  return unused;
}

static void ignore(int) {}

static bool is_right(int32_t expected) {
  for (int32_t &element : data) {
    if (element != expected)
      return false;
    element = 0;
  }
  return true;
}

int main() {
  pthread_t thread;
  itimerval often = {{0, 200}, {0, 200}};
  signal(SIGALRM, ignore);
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; i < 100; ++i) {
    try {
      _mlir_ciface_twice(&memref, THROW);
      return 1;
    } catch (int by) {
      if (!is_right(by))
        return 2;
    }
    _mlir_ciface_twice(&memref, 2);
    if (!is_right(4))
      return 3;
  }
  pthread_create(&thread, nullptr, end_thread, nullptr);
  pthread_join(thread, nullptr);
  if (!is_right(END_THREAD))
    return 4;
  std::puts("ended");
}
