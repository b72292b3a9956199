// A library that needs something the machine does not have.
extern "C" int dltrain_symbol_that_nobody_defines();

extern "C" int (*dltrain_broken())() {
  return dltrain_symbol_that_nobody_defines;
}
