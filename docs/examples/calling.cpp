// Calls calling.mlir from C++, with containers, on a stream of its own where there is one:
//
//   mlir-offload --emit-header=calling.h calling.mlir calling.cpp -I. -lstdc++ -o calling && ./calling
#include "calling.h"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

int main() {
  std::vector<float> x(12, 1.5f), y(12);
  auto from = mlir_memref_2d_f32_of(x.data(), 3, 4);
  auto to = mlir_memref_2d_f32_of(y.data(), 3, 4);
  void *stream = nullptr; // a cudaStream_t, or the default
  scale_on_stream(stream, 4.0f, &from, &to);

  count_results counted;
  _mlir_ciface_count(&counted, 5);
  std::unique_ptr<int64_t, decltype(&std::free)> numbers(counted.result0.allocated, std::free);

  if (y.back() != 6.0f || numbers.get()[4] != 4 || counted.result1 != 10) {
    std::cout << "calling: WRONG\n";
    return EXIT_FAILURE;
  }
  std::cout << "calling: ok, scaled and counted in C++\n";
}
