/* aot_report.c: what a program ahead of time costs, before anything is flashed: flash, RAM, multiply-accumulates of
 * each layer, and a picture of memory over time.
 *
 * A layer is a call of a kernel.  The picture has time to the right, a column for each call, and bytes upwards. */
#include <math.h>

#include "driver/aot.h"

/* Multiply-accumulates: half the operations of operators that have a formula of their own (products, convolutions). */
static double macs_of(const Aot *a, const ProgIns *ins)
{
  const Node *func = ins->node >= 0 ? a->p->node.v[ins->node].func : NULL;
  const Node **node;
  double flops = 0;
  int n = func && func->kind == N_FUNC ? graph_post_order(scratch(a->p->ctx), func, &node) : 0;
  for (int i = 0; i < n; i++)
    if (node[i]->kind == N_CALL && node[i]->u.call.op->flops) flops += impl_flops(node[i]);
  return flops / 2;
}

/* Bytes of pools that are in use at an instruction; of pool `pool`, -1: of all. */
static int64_t live_at(const AotEntry *e, int at, int pool)
{
  int64_t n = 0; /* tensors of one block may lie on each other, so bytes are counted, not tensors */
  int64_t end = -1;
  for (int k = 0; k < e->plan_pools; k++) {
    if (pool >= 0 && k != pool) continue;
    end = 0;
    for (bool more = true; more;) {
      int64_t next = INT64_MAX; /* the lowest tensor that begins at or reaches beyond `end` */
      int64_t reach = end;
      more = false;
      for (int i = 0; i < e->tensor.n; i++) {
        const AotTensor *t = &e->tensor.v[i];
        if (t->place.kind != AT_POOL || t->place.index != k || t->begin > at || t->end < at) continue;
        int64_t lo = t->place.offset;
        int64_t hi = lo + t->bytes;
        if (hi <= end) continue;
        more = true;
        if (lo <= end) {
          if (hi > reach) reach = hi;
        } else if (lo < next) next = lo;
      }
      if (reach > end) {
        n += reach - end;
        end = reach;
      } else if (more) end = next;
    }
  }
  return n;
}

static int64_t flash_bytes(const Aot *a) { return a->weights_bytes; }

/* ---- text -------------------------------------------------------------------------------------------- */

static const char *bytes_text(Arena *arena, int64_t n)
{
  if (n < 10000) return arena_printf(arena, "%" PRId64 " B", n);
  if (n < 10000000) return arena_printf(arena, "%.1f KiB", (double)n / 1024);
  return arena_printf(arena, "%.1f MiB", (double)n / 1024 / 1024);
}

/* Cycles of a run in which bytes of the pool are on their way. */
static double moving_cycles(const Aot *a, const AotEntry *e, int pool)
{
  return e->moved[pool].read / a->pool[pool].read + e->moved[pool].written / a->pool[pool].write;
}

static void put_plan(const Aot *a, const AotEntry *e, Text *t)
{
  Arena *arena = t->arena;
  double over = e->plan.bound ? 100.0 * (double)(e->plan.bytes - e->plan.bound) / (double)e->plan.bound : 0;
  text_printf(t, "workspace  %10" PRId64 "  no plan needs less than %" PRId64, e->plan.bytes, e->plan.bound);
  if (e->plan.bytes == e->plan.bound) text_add(t, ": reached\n");
  else text_printf(t, ": %.1f %% above%s\n", over, e->plan.optimal ? ", and nothing smaller exists" : "");
  if (a->options.patches)
    text_printf(t, "first layers %8" PRId64 "  in %" PRId64 " bands of rows\n", a->options.layers, a->options.patches);
  for (int i = 0; a->options.npools && i < a->npools; i++) {
    text_printf(t, "  %-8s %10" PRId64, a->pool[i].name, e->plan.pool[i]);
    if (a->pool[i].size) text_printf(t, "  of %s", bytes_text(arena, a->pool[i].size));
    if (a->pool[i].read > 0)
      text_printf(t, "  %.0f bytes read and %.0f written in %.0f cycles", e->moved[i].read, e->moved[i].written,
                  moving_cycles(a, e, i));
    text_add(t, "\n");
  }
  text_printf(t, "in and out %10" PRId64 "  %s\n", e->io_bytes,
              a->options.io_inside ? "lie in the workspace" : "arrays of the caller's");
}

