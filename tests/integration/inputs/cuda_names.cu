// Kernels of every kind of name that C++ has: see offload/mangling.py.
#include "cuda_bare.h"

enum Colour { red, green };
template <class Result> struct Signature;
typedef float float4 __attribute__((ext_vector_type(4)));
void callee(int);

struct Class {
  int member;
  static __global__ void kernel(int) {}
};

namespace std {
template <class T> struct vector {};
__global__ void in_std(vector<int>) {}
inline namespace __1 {
__global__ void in_inline_namespace(int) {}
} // namespace __1
} // namespace std

extern "C" __global__ void plain(float *) {}
__global__ void global(float *, float) {}
static __global__ void internal(int) {}
__attribute__((abi_tag("v2"))) __global__ void tagged(int) {}

namespace outer {
namespace inner2 {
__global__ void nested(float *, float) {}
} // namespace inner2
static __global__ void internal(int) {}
namespace {
__global__ void anonymous(int) {}
} // namespace

template <class T> struct Box {
  static __global__ void kernel(T) {}
};
template <class T> __global__ void of_type(T *, Class) {}
template <int N, Colour colour, bool flag> __global__ void of_values() {}
template <long N> __global__ void of_negative() {}
template <class... T> __global__ void of_pack(T...) {}
template <template <class> class T> __global__ void of_template(T<int>) {}

template __global__ void Box<std::vector<int>>::kernel(std::vector<int>);
template __global__ void of_type(float *, Class);
template __global__ void of_type(const Class *, Class);
template __global__ void of_values<10, green, true>();
template __global__ void of_negative<-5>();
template __global__ void of_pack(int, Class, float *, std::vector<std::vector<Class>>);
template __global__ void of_template(std::vector<int>);
} // namespace outer

template <class T> __global__ void type(T) {}
template __global__ void type(Signature<void(int, float *)> *);
template __global__ void type(int (*)(Class, long));
template __global__ void type(int Class::*);
template __global__ void type(float4);
template __global__ void type(decltype(nullptr));
template __global__ void type(_Float16);
template __global__ void type(unsigned long long const volatile *);
template <class T> __global__ void reference(T &) {}
template __global__ void reference(int (&)[10]);
template <void (*function)(int)> __global__ void of_function() {}
template __global__ void of_function<callee>();

void use() {
  Class::kernel<<<1, 1>>>(1);
  internal<<<1, 1>>>(1);
  outer::internal<<<1, 1>>>(1);
  outer::anonymous<<<1, 1>>>(1);
}
