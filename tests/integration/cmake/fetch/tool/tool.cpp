extern "C" int square(int);

extern "C" __attribute__((visibility("default"))) int fourth(int x) { return square(square(x)); }
