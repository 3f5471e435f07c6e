/* What the parts of the replacement of libcudart share. */
#ifndef CUDART_H
#define CUDART_H

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "machine.h"

namespace ptx {

std::string ptx_of_fat_binary(const void *data, int arch);

/* Streams: work that has been asked for, and is done when something has to have it. */
struct Work;
using WorkPointer = std::shared_ptr<Work>;
struct Work {
  std::function<void()> run;
  std::vector<WorkPointer> after;
};

std::recursive_mutex &api_lock();
void issue(void *stream, std::function<void()> run);
void force(WorkPointer work);
void force_everything();
void raise_error(int status); /* by work that has been done; stays */
int sticky_error();

/* Registered kernels and variables. */
const Function *registered_kernel(const void *stub);
uint64_t registered_variable(const void *host, uint64_t *size);

/* Where the bytes of a range are that the host or the device has. */
uint8_t *bytes_at(void *pointer, uint64_t size);

} // namespace ptx
#endif
