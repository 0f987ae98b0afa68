/* api_micro.c: projects for microcontrollers. */
#include "api/api.h"
#include "driver/driver.h"

typedef struct Rows {
  Call *c;
  LatheValue *row;
  int n;
} Rows;

static void count_board(void *env, const char *name, const char *cpus)
{
  (void)name, (void)cpus;
  ((Rows *)env)->n++;
}

static void take_board(void *env, const char *name, const char *cpus)
{
  Rows *r = env;
  LatheValue *row = api_val_list(r->c, 2, &r->row[r->n++]);
  row[0] = api_val_str(r->c, name);
  row[1] = api_val_str(r->c, cpus);
}

static void boards(Call *c)
{
  Rows rows = {.c = c};
  micro_each_board(count_board, &rows);
  rows.row = api_val_list(c, rows.n, c->out);
  rows.n = 0;
  micro_each_board(take_board, &rows);
}

static int read_vectors(Call *c, int i, const MicroBytes **out)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  MicroBytes *bytes = arena_array(scratch(c->ctx), MicroBytes, n + 1);
  for (int k = 0; k < n; k++) {
    char *copy = arena_alloc(scratch(c->ctx), (size_t)v[k].n + 8); /* where every element is aligned */
    memcpy(copy, v[k].n ? v[k].u.s : "", (size_t)v[k].n);
    bytes[k] = (MicroBytes){copy, (size_t)v[k].n};
  }
  *out = bytes;
  return n;
}

static void project(Call *c)
{
  MicroProject p = {
    .folder = api_arg_str(c, 1), .name = api_arg_str(c, 2), .board = api_arg_str(c, 3), .layout = api_arg_str(c, 4)};
  p.ninputs = read_vectors(c, 5, &p.input);
  p.noutputs = read_vectors(c, 6, &p.expected);
  if (!*p.name || strpbrk(p.name, "/\n \t@$#:\\\""))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "'%s' is no name for the files of a project", p.name);
  compiled_micro_project((Compiled *)api_arg_ptr(c, 0), &p);
}

static void build(Call *c) { *c->out = api_val_str(c, micro_build(c->ctx, scratch(c->ctx), api_arg_str(c, 0))); }
static void run(Call *c) { *c->out = api_val_str(c, micro_run(c->ctx, scratch(c->ctx), api_arg_str(c, 0))); }

static void size(Call *c)
{
  MicroSizes s = micro_size(c->ctx, api_arg_str(c, 0));
  LatheValue *row = api_val_list(c, 4, c->out);
  row[0] = api_val_int(s.code);
  row[1] = api_val_int(s.constants);
  row[2] = api_val_int(s.written);
  row[3] = api_val_int(s.stack);
}

const ApiFunction api_micro_functions[] = {
  {"micro_boards", " -> list[list[str]]", "boards that QEMU has: name, processors whose programs run on it", boards},
  {"micro_project",
   "c: compiled, path: str, name: str, board: str, layout: str, inputs: list[str], expected: list[str] -> none",
   "writes a project around a program ahead of time: bare (for QEMU), zephyr, arduino or platformio; vectors are the "
   "bytes of the tensors",
   project},
  {"micro_build", "path: str -> str", "builds a bare-metal project; the program", build},
  {"micro_run", "path: str -> str", "runs it in QEMU; the lines that it says: layer, run, output, check", run},
  {"micro_size", "path: str -> list[int]", "bytes of its model: code, constants, what is written, stack", size},
  {0},
};
