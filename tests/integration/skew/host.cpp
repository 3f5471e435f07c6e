// Programs in C++.
//--- throws
extern "C" int printf(const char *, ...);
struct Failure { int code; };
__attribute__((noinline)) int may_throw(int n) { if (n > 0) throw Failure{n + 41}; return n; }
int main(int argc, char **) {
  try { return may_throw(argc); } catch (const Failure &failure) { printf("caught\n"); return failure.code; } catch (int other) { return other; }
}
//--- virtual
struct Shape { virtual int area() const = 0; virtual ~Shape() {} };
struct Square : Shape { int side; explicit Square(int n) : side(n) {} int area() const override { return side * side; } };
__attribute__((noinline)) int measure(const Shape &shape) { return shape.area(); }
int main(int argc, char **) { Square square(argc + 2); return measure(square); }