static void put_layers(const Aot *a, const AotEntry *e, Text *t)
{
  double all = 0;
  for (int i = 0; i < e->f->ins.n; i++)
    if (e->f->ins.v[i].op == MO_KERNEL) all += macs_of(a, &e->f->ins.v[i]);
  double cycles = 0;
  text_printf(t, "\n%-44s %12s %6s %12s %10s %10s\n", "layer", "MACs", "%", "cycles", "live", "scratch");
  for (int i = 0; i < e->f->ins.n; i++) {
    const ProgIns *ins = &e->f->ins.v[i];
    if (ins->op != MO_KERNEL) continue;
    double macs = macs_of(a, ins);
    double own = aot_cycles(a, ins->index);
    cycles += own;
    text_printf(t, "%-44.44s %12.0f %6.1f %12.0f %10" PRId64 " %10" PRId64 "\n", aot_node_name(a->p, ins), macs,
                all > 0 ? 100 * macs / all : 0, own, live_at(e, i, -1), aot_scratch(a, ins->index));
  }
  text_printf(t, "%-44s %12.0f %6s %12.0f  predicted\n", "all", all, "", cycles);
}

/* A column for each call (or some calls, the most of them), eighths of a row tall. */
static void put_picture(const AotEntry *e, Text *t)
{
  enum { WIDTH = 72, HEIGHT = 12 };
  static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  int64_t column[WIDTH] = {0};
  int ncall = 0;
  for (int i = 0; i < e->f->ins.n; i++) ncall += e->f->ins.v[i].op == MO_KERNEL;
  if (!ncall || !e->plan.bytes) return;
  int width = ncall < WIDTH ? ncall : WIDTH;
  int call = 0;
  for (int i = 0; i < e->f->ins.n; i++) {
    if (e->f->ins.v[i].op != MO_KERNEL) continue;
    int64_t live = live_at(e, i, -1);
    int at = (int)((int64_t)call++ * width / ncall);
    if (live > column[at]) column[at] = live;
  }
  text_printf(t, "\nmemory of the workspace over the calls; the top is %" PRId64 " bytes\n", e->plan.bytes);
  for (int row = HEIGHT - 1; row >= 0; row--) {
    text_add(t, "│");
    for (int c = 0; c < width; c++) {
      int64_t eighth = column[c] * HEIGHT * 8 / e->plan.bytes - (int64_t)row * 8;
      if (column[c] && row == 0 && eighth < 1) eighth = 1;
      text_add(t, eighths[eighth < 0 ? 0 : eighth > 8 ? 8 : eighth]);
    }
    text_add(t, "\n");
  }
  text_add(t, "└");
  for (int c = 0; c < width; c++) text_add(t, "─");
  text_add(t, "▶\n");
}

