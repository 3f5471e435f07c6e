/* Streams and events of the CUDA runtime API. Work is done as late as CUDA permits: when the host waits for it. */
#include <algorithm>
#include <map>

#include "cudart.h"

namespace ptx {

namespace {

struct Stream {
  bool is_blocking = true;
  bool is_destroyed = false;
  WorkPointer last;
};
struct Event {
  WorkPointer work;
};

enum : uintptr_t { kLegacy = 1 };

std::map<void *, Stream> &streams() {
  static auto *made = new std::map<void *, Stream>(); /* never destroyed: programs still call at their exit */
  return *made;
}

Stream *stream_of(void *handle) {
  if (!handle || (uintptr_t)handle <= 2)
    handle = (void *)kLegacy;
  if (handle == (void *)kLegacy)
    return &streams()[handle];
  auto found = streams().find(handle);
  return found == streams().end() ? nullptr : &found->second;
}

bool is_legacy(const Stream *stream) { return stream == &streams()[(void *)kLegacy]; }

int sticky;

} // namespace

std::recursive_mutex &api_lock() {
  static auto *made = new std::recursive_mutex(); /* never destroyed: programs still call at their exit */
  return *made;
}

void raise_error(int status) {
  if (!sticky)
    sticky = status;
}
int sticky_error() { return sticky; }

/* After what was asked for before: of its stream, and of those that the legacy default stream orders. */
static void append(Stream &stream, WorkPointer work) {
  if (stream.last)
    work->after.push_back(stream.last);
  if (is_legacy(&stream)) {
    for (auto &other : streams())
      if (other.second.is_blocking && other.second.last && &other.second != &stream)
        work->after.push_back(other.second.last);
  } else if (stream.is_blocking && streams()[(void *)kLegacy].last) {
    work->after.push_back(streams()[(void *)kLegacy].last);
  }
  stream.last = work;
}

void issue(void *handle, std::function<void()> run) {
  Stream *stream = stream_of(handle);
  if (!stream)
    stop("work for a stream that is not one");
  auto work = std::make_shared<Work>();
  work->run = std::move(run);
  append(*stream, work);
}

void force(WorkPointer work) {
  std::vector<WorkPointer> stack;
  if (work)
    stack.push_back(work);
  while (!stack.empty()) {
    WorkPointer top = stack.back();
    if (!top->after.empty()) {
      WorkPointer before = top->after.back();
      top->after.pop_back();
      stack.push_back(before);
      continue;
    }
    stack.pop_back();
    if (top->run) {
      auto run = std::move(top->run);
      top->run = nullptr;
      if (!sticky)
        run();
    }
  }
}

void force_everything() {
  for (auto &stream : streams())
    force(stream.second.last);
}

static bool is_done(const WorkPointer &work) { return !work || (!work->run && work->after.empty()); }

} // namespace ptx

using namespace ptx;

#define LOCK std::lock_guard<std::recursive_mutex> guard(api_lock())

enum { kInvalidHandle = 400, kNotReady = 600 };

extern "C" {

int cudaStreamCreateWithFlags(void **handle, unsigned flags) {
  LOCK;
  static uintptr_t next = 0x57000000;
  *handle = (void *)(next += 64);
  streams()[*handle].is_blocking = !(flags & 1);
  return 0;
}
int cudaStreamCreate(void **handle) { return cudaStreamCreateWithFlags(handle, 0); }
int cudaStreamCreateWithPriority(void **handle, unsigned flags, int) { return cudaStreamCreateWithFlags(handle, flags); }
/* Work that was asked for is still done; nobody can wait for it but by the device. */
int cudaStreamDestroy(void *handle) {
  LOCK;
  Stream *stream = stream_of(handle);
  if (!stream || stream->is_destroyed)
    return kInvalidHandle;
  stream->is_destroyed = true;
  return 0;
}
int cudaStreamSynchronize(void *handle) {
  LOCK;
  Stream *stream = stream_of(handle);
  if (!stream || stream->is_destroyed)
    return kInvalidHandle;
  if (is_legacy(stream)) /* it waits for what the blocking streams have, too */
    issue(nullptr, nullptr);
  force(stream->last);
  flush_output();
  return sticky_error();
}
int cudaStreamQuery(void *handle) {
  LOCK;
  Stream *stream = stream_of(handle);
  if (!stream || stream->is_destroyed)
    return kInvalidHandle;
  return sticky_error() ? sticky_error() : is_done(stream->last) ? 0 : kNotReady;
}
int cudaEventCreateWithFlags(void **handle, unsigned) {
  LOCK;
  *handle = new Event();
  return 0;
}
int cudaEventCreate(void **handle) { return cudaEventCreateWithFlags(handle, 0); }
int cudaEventDestroy(void *handle) {
  LOCK;
  delete (Event *)handle;
  return 0;
}
int cudaEventRecord(void *handle, void *on) {
  LOCK;
  issue(on, nullptr);
  ((Event *)handle)->work = stream_of(on)->last;
  return 0;
}
int cudaEventSynchronize(void *handle) {
  LOCK;
  force(((Event *)handle)->work);
  flush_output();
  return sticky_error();
}
int cudaEventQuery(void *handle) {
  LOCK;
  return sticky_error() ? sticky_error() : is_done(((Event *)handle)->work) ? 0 : kNotReady;
}
int cudaEventElapsedTime(float *milliseconds, void *, void *) { return *milliseconds = 1, 0; }
int cudaStreamWaitEvent(void *handle, void *event, unsigned) {
  LOCK;
  Stream *stream = stream_of(handle);
  if (!stream)
    return kInvalidHandle;
  auto work = std::make_shared<Work>();
  if (((Event *)event)->work)
    work->after.push_back(((Event *)event)->work);
  append(*stream, work);
  return 0;
}
int cudaDeviceSynchronize(void) {
  LOCK;
  force_everything();
  flush_output();
  return sticky_error();
}
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
  LOCK;
  issue(stream, [=] { function(data); });
  return 0;
}
}
