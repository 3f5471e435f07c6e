/* Ends the program if a kernel on the CPU does not terminate: launches run there one after the other, so that a
 * kernel that waits for a kernel of another stream would wait forever. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "watch.h"

enum { DEFAULT_SECONDS = 600, MOST_SECONDS = 1000000000 };

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  mo_watched *launches;
  pthread_t thread;
  bool is_started, stops;
} mo_watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static atomic_int mo_streams; /* number of streams that exist */
static long mo_limit = -1;    /* seconds; 0: none, -1: not set */

void mo_watch_stream(int made) { atomic_fetch_add(&mo_streams, made); }

static void read_limit(void) {
  const char *text = getenv("MLIR_OFFLOAD_TIMEOUT");
  if (!text || !*text)
    return;
  char *end;
  mo_limit = strtol(text, &end, 10);
  if (*end || mo_limit < 0 || mo_limit > MOST_SECONDS) {
    mo_error("MLIR_OFFLOAD_TIMEOUT is '%s'", text);
    mo_hint("set it to a number of seconds, or to 0 for no limit");
  }
}

/* Returns the time limit of a launch in seconds, 0 for none. */
static long limit_now(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_limit);
  if (mo_limit >= 0)
    return mo_limit;
  return atomic_load(&mo_streams) > 1 ? DEFAULT_SECONDS : 0;
}

static time_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

MO_NORETURN static void end_program(const mo_watched *launch) {
  mo_error("a kernel did not end in %ld s", launch->limit);
  mo_context_of_launch(launch->stub, launch->shape);
  mo_hint("on the CPU a kernel runs to its end before the next one starts: one that waits for a kernel of "
          "another stream never ends; if it only takes long, set MLIR_OFFLOAD_TIMEOUT to more seconds, or to 0");
}

/* Called once per second during launches. The caller must hold the lock. */
static void look(void) {
  for (const mo_watched *launch = mo_watch.launches; launch; launch = launch->next)
    if (now() - launch->started >= launch->limit)
      end_program(launch);
  if (!mo_watch.launches) {
    pthread_cond_wait(&mo_watch.changed, &mo_watch.lock);
    return;
  }
  struct timespec later;
  clock_gettime(CLOCK_REALTIME, &later);
  ++later.tv_sec;
  pthread_cond_timedwait(&mo_watch.changed, &mo_watch.lock, &later);
}

static void *watch(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mo_watch.lock);
  while (!mo_watch.stops)
    look();
  pthread_mutex_unlock(&mo_watch.lock);
  return NULL;
}

/* A child process has only the thread that called fork, and no launches of other threads. */
static void forget_watch(void) {
  pthread_mutex_init(&mo_watch.lock, NULL);
  pthread_cond_init(&mo_watch.changed, NULL);
  mo_watch.launches = NULL;
  mo_watch.is_started = false;
}

/* The caller must hold the lock. */
static void start_watch(void) {
  static bool is_registered;
  if (mo_watch.is_started || mo_watch.stops)
    return;
  if (!is_registered)
    is_registered = !pthread_atfork(NULL, NULL, forget_watch);
  sigset_t all, before;
  sigfillset(&all); /* signals are for the program's own threads */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  mo_watch.is_started = !pthread_create(&mo_watch.thread, NULL, watch, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void mo_watch_begin(mo_watched *launch) {
  launch->limit = limit_now();
  if (!launch->limit)
    return;
  launch->started = now();
  pthread_mutex_lock(&mo_watch.lock);
  start_watch();
  launch->next = mo_watch.launches;
  launch->link = &mo_watch.launches;
  if (launch->next)
    launch->next->link = &launch->next;
  else
    pthread_cond_signal(&mo_watch.changed);
  mo_watch.launches = launch;
  pthread_mutex_unlock(&mo_watch.lock);
}

void mo_watch_end(mo_watched *launch) {
  if (!launch->limit)
    return;
  pthread_mutex_lock(&mo_watch.lock);
  *launch->link = launch->next;
  if (launch->next)
    launch->next->link = launch->link;
  pthread_mutex_unlock(&mo_watch.lock);
}

/* Called at exit, and before dlclose unmaps the code of the thread. */
__attribute__((destructor)) static void stop_watch(void) {
  pthread_mutex_lock(&mo_watch.lock);
  bool is_started = mo_watch.is_started;
  mo_watch.stops = true;
  pthread_cond_broadcast(&mo_watch.changed);
  pthread_mutex_unlock(&mo_watch.lock);
  if (is_started)
    pthread_join(mo_watch.thread, NULL);
}
