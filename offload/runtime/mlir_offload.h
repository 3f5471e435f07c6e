/* The C and C++ interface of the mlir-offload runtime.
 *
 * No library is required: mlir-offload links the runtime into every program and shared library with device
 * code. A program and the libraries that it is linked with share the settings of these functions. A library
 * that is loaded with dlopen may have separate settings; use dlsym to get its functions.
 */
#ifndef MLIR_OFFLOAD_H
#define MLIR_OFFLOAD_H

/* The exit status of a program that the runtime stopped after an error. */
#define MLIR_OFFLOAD_EXIT_STATUS 70

/* Threads. Threads may concurrently call these functions, functions of MLIR, and kernel stubs (<<<>>>), also
 * during the first use and while other threads end. Stream and device are settings of the calling thread; a new
 * thread does not inherit them. Threads may share a buffer, stream or event if the API of the GPU allows it;
 * sharing a stream or a token adds ordering. The program must not unload a library while its code runs. A child
 * of fork may launch on the CPU; it must not use a GPU that its parent has used. A program may exit while threads
 * launch. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes all further GPU work of the calling thread run in order on the caller's stream: a cudaStream_t, a
 * hipStream_t, or an in-order cl_command_queue. NULL resets this. The runtime never destroys the stream. With a
 * cl_command_queue, memory is allocated in its context. */
void mlir_offload_set_stream(void *stream);

/* Returns the stream that the calling thread last set with mlir_offload_set_stream, or NULL. */
void *mlir_offload_get_stream(void);

/* Selects the device of the calling thread: "cuda" (the thread's current CUDA device), "cuda:1", "hip", "hip:1",
 * "sycl" (OpenCL: GPUs first, then accelerators, then CPUs), "sycl:1", "host", or a name of the SYCL runtime:
 * "level_zero:gpu:0", "opencl:gpu:0", "opencl:cpu:0". The default is MLIR_OFFLOAD_DEVICE (same names), then the
 * first GPU, then the CPU, among those for which the program contains device code. Another name ends the program
 * with an error. */
void mlir_offload_set_device(const char *device);

/* Calls body(argument) and returns 0. If the runtime reports an error of the calling thread during the call, it
 * immediately returns MLIR_OFFLOAD_EXIT_STATUS and writes the report to text: at most size bytes including the
 * final zero; one line for the error, then lines for the context and a hint. The rest of body is not executed: it
 * does not release memory and locks, and no destructor runs, so body should do little more than call a function of
 * MLIR. Errors of other threads, CPU faults, and runtime errors at program start or exit still end the program.
 * After some errors, a GPU requires a new process. */
int mlir_offload_try(void (*body)(void *argument), void *argument, char *text, size_t size);

/* mlir_offload_try for callers without a C compiler: calls a function with the arguments in words. classes has
 * one letter for the result and one for each word: 'i' for integers and pointers, 'f' for floating-point numbers,
 * whose bits are in the word. Returns -1 without a call if there are too many words (more than 64 on the stack),
 * or if the processor is not x86-64 or AArch64. */
int mlir_offload_call(void *function, const char *classes, const uint64_t *words, uint64_t *result,
                      char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
