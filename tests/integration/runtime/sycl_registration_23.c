/* Registers device images as clang-linker-wrapper of LLVM 23 does: the packager's file, and its size. */
#include <stddef.h>

__asm__(".section .rodata\n"
        ".byte 0\n" /* the file lies at any address */
        "images:\n"
        ".incbin \"" IMAGES "\"\n"
        "images_end:\n"
        ".text\n");
extern const char images[], images_end[];

void __sycl_register_lib(const void *, size_t);
void __sycl_unregister_lib(const void *, size_t);

__attribute__((constructor(101))) static void add(void) {
  __sycl_register_lib(images, (size_t)(images_end - images));
}

__attribute__((destructor(101))) static void remove_again(void) {
  __sycl_unregister_lib(images, (size_t)(images_end - images));
}
