/* test_npy.c: numpy's files: read back what was written, and files that lie. */
#include "cli/npy.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

bool cli_ends_with(const char *s, const char *end)
{
  size_t n = strlen(s);
  size_t k = strlen(end);
  return n >= k && !strcmp(s + n - k, end);
}

static char path[2][64]; /* .npy, .npz */

static void store(int which, const void *bytes, size_t n)
{
  FILE *f = fopen(path[which], "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  fclose(f);
}

/* A version 1 file with this header and n bytes of data. */
static size_t npy(uint8_t *out, const char *head, size_t n)
{
  size_t len = strlen(head);
  memcpy(out, "\x93NUMPY\x01\x00", 8);
  out[8] = (uint8_t)len;
  out[9] = (uint8_t)(len >> 8);
  memcpy(out + 10, head, len);
  memset(out + 10 + len, 7, n);
  return 10 + len + n;
}

static void refuse_header(const char *head, size_t n, const char *says)
{
  uint8_t file[4096];
  LatheRtTensor *t;
  LatheRtError err = {""};
  store(0, file, npy(file, head, n));
  assert_false(npy_read(path[0], "", &t, &err));
  if (!strstr(err.text, says)) fail_msg("'%s' lacks '%s'", err.text, says);
}

static void files_read_back(void **state)
{
  (void)state;
  int64_t shape[] = {2, 3};
  float v[] = {1, 2, 3, 4, 5, 6};
  LatheRtTensor t = {.data = v, .device = {LATHE_RT_CPU, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shape};
  LatheRtTensor *back;
  const LatheRtTensor *both[] = {&t, &t};
  LatheRtError err = {""};
  assert_true(npy_write(path[0], &t, &err));
  assert_true(npy_write_archive(path[1], 2, (const char *const[]){"a", "b"}, both, &err));
  for (int k = 0; k < 2; k++) {
    if (!npy_read(path[k], "b", &back, &err)) fail_msg("%s", err.text);
    assert_int_equal(back->ndim, 2);
    assert_int_equal(back->shape[1], 3);
    assert_memory_equal(back->data, v, sizeof v);
    lathe_rt_tensor_free(back);
  }
  assert_false(npy_read(path[1], "c", &back, &err));
  assert_non_null(strstr(err.text, "holds no array 'c'"));
}

static void headers_that_lie(void **state)
{
  (void)state;
  refuse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", 16, "ends before its last element");
  refuse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 4), }", 16,
                "ends before its last element");
  refuse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807), }", 16,
                "more bytes than memory can have");
  refuse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 16, "shape that tensors cannot have");
  refuse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), }", 16,
                "more dimensions than the 16");
  refuse_header("{'descr': '<f4', 'fortran_order': True, 'shape': (4,), }", 16, "Fortran order");
  refuse_header("{'descr': '|O', 'fortran_order': False, 'shape': (4,), }", 16, "dtype");
  refuse_header("{'descr': '<c16', 'fortran_order': False, 'shape': (4,), }", 64, "dtype");
  refuse_header("{'fortran_order': False, 'shape': (4,), }", 16, "no numpy header");
  refuse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4", 16, "no numpy header");
  refuse_header("  ", 0, "no numpy header");
}

static void arrays_are_listed(void **state)
{
  (void)state;
  int64_t shape[] = {1};
  float v[1] = {1};
  LatheRtTensor t = {.data = v, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = shape};
  const LatheRtTensor *two[] = {&t, &t};
  LatheRtError err = {""};
  char **name;
  assert_true(npy_write_archive(path[1], 2, (const char *const[]){"input ids", "b"}, two, &err));
  assert_int_equal(npy_names(path[1], &name, &err), 2);
  assert_string_equal(name[0], "input ids");
  assert_string_equal(name[1], "b");
  for (int i = 0; i < 2; i++) free(name[i]);
  free(name);
  store(1, (const uint8_t *)"no zip", 6);
  assert_int_equal(npy_names(path[1], &name, &err), -1);
  assert_non_null(strstr(err.text, "not an npz file"));
}

static void truncated_files(void **state)
{
  (void)state;
  int64_t shape[] = {4};
  float v[4] = {1, 2, 3, 4};
  LatheRtTensor t = {.data = v, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = shape};
  LatheRtTensor *back;
  const LatheRtTensor *one[] = {&t};
  LatheRtError err = {""};
  assert_true(npy_write(path[0], &t, &err));
  assert_true(npy_write_archive(path[1], 1, (const char *const[]){"a"}, one, &err));
  for (int k = 0; k < 2; k++) {
    Bytes whole;
    assert_true(read_all(path[k], &whole, &err));
    for (size_t n = 0; n < whole.n; n++) {
      store(k, whole.p, n);
      assert_false(npy_read(path[k], "a", &back, &err));
      assert_true(strlen(err.text) > 10);
    }
    for (size_t i = 0; k && i < whole.n; i++) { /* every byte of the zip's own structure, changed */
      uint8_t before = whole.p[i];
      whole.p[i] = (uint8_t)(before ^ 0xff);
      store(k, whole.p, whole.n);
      if (npy_read(path[k], "a", &back, &err)) lathe_rt_tensor_free(back);
      whole.p[i] = before;
    }
    free(whole.p);
  }
  assert_false(npy_read("/nonexistent/x.npy", "", &back, &err));
  assert_non_null(strstr(err.text, "cannot be read: No such file or directory"));
  assert_false(npy_read("/tmp", "", &back, &err));
  assert_non_null(strstr(err.text, "cannot be read: Is a directory"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(files_read_back), cmocka_unit_test(headers_that_lie),
                                     cmocka_unit_test(arrays_are_listed), cmocka_unit_test(truncated_files)};
  for (int k = 0; k < 2; k++)
    snprintf(path[k], sizeof path[k], "/tmp/lathe_test_%d.%s", (int)getpid(), k ? "npz" : "npy");
  int bad = cmocka_run_group_tests(tests, NULL, NULL);
  for (int k = 0; k < 2; k++) unlink(path[k]);
  return bad;
}
