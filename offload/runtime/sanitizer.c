/* Suppressions for the sanitizers (sanitizer/lsan_interface.h, tsan_interface.h): memory that libomptarget, OpenCL
 * and their dependencies keep until the program exits, and their locks. Weak, so that a program can define its own.
 */
#if defined(__has_feature)

#if __has_feature(address_sanitizer)
__attribute__((weak, visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:libomptarget\nleak:libLLVM\nleak:libffi\nleak:libOpenCL\nleak:libintelocl\n";
}

__attribute__((weak, visibility("default"))) const char *__lsan_default_options(void);
const char *__lsan_default_options(void) { return "print_suppressions=0"; }
#endif

#if __has_feature(thread_sanitizer)
__attribute__((weak, visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "print_suppressions=0"; }

__attribute__((weak, visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
  return "race:libomptarget\nrace:libLLVM\nrace:libOpenCL\nrace:libintelocl\n";
}
#endif

#endif
