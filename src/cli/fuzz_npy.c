/* fuzz_npy.c: the reader of numpy's files on hostile bytes: the first byte says whether they
 * are an .npz.  A tensor or a sentence comes out, and nothing outside of the file is read. */
#include "cli/npy.c"

bool cli_ends_with(const char *s, const char *end)
{
  size_t n = strlen(s);
  size_t k = strlen(end);
  return n >= k && !strcmp(s + n - k, end);
}

/* A refused giant allocation is a result. */
LATHE_RT_API const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=1000"; }

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
  if (!n) return 0;
  Bytes file = {malloc(n), n - 1};
  if (!file.p) return 0;
  memcpy(file.p, bytes + 1, n - 1);
  LatheRtTensor *t;
  LatheRtError err = {""};
  const uint8_t *p = file.p;
  size_t size = file.n;
  bool ok = !(bytes[0] & 1) || find_member("fuzz", file, "a", &p, &size, &err);
  ok = ok && parse_npy("fuzz", p, size, &t, &err);
  if (ok) lathe_rt_tensor_free(t);
  else if (!err.text[0]) abort();
  free(file.p);
  return 0;
}
