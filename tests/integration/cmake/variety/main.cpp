#include <dlfcn.h>
#include <iostream>
#include <mlir_offload.h>

extern "C" int own(int), object(int);

int main() {
  void *library = dlopen(MODULE, RTLD_NOW);
  if (!library) {
    std::cerr << dlerror() << "\n";
    return 1;
  }
  auto module = reinterpret_cast<int (*)(int)>(dlsym(library, "module"));
  mlir_offload_set_device("host");
  std::cout << own(7) << " " << object(8) << " " << module(9) << "\n";
}
