// A library that is no engine.
int dltrain_no_entry() {
  return 0;
}
