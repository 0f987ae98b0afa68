/* aot_mlf.c: a program ahead of time in TVM's model library format: a tar archive of
 *
 *   README.md                          what is in it and how to use it
 *   metadata.json                      model, target, memory, for tools
 *   codegen/host/src/NAME.c            the program
 *   codegen/host/include/NAME.h
 *   parameters/NAME.params             the weights, as TVM's save_param_dict writes them
 *   src/NAME.relay                     the graph that the program was made from
 *
 * The same model gives the same bytes: times are zero. */
#include "driver/aot.h"
#include "driver/linkable.h"

/* ---- tar ------------------------------------------------------------------------------------------- */

static void tar_file(Text *tar, const char *path, const void *bytes, size_t n)
{
  char head[512] = {0};
  unsigned sum = 0;
  snprintf(head, 100, "./%s", path);
  memcpy(head + 100, "0000644", 8);
  memcpy(head + 108, "0000000", 8);
  memcpy(head + 116, "0000000", 8);
  snprintf(head + 124, 12, "%011llo", (unsigned long long)n);
  memcpy(head + 136, "00000000000", 12);
  head[156] = '0';
  memcpy(head + 257, "ustar\00000", 8);
  memset(head + 148, ' ', 8);
  for (int i = 0; i < 512; i++) sum += (unsigned char)head[i];
  snprintf(head + 148, 8, "%06o", sum);
  text_addn(tar, head, 512);
  text_addn(tar, bytes, n);
  memset(head, 0, sizeof head);
  text_addn(tar, head, (512 - n % 512) % 512);
}

/* ---- parameters: numbers are little endian -------------------------------------------------------- */

static void put(Text *t, uint64_t v, int bytes)
{
  for (int i = 0; i < bytes; i++) text_char(t, (char)(v >> 8 * i & 255));
}

static void put_params(const Aot *a, Text *t)
{
  const Program *p = a->p;
  uint64_t n = 0;
  for (int i = 0; i < p->constant.n; i++) n += a->uses_const[i];
  put(t, UINT64_C(0xF7E58D4F05049CB7), 8);
  put(t, 0, 8);
  put(t, n, 8);
  for (int i = 0; i < p->constant.n; i++) {
    if (!a->uses_const[i]) continue;
    const char *name = arena_printf(t->arena, "w%d", i);
    put(t, strlen(name), 8);
    text_add(t, name);
  }
  put(t, n, 8);
  for (int i = 0; i < p->constant.n; i++) {
    if (!a->uses_const[i]) continue;
    const ConstData *d = p->constant.v[i].data;
    LatheRtDType dt = code_rt_dtype(d->dtype);
    put(t, UINT64_C(0xDD5E40F096B4A13F), 8);
    put(t, 0, 8);
    put(t, 1, 4); /* cpu */
    put(t, 0, 4);
    put(t, (uint64_t)d->ndim, 4);
    put(t, dt.code, 1);
    put(t, dt.bits, 1);
    put(t, dt.lanes, 2);
    for (int k = 0; k < d->ndim; k++) put(t, (uint64_t)d->shape[k], 8);
    put(t, d->bytes, 8);
    text_addn(t, d->data, d->bytes);
  }
}

/* ---- metadata ----------------------------------------------------------------------------------------- */

static void put_ports(Text *t, const char *key, int n, const ProgPort *port)
{
  text_printf(t, "        \"%s\": [", key);
  for (int i = 0; i < n; i++) {
    text_add(t, i ? ", {\"name\": " : "{\"name\": ");
    text_quote(t, port[i].name);
    text_printf(t, ", \"dtype\": \"%s\", \"shape\": [", dtype_name(t->arena, port[i].dtype));
    for (int d = 0; d < port[i].ndim; d++) text_printf(t, "%s%" PRId64, d ? ", " : "", port[i].dim[d]);
    text_add(t, "]}");
  }
  text_add(t, "],\n");
}

static void put_entry(const Aot *a, Text *t, int k)
{
  const AotEntry *e = &a->entry[k];
  text_add(t, "          {\"device\": 1, \"function_name\": ");
  text_quote(t, e->e->name);
  text_printf(t,
              ", \"workspace_size_bytes\": %" PRId64 ", \"workspace_bound_bytes\": %" PRId64
              ", \"io_size_bytes\": %" PRId64 ", \"constants_size_bytes\": %" PRId64 "}%s\n",
              e->plan.bytes, e->plan.bound, e->io_bytes, a->weights_bytes, k + 1 < a->p->entry.n ? "," : "");
}

