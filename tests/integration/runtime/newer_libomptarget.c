/* A libomptarget of LLVM 23 or newer, as far as kernels of ours see one: it refuses every launch with the arguments of
 * older ones. Without NEWER it is an older one that refuses them, too. */
#include <stdint.h>

int omp_get_num_devices(void) { return 1; }
void __tgt_register_lib(void *descriptor) { (void)descriptor; }
void __tgt_unregister_lib(void *descriptor) { (void)descriptor; }
void __tgt_target_data_begin_mapper(void) {}
int __tgt_target_kernel(void *location, int64_t device, int32_t teams, int32_t threads, void *entry,
                        void *arguments) {
  (void)location, (void)device, (void)teams, (void)threads, (void)entry, (void)arguments;
  return -1;
}
#ifdef NEWER
void __tgt_register_rpc_callback(unsigned callback) { (void)callback; }
#endif
