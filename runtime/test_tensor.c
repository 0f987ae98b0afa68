/* test_tensor.c: allocation, byte counts, copies of every layout, other devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lathe_rt.h"
#include "test_sanitizers.h"

static const LatheRtDevice cpu0 = {LATHE_RT_CPU, 0};
static const LatheRtDType f32 = {2, 32, 1}, i8 = {0, 8, 1};

static void test_layout_is_dlpack(void **unused)
{
  (void)unused;
  assert_int_equal(offsetof(LatheRtTensor, data), 0);
  assert_int_equal(offsetof(LatheRtTensor, device), 8);
  assert_int_equal(offsetof(LatheRtTensor, ndim), 16);
  assert_int_equal(offsetof(LatheRtTensor, dtype), 20);
  assert_int_equal(offsetof(LatheRtTensor, shape), 24);
  assert_int_equal(offsetof(LatheRtTensor, strides), 32);
  assert_int_equal(offsetof(LatheRtTensor, byte_offset), 40);
  assert_int_equal(sizeof(LatheRtTensor), 48);
}

static void test_new_is_zero_and_aligned(void **unused)
{
  (void)unused;
  LatheRtTensor *t;
  LatheRtError err;
  assert_int_equal(lathe_rt_tensor_new(cpu0, f32, 2, (int64_t[]){3, 5}, &t, &err), LATHE_RT_OK);
  assert_int_equal((uintptr_t)t->data % 64, 0);
  for (int i = 0; i < 15; i++) assert_true(((float *)t->data)[i] == 0);
  size_t bytes;
  assert_int_equal(lathe_rt_tensor_bytes(t, &bytes, &err), LATHE_RT_OK);
  assert_int_equal(bytes, 60);
  lathe_rt_tensor_free(t);
  lathe_rt_tensor_free(NULL);
}

static void test_bytes_by_dtype(void **unused)
{
  (void)unused;
  int64_t shape[] = {7};
  struct {
    LatheRtDType t;
    size_t bytes;
  } cases[] = {{{1, 1, 1}, 7},   {{6, 8, 1}, 7},   {{0, 4, 1}, 7},    {{2, 16, 1}, 14},
               {{4, 16, 1}, 14}, {{0, 64, 1}, 56}, {{2, 32, 4}, 112}, {{10, 8, 1}, 7}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    LatheRtTensor t = {.ndim = 1, .dtype = cases[i].t, .shape = shape};
    size_t bytes = 0;
    assert_int_equal(lathe_rt_tensor_bytes(&t, &bytes, NULL), LATHE_RT_OK);
    assert_int_equal(bytes, cases[i].bytes);
  }
  LatheRtTensor scalar = {.ndim = 0, .dtype = f32};
  size_t bytes = 0;
  assert_int_equal(lathe_rt_tensor_bytes(&scalar, &bytes, NULL), LATHE_RT_OK);
  assert_int_equal(bytes, 4);
}

static void expect_refused(LatheRtDType t, int32_t ndim, const int64_t *shape, LatheRtCode code, const char *text)
{
  LatheRtTensor *out = (LatheRtTensor *)&out;
  LatheRtError err = {""};
  assert_int_equal(lathe_rt_tensor_new(cpu0, t, ndim, shape, &out, &err), code);
  assert_null(out);
  assert_string_equal(err.text, text);
}

static void test_bad_shapes(void **unused)
{
  (void)unused;
  expect_refused(f32, 1, (int64_t[]){-1}, LATHE_RT_ARGUMENT, "tensor: dimension 0 is -1, wants 0 or more");
  expect_refused(f32, 3, (int64_t[]){1 << 30, 1 << 30, 1 << 30}, LATHE_RT_ARGUMENT,
                 "tensor: the product of its dimensions is more bytes than memory can have");
  expect_refused(i8, 1, (int64_t[]){INT64_MAX}, LATHE_RT_MEMORY,
                 "tensor_new: out of memory for 9223372036854775807 bytes");
  expect_refused(f32, 65, (int64_t[65]){0}, LATHE_RT_ARGUMENT, "tensor: rank 65, wants 0 to 16");
  expect_refused(f32, -1, NULL, LATHE_RT_ARGUMENT, "tensor: rank -1, wants 0 to 16");
  expect_refused(f32, 1, NULL, LATHE_RT_ARGUMENT, "tensor: rank 1 but no shape");
  expect_refused((LatheRtDType){2, 0, 1}, 0, NULL, LATHE_RT_ARGUMENT,
                 "tensor: dtype of 0 bits and 1 lanes does not exist");
  expect_refused((LatheRtDType){2, 32, 0}, 0, NULL, LATHE_RT_ARGUMENT,
                 "tensor: dtype of 32 bits and 0 lanes does not exist");
}

static void test_empty(void **unused)
{
  (void)unused;
  LatheRtTensor *t;
  int64_t shape[] = {INT64_MAX, 0, INT64_MAX};
  assert_int_equal(lathe_rt_tensor_new(cpu0, f32, 3, shape, &t, NULL), LATHE_RT_OK);
  size_t bytes = 1;
  assert_int_equal(lathe_rt_tensor_bytes(t, &bytes, NULL), LATHE_RT_OK);
  assert_int_equal(bytes, 0);
  assert_int_equal(lathe_rt_tensor_copy(t, t, NULL), LATHE_RT_OK);
  lathe_rt_tensor_free(t);
}

static void test_copy_strided(void **unused)
{
  (void)unused;
  /* a[i][j] = 10*i + j; the source is its transpose, with rows backwards and an offset */
  int16_t a[3][4];
  int16_t out[4][3] = {{0}};
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 4; j++) a[i][j] = (int16_t)(10 * i + j);
  LatheRtDType i16 = {0, 16, 1};
  LatheRtTensor from = {.data = a,
                        .device = {LATHE_RT_CPU, 0},
                        .ndim = 2,
                        .dtype = i16,
                        .shape = (int64_t[]){4, 3},
                        .strides = (int64_t[]){-1, 4},
                        .byte_offset = 3 * sizeof(int16_t)};
  LatheRtTensor to = {.data = out, .device = {LATHE_RT_CPU, 0}, .ndim = 2, .dtype = i16, .shape = (int64_t[]){4, 3}};
  assert_int_equal(lathe_rt_tensor_copy(&from, &to, NULL), LATHE_RT_OK);
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 3; j++) assert_int_equal(out[i][j], 10 * j + (3 - i));
  /* and back into a strided destination */
  memset(a, 0, sizeof a);
  assert_int_equal(lathe_rt_tensor_copy(&to, &from, NULL), LATHE_RT_OK);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 4; j++) assert_int_equal(a[i][j], 10 * i + j);
}

