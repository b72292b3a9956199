#include <cstdio>

int main() {
  std::puts("dltrain 0.1.0");
}
