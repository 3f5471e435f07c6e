/* What a C or C++ program may call in the runtime of mlir-offload.
 *
 * Link nothing for it: mlir-offload links the runtime into every program and shared library that
 * holds device code. A program and the libraries that it is linked with share what is set here; a
 * library that is loaded by dlopen may have settings of its own, behind the functions that dlsym
 * finds in it.
 */
#ifndef MLIR_OFFLOAD_H
#define MLIR_OFFLOAD_H

/* The exit status of a program that the runtime stopped after an error. */
#define MLIR_OFFLOAD_EXIT_STATUS 70

/* Threads. Any number of threads may at the same time call these functions, functions of MLIR, and
 * kernels' stubs (<<<>>>), from the first use on, and while others end. Stream and device are settings
 * of the calling thread, which a new thread has not. One buffer, stream or event may be used by
 * several threads as the GPU's own API allows it; sharing a stream or a token adds order. The program
 * must not unload a library while its code runs. A child of fork may launch on the CPU, whatever other
 * threads did; it must not use a GPU that its parent used. A program may end while threads launch. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Lets all GPU work that the calling thread starts from now on run on the caller's stream (a
 * cudaStream_t, a hipStream_t, or a cl_command_queue that runs in order), in order; NULL ends this. The
 * runtime never destroys the stream. With a cl_command_queue, memory is that of its context. */
void mlir_offload_set_stream(void *stream);

/* Returns what mlir_offload_set_stream last set in the calling thread, or NULL. */
void *mlir_offload_get_stream(void);

/* Chooses the device of the calling thread: "cuda" (the thread's current CUDA device), "cuda:1",
 * "hip", "hip:1", "sycl" (OpenCL: GPUs first, then accelerators, then CPUs), "sycl:1", "host", or as SYCL
 * names them "level_zero:gpu:0", "opencl:gpu:0", "opencl:cpu:0". Without it MLIR_OFFLOAD_DEVICE decides (same words), else the first GPU, else the CPU, as far as the program
 * holds device code for them. Stops the program for another word. */
void mlir_offload_set_device(const char *device);

/* Calls body(argument) and returns 0. If the runtime reports an error of the calling thread meanwhile,
 * returns MLIR_OFFLOAD_EXIT_STATUS at once and writes the report to text: at most size bytes with the
 * final zero, one line for the error, then lines of context and of a hint. The rest of body does not run:
 * memory and locks that it holds stay, and no destructor runs, so call a function of MLIR there and
 * little else. Errors of other threads, faults of the CPU, and errors that the runtime finds while the
 * program starts or ends, end the program as without it. After some errors a GPU needs a new process. */
int mlir_offload_try(void (*body)(void *argument), void *argument, char *text, size_t size);

/* mlir_offload_try for callers without a C compiler: calls a function with words as its arguments.
 * classes has one letter for the result and one for each word: 'i' for integers and pointers, 'f' for
 * floating point, whose bits the word holds. Returns -1 without a call if there are too many words (more
 * than 64 on the stack), or on a machine that is not x86-64 or AArch64. */
int mlir_offload_call(void *function, const char *classes, const uint64_t *words, uint64_t *result,
                      char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