static const char *report_text(const Aot *a, Arena *arena)
{
  Text t = text_new(arena);
  text_printf(&t, "target     %s\n", a->p->target->text);
  text_printf(&t, "flash      %10" PRId64 "  weights", flash_bytes(a));
  if (a->code_bytes >= 0) text_printf(&t, "\n           %10" PRId64 "  code (%s)", a->code_bytes, a->measured_with);
  else text_printf(&t, "; code is not measured: %s", a->measured_with);
  for (int i = 0; i < a->p->entry.n; i++) {
    text_add(&t, "\n");
    if (a->p->entry.n > 1) text_printf(&t, "\nentry %s\n", a->entry[i].e->name);
    text_printf(&t, "RAM        %10" PRId64 "\n", aot_ram(a, i));
    put_plan(a, &a->entry[i], &t);
    if (a->stack_bytes >= 0) text_printf(&t, "stack      %10" PRId64 "  deepest call of a kernel\n", a->stack_bytes);
    else text_printf(&t, "stack      %10" PRId64 "  arrays of a kernel, beside registers and calls\n", a->stack_arrays);
    put_layers(a, &a->entry[i], &t);
    put_picture(&a->entry[i], &t);
  }
  return text_str(&t);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void put_json_ports(Text *t, const char *key, int n, const ProgPort *port, const AotPlace *at)
{
  text_printf(t, "\"%s\": [", key);
  for (int i = 0; i < n; i++) {
    int64_t bytes = dtype_bytes(port[i].dtype);
    text_add(t, i ? ", {\"name\": " : "{\"name\": ");
    text_quote(t, port[i].name);
    text_printf(t, ", \"dtype\": \"%s\", \"shape\": [", dtype_name(t->arena, port[i].dtype));
    for (int d = 0; d < port[i].ndim; d++) {
      text_printf(t, "%s%" PRId64, d ? ", " : "", port[i].dim[d]);
      bytes *= port[i].dim[d];
    }
    text_printf(t, "], \"bytes\": %" PRId64, bytes);
    if (port[i].scale > 0) text_printf(t, ", \"scale\": %.9g, \"zero_point\": %" PRId64, port[i].scale, port[i].zero);
    if (at[i].kind == AT_POOL) text_printf(t, ", \"pool\": %d, \"offset\": %" PRId64, at[i].index, at[i].offset);
    text_add(t, "}");
  }
  text_add(t, "]");
}

static void put_json_layers(const Aot *a, const AotEntry *e, Text *t)
{
  bool first = true;
  text_add(t, ",\n   \"layers\": [");
  for (int i = 0; i < e->f->ins.n; i++) {
    const ProgIns *ins = &e->f->ins.v[i];
    if (ins->op != MO_KERNEL) continue;
    text_add(t, first ? "\n    {\"name\": " : ",\n    {\"name\": ");
    first = false;
    text_quote(t, aot_node_name(a->p, ins));
    text_printf(t,
                ", \"kernel\": \"%s\", \"macs\": %.0f, \"cycles\": %.0f, \"live_bytes\": %" PRId64
                ", \"scratch_bytes\": %" PRId64 "}",
                a->code.name[ins->index], macs_of(a, ins), aot_cycles(a, ins->index), live_at(e, i, -1),
                aot_scratch(a, ins->index));
  }
  text_add(t, "],\n   \"tensors\": [");
  for (int i = 0; i < e->tensor.n; i++) {
    const AotTensor *x = &e->tensor.v[i];
    text_add(t, i ? ",\n    {\"name\": " : "\n    {\"name\": ");
    text_quote(t, x->name);
    text_printf(t, ", \"%s\": %d, \"offset\": %" PRId64 ", \"bytes\": %" PRId64 ", \"begin\": %d, \"end\": %d%s}",
                x->place.kind == AT_OUTPUT ? "output" : "pool", x->place.index, x->place.offset, x->bytes, x->begin,
                x->end, x->scratch ? ", \"scratch\": true" : "");
  }
  text_add(t, "]");
}

static const char *report_json(const Aot *a, Arena *arena)
{
  Text t = text_new(arena);
  text_add(&t, "{\"target\": ");
  text_quote(&t, a->p->target->text);
  text_printf(&t, ", \"weights_bytes\": %" PRId64 ", \"stack_arrays_bytes\": %" PRId64, a->weights_bytes,
              a->stack_arrays);
  if (a->code_bytes >= 0) text_printf(&t, ", \"code_bytes\": %" PRId64, a->code_bytes);
  if (a->stack_bytes >= 0) text_printf(&t, ", \"stack_bytes\": %" PRId64, a->stack_bytes);
  if (a->options.patches)
    text_printf(&t, ", \"patches\": {\"layers\": %" PRId64 ", \"patches\": %" PRId64 "}", a->options.layers,
                a->options.patches);
  text_add(&t, ",\n \"pools\": [");
  for (int i = 0; i < a->npools; i++)
    text_printf(&t, "%s{\"name\": \"%s\", \"bytes\": %" PRId64 ", \"size\": %" PRId64 "}", i ? ", " : "",
                a->pool[i].name, a->pool_bytes[i], a->pool[i].size);
  text_add(&t, "],\n \"entries\": [");
  for (int i = 0; i < a->p->entry.n; i++) {
    const AotEntry *e = &a->entry[i];
    text_add(&t, i ? ",\n  {\"name\": " : "\n  {\"name\": ");
    text_quote(&t, e->e->name);
    text_printf(&t,
                ", \"ram_bytes\": %" PRId64 ", \"io_bytes\": %" PRId64 ", \"workspace_bytes\": %" PRId64
                ", \"bound_bytes\": %" PRId64 ", \"greedy_by_size_bytes\": %" PRId64 ", \"optimal\": %s,\n   ",
                aot_ram(a, i), e->io_bytes, e->plan.bytes, e->plan.bound, e->by_size,
                e->plan.optimal ? "true" : "false");
    for (int k = 0; a->pool[0].read > 0 && k < a->npools; k++)
      text_printf(&t, "%s{\"name\": \"%s\", \"read_bytes\": %.0f, \"written_bytes\": %.0f, \"cycles\": %.0f}%s",
                  k ? ", " : "\"moved\": [", a->pool[k].name, e->moved[k].read, e->moved[k].written,
                  moving_cycles(a, e, k), k == a->npools - 1 ? "],\n   " : "");
    put_json_ports(&t, "inputs", e->e->input.n, e->e->input.v, e->input);
    text_add(&t, ",\n   ");
    put_json_ports(&t, "outputs", e->e->output.n, e->e->output.v, e->output);
    put_json_layers(a, e, &t);
    text_add(&t, "}");
  }
  text_add(&t, "]}\n");
  return text_str(&t);
}

/* ---- SVG ------------------------------------------------------------------------------------------------- */

static void put_xml(Text *t, const char *s)
{
  for (; *s; s++) {
    if (*s == '<') text_add(t, "&lt;");
    else if (*s == '>') text_add(t, "&gt;");
    else if (*s == '&') text_add(t, "&amp;");
    else if (*s == '"') text_add(t, "&quot;");
    else text_char(t, *s);
  }
}

/* Pools one on the other, each tensor a box: from its first instruction to its last, from its place upwards. */
static void put_boxes(const Aot *a, const AotEntry *e, Text *t, double y0)
{
  static const char *const fills[] = {"#4e79a7", "#f28e2b", "#59a14f", "#edc948", "#b07aa1", "#76b7b2"};
  enum { LEFT = 60, WIDTH = 900, HEIGHT = 360 };
  int64_t base = 0;
  double n = e->f->ins.n > 0 ? e->f->ins.n : 1;
  double all = e->plan.bytes ? (double)e->plan.bytes : 1;
  for (int k = 0; k < a->npools; k++) {
    for (int i = 0; i < e->tensor.n; i++) {
      const AotTensor *x = &e->tensor.v[i];
      if (x->place.kind != AT_POOL || x->place.index != k) continue;
      double h = (double)x->bytes / all * HEIGHT;
      double y = y0 + HEIGHT - (double)(base + x->place.offset) / all * HEIGHT - h;
      text_printf(t,
                  "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" fill-opacity=\"%s\" "
                  "stroke=\"#222\" stroke-width=\"0.4\"><title>",
                  LEFT + x->begin / n * WIDTH, y, (x->end - x->begin + 1) / n * WIDTH, h, fills[i % 6],
                  x->scratch ? "0.35" : "0.8");
      if (x->scratch) text_add(t, "scratch of ");
      put_xml(t, x->name);
      text_printf(t, ": %" PRId64 " bytes at %" PRId64 " of %s</title></rect>\n", x->bytes, x->place.offset,
                  a->pool[k].name);
    }
    base += e->plan.pool[k];
  }
  text_printf(t, "<path d=\"M%d %.0f V%.0f H%d\" fill=\"none\" stroke=\"#222\"/>\n", LEFT, y0, y0 + HEIGHT,
              LEFT + WIDTH);
  text_printf(t, "<text x=\"4\" y=\"%.0f\">%s</text><text x=\"4\" y=\"%.0f\">0</text>\n", y0 + 10,
              bytes_text(t->arena, e->plan.bytes), y0 + HEIGHT);
}

static const char *report_svg(const Aot *a, Arena *arena)
{
  enum { STEP = 420 };
  Text t = text_new(arena);
  text_printf(&t,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"980\" height=\"%d\" font-family=\"sans-serif\" "
              "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
              20 + STEP * a->p->entry.n);
  for (int i = 0; i < a->p->entry.n; i++) {
    const AotEntry *e = &a->entry[i];
    text_printf(&t, "<text x=\"60\" y=\"%d\">", 16 + STEP * i);
    put_xml(&t, e->e->name);
    text_printf(&t,
                ": workspace %" PRId64 " bytes, no plan needs less than %" PRId64 "; calls from left to right</text>\n",
                e->plan.bytes, e->plan.bound);
    put_boxes(a, e, &t, 26 + STEP * i);
  }
  text_add(&t, "</svg>\n");
  return text_str(&t);
}

const char *aot_report(Aot *a, Arena *arena, AotReportForm form)
{
  aot_measure(a);
  switch (form) {
  case AOT_REPORT_TEXT: return report_text(a, arena);
  case AOT_REPORT_JSON: return report_json(a, arena);
  case AOT_REPORT_SVG: return report_svg(a, arena);
  }
  return "";
}
