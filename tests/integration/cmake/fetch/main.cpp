#include <cstdio>

extern "C" int square(int);
int twice(int);

int main() { std::printf("%d\n", twice(square(3))); }
