extern "C" __attribute__((device)) float twice(float);
extern "C" __attribute__((device)) float thrice(float x) { return twice(x) + x; }