static void test_copy_broadcast_source(void **unused)
{
  (void)unused;
  float x[2] = {3, 4};
  float out[3][2];
  LatheRtTensor from = {.data = x,
                        .device = {LATHE_RT_CPU, 0},
                        .ndim = 2,
                        .dtype = f32,
                        .shape = (int64_t[]){3, 2},
                        .strides = (int64_t[]){0, 1}};
  LatheRtTensor to = {.data = out, .device = {LATHE_RT_CPU, 0}, .ndim = 2, .dtype = f32, .shape = (int64_t[]){3, 2}};
  assert_int_equal(lathe_rt_tensor_copy(&from, &to, NULL), LATHE_RT_OK);
  for (int i = 0; i < 3; i++) assert_true(out[i][0] == 3 && out[i][1] == 4);
}

static void test_copy_refused(void **unused)
{
  (void)unused;
  float x[6] = {0};
  LatheRtError err;
  LatheRtTensor a = {.data = x, .device = {LATHE_RT_CPU, 0}, .ndim = 2, .dtype = f32, .shape = (int64_t[]){2, 3}};
  LatheRtTensor b = a;
  b.dtype = (LatheRtDType){0, 32, 1};
  assert_int_equal(lathe_rt_tensor_copy(&a, &b, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "tensor_copy: source is float32, destination int32");
  b = a;
  b.ndim = 1;
  assert_int_equal(lathe_rt_tensor_copy(&a, &b, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "tensor_copy: source has shape (2, 3), destination (2,)");
  b = a;
  b.shape = (int64_t[]){3, 2};
  assert_int_equal(lathe_rt_tensor_copy(&a, &b, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "tensor_copy: source has shape (2, 3), destination (3, 2)");
  b = a;
  b.data = NULL;
  assert_int_equal(lathe_rt_tensor_copy(&a, &b, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "tensor_copy: the destination has no data");
  b = a;
  b.device = (LatheRtDevice){LATHE_RT_CUDA, 3};
  assert_int_equal(lathe_rt_tensor_copy(&a, &b, &err), LATHE_RT_UNSUPPORTED);
  assert_string_equal(err.text, "cuda(3) is not a device of this process; lathe_rt_device_add adds one");
}

/* A device whose memory holds every byte complemented: host code cannot read it by accident. */
static int live;
static LatheRtCode far_alloc(void *user, int32_t id, size_t bytes, size_t align, void **out, LatheRtError *err)
{
  (void)user, (void)align, (void)err;
  assert_int_equal(id, 1);
  live++;
  *out = malloc(bytes);
  return LATHE_RT_OK;
}
static void far_free(void *user, int32_t id, void *p)
{
  (void)user, (void)id;
  live--;
  free(p);
}
static LatheRtCode far_copy(void *user, LatheRtPlace to, LatheRtPlace from, size_t bytes, void *stream,
                            LatheRtError *err)
{
  if (*(int *)user) {
    snprintf(err->text, sizeof err->text, "a wire is cut");
    return LATHE_RT_DEVICE;
  }
  assert_null(stream);
  if (to.device.type == from.device.type) return LATHE_RT_UNSUPPORTED; /* through the host, then */
  const unsigned char *src = (const unsigned char *)from.data + from.offset;
  for (size_t i = 0; i < bytes; i++) ((unsigned char *)to.data + to.offset)[i] = (unsigned char)~src[i];
  return LATHE_RT_OK;
}
static LatheRtCode far_wait(void *user, int32_t id, void *stream, LatheRtError *err)
{
  (void)user, (void)id, (void)stream, (void)err;
  return LATHE_RT_OK;
}

static void test_other_device(void **unused)
{
  (void)unused;
  int fail = 0;
  LatheRtError err;
  LatheRtDeviceApi far = {
    LATHE_RT_INIT(far), .type = LATHE_RT_CUDA, .count = 2,       .align = 256,     .name = "cuda",         .arch = "",
    .user = &fail,      .alloc = far_alloc,    .free = far_free, .copy = far_copy, .synchronise = far_wait};
  LatheRtDevice there = {LATHE_RT_CUDA, 1};
  LatheRtTensor *a, *b, *c, *d;
  assert_int_equal(lathe_rt_device_add(&far, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_tensor_new(cpu0, f32, 1, (int64_t[]){3000}, &a, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_tensor_new(there, f32, 1, (int64_t[]){3000}, &b, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_tensor_new(there, f32, 1, (int64_t[]){3000}, &c, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_tensor_new(cpu0, f32, 1, (int64_t[]){3000}, &d, &err), LATHE_RT_OK);
  assert_int_equal(((unsigned char *)b->data)[11999], 0xff); /* zero, as that device stores it */
  for (int i = 0; i < 3000; i++) ((float *)a->data)[i] = (float)i;
  assert_int_equal(lathe_rt_tensor_copy(a, b, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_tensor_copy(b, c, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_tensor_copy(c, d, &err), LATHE_RT_OK);
  for (int i = 0; i < 3000; i++) assert_true(((float *)d->data)[i] == (float)i);
  int64_t two[] = {2};
  LatheRtTensor every_other = *a;
  every_other.shape = (int64_t[]){1500};
  every_other.strides = two;
  LatheRtTensor half = *b;
  half.shape = every_other.shape;
  assert_int_equal(lathe_rt_tensor_copy(&every_other, &half, &err), LATHE_RT_UNSUPPORTED);
  assert_string_equal(
      err.text, "tensor_copy: a strided tensor cannot go to or from another device; copy it to a compact one first");
  fail = 1;
  assert_int_equal(lathe_rt_tensor_copy(a, b, &err), LATHE_RT_DEVICE);
  assert_string_equal(err.text, "cuda(1) reported a failure while it copied: a wire is cut");
  LatheRtTensor *none;
  assert_int_equal(lathe_rt_tensor_new(there, f32, 1, (int64_t[]){3}, &none, &err), LATHE_RT_DEVICE);
  assert_string_equal(err.text, "tensor_new: cuda(1) reported a failure while it copied: a wire is cut");
  assert_null(none);
  lathe_rt_tensor_free(a);
  lathe_rt_tensor_free(b);
  lathe_rt_tensor_free(c);
  lathe_rt_tensor_free(d);
  assert_int_equal(live, 0);
  assert_int_equal(lathe_rt_tensor_new((LatheRtDevice){LATHE_RT_CUDA, 2}, f32, 1, (int64_t[]){3}, &none, &err),
                   LATHE_RT_UNSUPPORTED);
  assert_string_equal(err.text, "cuda(2) is not a device of this process, which has 2 of them");
  struct {
    LatheRtDeviceApi now;
    void *later;
  } newer = {far, NULL}; /* a caller that knows more fields than this runtime */
  newer.now.size = sizeof newer;
  assert_int_equal(lathe_rt_device_add(&newer.now, &err), LATHE_RT_OK);
  far.stream_free = far_free;
  assert_int_equal(lathe_rt_device_add(&far, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "device_add: cuda has some functions for streams and events, but not all");
  far.copy = NULL;
  assert_int_equal(lathe_rt_device_add(&far, &err), LATHE_RT_ARGUMENT);
  far.size--;
  assert_int_equal(lathe_rt_device_add(&far, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "set its size"));
  assert_int_equal(lathe_rt_device_add(lathe_rt_device_api(LATHE_RT_CPU), &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "device_add: cpu(0) is always there");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_layout_is_dlpack),
    cmocka_unit_test(test_new_is_zero_and_aligned),
    cmocka_unit_test(test_bytes_by_dtype),
    cmocka_unit_test(test_bad_shapes),
    cmocka_unit_test(test_empty),
    cmocka_unit_test(test_copy_strided),
    cmocka_unit_test(test_copy_broadcast_source),
    cmocka_unit_test(test_copy_refused),
    cmocka_unit_test(test_other_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
