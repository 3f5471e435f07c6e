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

#ifdef __cplusplus
}
#endif

#endif
