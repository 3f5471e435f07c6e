/* mlir_offload_try and mlir_offload_call: return errors to the caller. */
#include "catch.h"

#include <setjmp.h>
#include <string.h>

#include "mlir_offload.h"

enum { MOST_LOCKS = 4 };

/* The list of active calls of mlir_offload_try in a thread, innermost first. */
typedef struct handler {
  jmp_buf place;
  char *text;
  size_t room;
  struct handler *outer;
  pthread_mutex_t *locks[MOST_LOCKS];
  unsigned lock_count, uncaught;
} handler;

/* Public, with a number for its layout, for the same reason as mlir_offload_thread_2. */
handler **mlir_offload_handler_1(void);
MO_PUBLIC handler **mlir_offload_handler_1(void) {
  static _Thread_local handler *current;
  return &current;
}

static handler *current(void) { return *mlir_offload_handler_1(); }

static handler *catching(void) {
  handler *found = current();
  return found && !found->uncaught && found->lock_count <= MOST_LOCKS ? found : NULL;
}

bool mo_has_handler(void) { return current() != NULL; }

void mo_begin_uncaught(void) {
  if (current())
    ++current()->uncaught;
}

void mo_end_uncaught(void) {
  if (current())
    --current()->uncaught;
}

void mo_lock(pthread_mutex_t *lock) {
  handler *found = current();
  pthread_mutex_lock(lock);
  if (found && found->lock_count++ < MOST_LOCKS)
    found->locks[found->lock_count - 1] = lock;
}

void mo_unlock(pthread_mutex_t *lock) {
  if (current())
    --current()->lock_count;
  pthread_mutex_unlock(lock);
}

bool mo_catch_line(const char *line) {
  handler *found = catching();
  if (!found)
    return false;
  size_t size = strlen(line);
  size = size < found->room ? size : found->room - 1;
  memcpy(found->text, line, size);
  found->text += size;
  found->room -= size;
  *found->text = '\0';
  return true;
}

void mo_throw(void) {
  handler *found = catching();
  if (!found)
    return;
  while (found->lock_count)
    pthread_mutex_unlock(found->locks[--found->lock_count]);
  _longjmp(found->place, 1);
}

MO_PUBLIC int mlir_offload_try(void (*body)(void *), void *argument, char *text, size_t size) {
  char unused[1];
  handler made = {.text = size ? text : unused, .room = size ? size : 1, .outer = current()};
  *made.text = '\0';
  int status = 0;
  if (_setjmp(made.place))
    status = MLIR_OFFLOAD_EXIT_STATUS;
  else {
    *mlir_offload_handler_1() = &made;
    body(argument);
  }
  *mlir_offload_handler_1() = made.outer;
  return status;
}

/* A call of any C function ------------------------------------------------------------------ */

#if defined __x86_64__
enum { INTEGER_REGISTERS = 6 };
#define INTEGERS uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t
#define PASSED_INTEGERS(i) i[0], i[1], i[2], i[3], i[4], i[5]
#elif defined __aarch64__
enum { INTEGER_REGISTERS = 8 };
#define INTEGERS uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t
#define PASSED_INTEGERS(i) i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7]
#endif

#ifdef INTEGERS
enum { FLOAT_REGISTERS = 8, MOST_STACK_WORDS = 64 };
#define FLOATS double, double, double, double, double, double, double, double
#define PASSED_FLOATS(f) f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]
#define EIGHT uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t
#define PASSED_EIGHT(s, n) \
  s[n], s[n + 1], s[n + 2], s[n + 3], s[n + 4], s[n + 5], s[n + 6], s[n + 7]
#define STACK EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT
#define PASSED_STACK(s)                                                                     \
  PASSED_EIGHT(s, 0), PASSED_EIGHT(s, 8), PASSED_EIGHT(s, 16), PASSED_EIGHT(s, 24),         \
      PASSED_EIGHT(s, 32), PASSED_EIGHT(s, 40), PASSED_EIGHT(s, 48), PASSED_EIGHT(s, 56)

typedef struct registers {
  void *function;
  uint64_t integers[INTEGER_REGISTERS], stack[MOST_STACK_WORDS];
  double floats[FLOAT_REGISTERS];
  unsigned stack_count;
  bool returns_float;
  uint64_t result;
} registers;

/* Both ABIs pass integers and floats in separate registers, and the rest on the stack in order. A callee
 * ignores additional arguments. */
static void call_function(void *given) {
  registers *all = given;
  const uint64_t *i = all->integers, *s = all->stack;
  const double *f = all->floats;
  if (all->returns_float) {
    double result =
        all->stack_count
            ? ((double (*)(INTEGERS, FLOATS, STACK))all->function)(
                  PASSED_INTEGERS(i), PASSED_FLOATS(f), PASSED_STACK(s))
            : ((double (*)(INTEGERS, FLOATS))all->function)(PASSED_INTEGERS(i), PASSED_FLOATS(f));
    memcpy(&all->result, &result, sizeof result);
  } else {
    all->result =
        all->stack_count
            ? ((uint64_t (*)(INTEGERS, FLOATS, STACK))all->function)(
                  PASSED_INTEGERS(i), PASSED_FLOATS(f), PASSED_STACK(s))
            : ((uint64_t (*)(INTEGERS, FLOATS))all->function)(PASSED_INTEGERS(i), PASSED_FLOATS(f));
  }
}

static bool assign(registers *all, const char *classes, const uint64_t *words) {
  unsigned integers = 0, floats = 0;
  for (; *classes; ++classes, ++words) {
    if (*classes == 'f' && floats < FLOAT_REGISTERS)
      memcpy(&all->floats[floats++], words, sizeof *words);
    else if (*classes == 'i' && integers < INTEGER_REGISTERS)
      all->integers[integers++] = *words;
    else if (all->stack_count < MOST_STACK_WORDS)
      all->stack[all->stack_count++] = *words;
    else
      return false;
  }
  return true;
}
#endif

MO_PUBLIC int mlir_offload_call(void *function, const char *classes, const uint64_t *words,
                                uint64_t *result, char *text, size_t size) {
#ifdef INTEGERS
  registers all = {.function = function, .returns_float = *classes == 'f'};
  if (!assign(&all, classes + 1, words))
    return -1;
  int status = mlir_offload_try(call_function, &all, text, size);
  *result = all.result;
  return status;
#else
  (void)function, (void)classes, (void)words, (void)result, (void)text, (void)size;
  return -1;
#endif
}
