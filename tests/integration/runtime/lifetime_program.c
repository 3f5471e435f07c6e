/* Loads, unloads, forks, ends: WAY COUNT LIBRARY [LIBRARY]. It holds kernels itself. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"

int mark(void);
int meet(void);
int overflow(void);
void hold(int *);

typedef int function(void);
enum { LONGEST_S = 300 }; /* of a child that hangs only */
static sem_t loading;
static bool watches;

/* Gives the other thread the time to fork, if it does. */
__attribute__((visibility("default"))) void image_is_loading(void) {
  if (!watches)
    return;
  sem_post(&loading);
  usleep(50000);
}

static void *load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    printf("%s\n", dlerror());
  CHECK(library);
  return library;
}

static int call(void *library, const char *name) {
  function *found;
  void *address = dlsym(library, name);
  CHECK(address);
  memcpy(&found, &address, sizeof found);
  return found();
}

static void *call_mark(void *library) { return (void *)(intptr_t)call(library, "mark"); }
static pthread_barrier_t *together;
__attribute__((visibility("default"))) void block_is_running(void) {
  for (int i = 0; together && i < 2; ++i)
    pthread_barrier_wait(together);
}
static void *call_meet(void *barrier) {
  pthread_barrier_wait(barrier);
  meet();
  return NULL;
}

static int mappings(void) {
  int lines = 0;
  FILE *file = fopen("/proc/self/maps", "r");
  CHECK(file);
  for (int c; (c = getc(file)) != EOF;)
    lines += c == '\n';
  fclose(file);
  return lines;
}

/* What a library chose for the thread holds when the library is gone. */
static void use_device(const char *path) {
  void *library = load(path);
  call(library, "choose");
  CHECK(!dlclose(library));
  CHECK(mark() == 1);
}

/* Many threads whose blocks are the largest, at the same time; all that they mapped goes with them. */
static void use_threads(int count) {
  pthread_t threads[count];
  pthread_barrier_t barrier;
  int before, with_threads, after;
  meet();
  pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
  for (int i = 0; i < count; ++i)
    CHECK(!pthread_create(&threads[i], NULL, call_meet, &barrier));
  before = mappings();
  together = &barrier;
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  with_threads = mappings();
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < count; ++i)
    CHECK(!pthread_join(threads[i], NULL));
  after = mappings();
  printf("%d\n", with_threads - before);
  CHECK(after <= before);
}

static void wait_for(pid_t child) {
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

/* Forks while another thread launches for the first time; the child launches, too. */
static void use_fork(const char *path, unsigned later_us) {
  pthread_t thread;
  void *library = load(path);
  CHECK(!pthread_create(&thread, NULL, call_mark, library));
  if (watches)
    sem_wait(&loading);
  else
    usleep(later_us);
  pid_t child = fork();
  if (!child) {
    watches = false;
    alarm(LONGEST_S);
    CHECK(call(library, "mark") == 2);
    call(library, "meet");
    _exit(0);
  }
  wait_for(child);
  CHECK(!pthread_join(thread, NULL));
  CHECK(!dlclose(library));
}

/* As a daemon does. The numbers that are free now are the next library's, and the program's own. */
static void use_descriptors(const char *first, const char *second) {
  void *one = load(first);
  CHECK(call(one, "mark") == 2);
  close_range(3, ~0U, 0);
  void *other = load(second);
  CHECK(call(other, "mark") == 3);
  close_range(3, ~0U, 0);
  int files[16];
  for (int i = 0; i < 16; ++i)
    CHECK((files[i] = open("/dev/null", O_RDONLY)) >= 0);
  CHECK(!dlclose(one) && !dlclose(other));
  for (int i = 0; i < 16; ++i)
    CHECK(fcntl(files[i], F_GETFD) >= 0);
}

/* The standard streams of a daemon are closed: what is printed there goes nowhere else. */
static void use_closed_streams(void) {
  int output = dup(1);
  close(0), close(1), close(2);
  CHECK(mark() == 1);
  for (int i = 0; i < 3; ++i)
    CHECK(fcntl(i, F_GETFD) < 0);
  CHECK(dup2(output, 1) == 1);
}

static int flags[2];
static void *hold_thread(void *unused) {
  hold(flags);
  return unused;
}
static void *launch_forever(void *unused) {
  for (;;)
    mark();
  return unused;
}

/* Ends late: what was unloaded is missed by then. */
static bool ends_late;
__attribute__((destructor(101))) static void end_late(void) {
  if (ends_late)
    usleep(200000);
}

/* Ends while other threads are in kernels, and while they go on launching. */
static void end_with_launches(void) {
  pthread_t thread;
  ends_late = true;
  CHECK(!pthread_create(&thread, NULL, hold_thread, NULL));
  CHECK(!pthread_create(&thread, NULL, launch_forever, NULL));
  while (!__atomic_load_n(&flags[0], __ATOMIC_ACQUIRE))
    ;
}

int main(int words, char **arguments) {
  CHECK(words >= 3);
  const char *way = arguments[1], *first = words > 3 ? arguments[3] : "";
  int count = atoi(arguments[2]);
  sem_init(&loading, 0, 0);
  if (!strcmp(way, "device"))
    use_device(first);
  if (!strcmp(way, "threads"))
    use_threads(count);
  if (!strcmp(way, "fork")) {
    watches = true;
    use_fork(first, 0);
  }
  srand(1);
  for (int i = 0; !strcmp(way, "forks") && i < count; ++i)
    use_fork(first, (unsigned)rand() % 3000);
  if (!strcmp(way, "descriptors"))
    use_descriptors(first, arguments[4]);
  if (!strcmp(way, "streams"))
    use_closed_streams();
  if (!strcmp(way, "overflow"))
    overflow();
  if (!strcmp(way, "end"))
    end_with_launches();
  printf("ended\n");
  return 0;
}
