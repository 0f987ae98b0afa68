/* test_base.c: errors unwind in order, arenas, maps, text, files, processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

static char order[64];
static void note(void *arg) { strcat(order, arg); }

static void raise_inside(Ctx *ctx, void *arg)
{
  (void)arg;
  defer(ctx, note, "a");
  defer(ctx, note, "b");
  arena_alloc(scratch(ctx), 100000);
  raise(ctx, ERR_SHAPE, ((Loc){"model.py", 3, 7}), "x has %d, y wants %d", 1, 2);
}

static void raise_nested(Ctx *ctx, void *arg)
{
  (void)arg;
  defer(ctx, note, "c");
  assert_int_equal(protect(ctx, raise_inside, NULL), ERR_SHAPE);
  assert_string_equal(order, "ba"); /* newest first, and not c */
  error_reraise(ctx);
}

static void errors_unwind_in_order(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  order[0] = 0;
  assert_int_equal(protect(ctx, raise_nested, NULL), ERR_SHAPE);
  assert_string_equal(order, "bac");
  assert_string_equal(error_message(ctx), "x has 1, y wants 2");
  assert_string_equal(error_loc(ctx).file, "model.py");
  assert_int_equal(error_loc(ctx).line, 3);
  assert_string_equal(error_kind_name(error_kind(ctx)), "ShapeError");
  ctx_free(ctx);
}

static void use_everything(Ctx *ctx, void *arg)
{
  (void)arg;
  Arena *arena = scratch(ctx);
  Map map = {0};
  StrMap names = {0};
  Text text = text_new(arena);
  for (intptr_t i = 1; i <= 100; i++) {
    map_put(arena, &map, (void *)i, (void *)(i * 2));
    strmap_put(arena, &names, arena_printf(arena, "n%d", (int)i), (void *)i);
    text_printf(&text, "%d,", (int)i);
    defer(ctx, note, "");
  }
  assert_ptr_equal(map_get(&map, (void *)50), (void *)100);
  assert_ptr_equal(strmap_get(&names, "n77"), (void *)77);
}

static void every_allocation_may_fail(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  order[0] = 0;
  int failures = 0;
  for (int64_t n = 1;; n++) {
    mem_fail_after(ctx, n);
    ErrKind kind = protect(ctx, use_everything, NULL);
    mem_fail_after(ctx, 0);
    if (kind == ERR_NONE) break;
    assert_int_equal(kind, ERR_MEMORY);
    failures++;
  }
  assert_true(failures > 100);
  ctx_free(ctx);
}

static void maps_keep_order_and_forget(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  Arena *arena = ctx_arena(ctx);
  Map map = {0};
  for (intptr_t i = 1000; i > 0; i--) map_put(arena, &map, (void *)i, (void *)i);
  map_put(arena, &map, (void *)500, (void *)1);
  map_del(&map, (void *)10);
  assert_int_equal(map.key[0], 1000);
  assert_int_equal(map.n, 1000);
  assert_ptr_equal(map_get(&map, (void *)500), (void *)1);
  assert_false(map_has(&map, (void *)10));
  assert_true(map_has(&map, (void *)9));
  map_put(arena, &map, (void *)10, (void *)7);
  assert_ptr_equal(map_get(&map, (void *)10), (void *)7);
  ctx_free(ctx);
}

static void integers_floor(void **state)
{
  (void)state;
  assert_int_equal(int_floordiv(-7, 2), -4);
  assert_int_equal(int_floormod(-7, 2), 1);
  assert_int_equal(int_floordiv(7, -2), -4);
  assert_int_equal(int_floormod(7, -2), -1);
  assert_int_equal(int_floordiv(-8, 2), -4);
  assert_int_equal(int_floormod(INT64_MIN, -1), 0);
  assert_int_equal(int_gcd(-12, 18), 6);
  int64_t r;
  assert_false(int_mul(INT64_MAX, 2, &r));
  assert_true(int_mul(1 << 20, 1 << 20, &r));
  assert_int_equal(r, (int64_t)1 << 40);
}

static void text_reads_back(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  Arena *arena = ctx_arena(ctx);
  double values[] = {0.1, 1.0 / 3, 1e300, 5e-324, -0.0, 123456789.0, 1024};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    assert_memory_equal(&(double){strtod(text_double(arena, values[i]), NULL)}, &values[i], 8);
  assert_string_equal(text_double(arena, 1024), "1024");
  Text t = text_new(arena);
  text_quote(&t, "a\"b\\c\n\x01");
  assert_string_equal(text_str(&t), "\"a\\\"b\\\\c\\n\\u0001\"");
  const char *words[] = {"vectorize", "parallel", "unroll"};
  assert_string_equal(str_nearest("vectorise", words, 3), "vectorize");
  assert_null(str_nearest("zebra", words, 3));
  ctx_free(ctx);
}

static void read_missing(Ctx *ctx, void *arg) { file_read(ctx_arena(ctx), arg, NULL, 0); }

static void files_and_processes(Ctx *ctx, void *arg)
{
  char *kept = arg;
  const char *dir = file_temp_dir(ctx);
  strcpy(kept, dir);
  const char *path = arena_printf(scratch(ctx), "%s/x", dir);
  file_write(ctx, path, "hello", 5);
  size_t n;
  assert_string_equal(file_read(ctx_arena(ctx), path, &n, 0), "hello");
  assert_int_equal(n, 5);
  const char *out;
  const char *argv[] = {"sh", "-c", "echo out; echo err >&2; exit 3", NULL};
  assert_int_equal(process_run(scratch(ctx), argv, &out), 3);
  assert_string_equal(out, "out\nerr\n");
  file_check_output(ctx, path);
  file_check_output(ctx, arena_printf(scratch(ctx), "%s/new", dir));
  assert_true(process_exists(scratch(ctx), "sh") && process_exists(scratch(ctx), "/bin/sh"));
  assert_false(process_exists(scratch(ctx), "no such program") || process_exists(scratch(ctx), path));
}

static void check_output(Ctx *ctx, void *arg) { file_check_output(ctx, arg); }

static void files_come_and_go(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  char kept[512];
  assert_int_equal(protect(ctx, files_and_processes, kept), ERR_NONE);
  assert_int_not_equal(access(kept, F_OK), 0); /* the folder went with the scope */
  assert_int_equal(protect(ctx, read_missing, "/nonexistent/file"), ERR_IO);
  assert_string_equal(error_message(ctx), "cannot read '/nonexistent/file': No such file or directory");
  assert_int_equal(protect(ctx, check_output, "/nonexistent/file"), ERR_IO);
  assert_string_equal(error_message(ctx),
                      "'/nonexistent/file' cannot be written: the folder '/nonexistent' does not exist");
  assert_int_equal(protect(ctx, check_output, "/bin/sh/x"), ERR_IO);
  assert_string_equal(error_message(ctx), "'/bin/sh/x' cannot be written: '/bin/sh' is no folder");
  assert_int_equal(protect(ctx, check_output, "/tmp"), ERR_IO);
  assert_string_equal(error_message(ctx), "'/tmp' cannot be written: it is a folder");
  ctx_free(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(errors_unwind_in_order),
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(maps_keep_order_and_forget),
    cmocka_unit_test(integers_floor),
    cmocka_unit_test(text_reads_back),
    cmocka_unit_test(files_come_and_go),
  };
  return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
