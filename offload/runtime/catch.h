/* Return errors to a caller instead of ending the program. */
#ifndef CATCH_H
#define CATCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "mgpu.h"

/* Lock functions for locks that a thread may hold when it fails. They are released if a caller handles the error. */
MO_INTERNAL void mo_lock(pthread_mutex_t *lock);
MO_INTERNAL void mo_unlock(pthread_mutex_t *lock);

/* Between these calls, an error of the calling thread ends the program, because it is in code that must return. */
MO_INTERNAL void mo_begin_uncaught(void);
MO_INTERNAL void mo_end_uncaught(void);

/* Returns whether a caller handles errors of the calling thread, also between the two calls above. */
MO_INTERNAL bool mo_has_handler(void);

/* Appends a line to the report for the caller. Returns false if the error ends the program. */
MO_INTERNAL bool mo_catch_line(const char *line);
/* Returns to the caller if it handles the error. */
MO_INTERNAL void mo_throw(void);

#endif