static const char *metadata(const Aot *a, Arena *arena, const char *name)
{
  Text t = text_new(arena);
  const ProgEntry *main_entry = a->entry[0].e;
  text_add(&t, "{\n  \"version\": 7,\n  \"modules\": {\n    ");
  text_quote(&t, name);
  text_add(&t, ": {\n      \"model_name\": ");
  text_quote(&t, name);
  text_add(&t, ",\n      \"export_datetime\": \"1970-01-01 00:00:00Z\",\n      \"executors\": [\"aot\"],\n"
               "      \"style\": \"full-model\",\n      \"target\": [");
  text_quote(&t, a->p->target->text);
  text_add(&t, "],\n      \"memory\": {\n        \"functions\": {\"main\": [\n");
  for (int i = 0; i < a->p->entry.n; i++) put_entry(a, &t, i);
  text_add(&t, "        ], \"operator_functions\": [\n");
  for (int i = 0; i < a->p->kernel.n; i++)
    text_printf(
        &t,
        "          {\"function_name\": \"%s\", \"workspace\": [{\"device\": 1, \"workspace_size_bytes\": %" PRId64
        "}]}%s\n",
        a->code.name[i], aot_scratch(a, i), i + 1 < a->p->kernel.n ? "," : "");
  text_add(&t, "        ]},\n        \"pools\": [");
  for (int i = 0; i < a->npools; i++)
    text_printf(&t, "%s{\"name\": \"%s\", \"size_bytes\": %" PRId64 "}", i ? ", " : "", a->pool[i].name,
                a->pool_bytes[i]);
  text_add(&t, "],\n");
  put_ports(&t, "inputs", main_entry->input.n, main_entry->input.v);
  put_ports(&t, "outputs", main_entry->output.n, main_entry->output.v);
  text_add(&t, "        \"alignment\": 8\n      }\n    }\n  }\n}\n");
  return text_str(&t);
}

static const char *readme(const Aot *a, Arena *arena, const char *name)
{
  return arena_printf(
      arena,
      "# %s\n\nA model compiled by Lathe, ahead of time for target `%s`: plain C that needs no runtime.\n\n"
      "- `codegen/host/include/%s.h` says how it is called, `codegen/host/src/` has the program;\n"
      "- `metadata.json` has inputs, outputs and memory for tools;\n"
      "- `parameters/%s.params` has the weights once more, as TVM's `save_param_dict` writes them (the program has its "
      "own);\n"
      "- `src/%s.relay` is the graph that the program was made from.\n\n"
      "    cc -O2 -Icodegen/host/include program.c codegen/host/src/%s.c%s\n",
      name, a->p->target->text, name, name, name, name, a->code.uses_math ? " -lm" : "");
}

void aot_export_tar(Aot *a, const char *path, const char *name, const AotFiles *files)
{
  Ctx *ctx = a->p->ctx;
  Arena *arena = scratch(ctx);
  Text tar = text_new(arena);
  const char *text = readme(a, arena, name);
  tar_file(&tar, "README.md", text, strlen(text));
  text = metadata(a, arena, name);
  tar_file(&tar, "metadata.json", text, strlen(text));
  for (int i = 0; i < files->n; i++) {
    const AotFile *f = &files->v[i];
    tar_file(&tar, arena_printf(arena, "codegen/host/%s/%s", str_ends(f->name, ".h") ? "include" : "src", f->name),
             f->bytes, f->n);
  }
  Text params = text_new(arena);
  put_params(a, &params);
  tar_file(&tar, arena_printf(arena, "parameters/%s.params", name), params.s, params.n);
  text = graph_print_module_with(arena, a->p->m, GRAPH_TEXT_TYPES);
  tar_file(&tar, arena_printf(arena, "src/%s.relay", name), text, strlen(text));
  static const char end[1024];
  text_addn(&tar, end, sizeof end);
  file_write(ctx, path, tar.s, tar.n);
}
