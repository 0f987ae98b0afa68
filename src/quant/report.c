/* report.c: what quantization did, as a table for people and as JSON for programs. */
#include <math.h>

#include "quant/quant.h"

enum { NAME_WIDTH = 28 };

/* The end of a long name tells more than its beginning. */
static void add_name(Text *t, const char *name)
{
  size_t n = strlen(name);
  if (n <= NAME_WIDTH) text_printf(t, "%-*s", NAME_WIDTH, name);
  else text_printf(t, "..%s", name + n - NAME_WIDTH + 2);
}

static void add_snr(Text *t, double snr)
{
  if (snr >= 200) text_printf(t, " %8s", "exact");
  else text_printf(t, " %8.1f", snr);
}

static void add_bytes(Text *t, size_t n)
{
  if (n < 10000) text_printf(t, "%zu bytes", n);
  else if (n < 10000000) text_printf(t, "%.1f KB", (double)n / 1e3);
  else text_printf(t, "%.1f MB", (double)n / 1e6);
}

const char *quant_report_text(Arena *a, const QuantReport *r)
{
  Text t = text_new(a);
  text_printf(&t, "%-*s %-13s %24s %10s %5s %10s %8s %8s\n", NAME_WIDTH, "layer", "operator", "range of the result",
              "scale", "zero", "weights", "alone", "inside");
  for (int i = 0; i < r->n; i++) {
    const QuantLayer *l = &r->layer[i];
    add_name(&t, l->name);
    text_printf(&t, " %-13s", l->op);
    if (l->kept) {
      text_printf(&t, " in float: %s\n", l->kept);
      continue;
    }
    text_printf(&t, " %24s %10.4g %5d %10.4g", arena_printf(a, "%.4g .. %.4g", l->lo, l->hi), (double)l->params.scale,
                l->params.zero, (double)l->w_most);
    add_snr(&t, l->alone);
    add_snr(&t, l->inside);
    text_char(&t, '\n');
  }
  text_printf(
      &t, "weights: the largest scale of its channels; alone, inside: signal to noise in dB of the result when this "
          "layer alone is\nin integers, and in the quantized model\n");
  text_printf(&t,
              "%d of %d layers in integers; scales from %" PRId64 " of %" PRId64
              " samples; the first output's signal to"
              " noise: %.1f dB\n",
              r->quantized, r->n, r->calibration, r->samples, r->snr);
  if (r->equalised) text_add(&t, "channels of neighbouring layers were equalised: it made the error less\n");
  if (r->bias_corrected) text_add(&t, "biases were corrected by the mean error: it made the error less\n");
  if (r->labelled)
    text_printf(&t, "accuracy: %.2f %% in float, %.2f %% quantized\n", 100 * r->float_accuracy, 100 * r->accuracy);
  else if (r->float_accuracy > 0)
    text_printf(&t, "the largest output is the float model's in %.2f %% of the samples\n", 100 * r->accuracy);
  text_add(&t, "file: ");
  add_bytes(&t, r->float_bytes);
  text_add(&t, " -> ");
  add_bytes(&t, r->bytes);
  text_char(&t, '\n');
  return text_str(&t);
}

static void add_number(Text *t, const char *key, double v)
{
  if (isfinite(v)) text_printf(t, ", \"%s\": %.9g", key, v);
  else text_printf(t, ", \"%s\": null", key);
}

const char *quant_report_json(Arena *a, const QuantReport *r)
{
  Text t = text_new(a);
  text_add(&t, "{\"layers\": [");
  for (int i = 0; i < r->n; i++) {
    const QuantLayer *l = &r->layer[i];
    text_add(&t, i ? ",\n  {\"name\": " : "\n  {\"name\": ");
    text_quote(&t, l->name);
    text_add(&t, ", \"op\": ");
    text_quote(&t, l->op);
    text_add(&t, ", \"output\": ");
    text_quote(&t, l->output);
    if (l->kept) {
      text_add(&t, ", \"float\": ");
      text_quote(&t, l->kept);
    } else {
      add_number(&t, "min", l->lo);
      add_number(&t, "max", l->hi);
      add_number(&t, "scale", (double)l->params.scale);
      add_number(&t, "zero_point", l->params.zero);
      add_number(&t, "weight_scale_min", (double)l->w_least);
      add_number(&t, "weight_scale_max", (double)l->w_most);
      add_number(&t, "snr_alone", l->alone);
      add_number(&t, "snr", l->inside);
    }
    text_char(&t, '}');
  }
  text_printf(&t,
              "],\n \"quantized\": %d, \"samples\": %" PRId64 ", \"calibration_samples\": %" PRId64
              ", \"labelled\": %s, \"equalised\": %s, \"bias_corrected\": %s",
              r->quantized, r->samples, r->calibration, r->labelled ? "true" : "false", r->equalised ? "true" : "false",
              r->bias_corrected ? "true" : "false");
  add_number(&t, "snr", r->snr);
  add_number(&t, "float_accuracy", r->float_accuracy);
  add_number(&t, "accuracy", r->accuracy);
  text_printf(&t, ", \"float_bytes\": %zu, \"bytes\": %zu}\n", r->float_bytes, r->bytes);
  return text_str(&t);
}

const char *quant_parts_text(Arena *a, int n, const QuantPart *p)
{
  enum { LOUD = 20 }; /* dB: a tenth of the signal is noise */
  Text t = text_new(a);
  int first = -1;
  text_printf(&t, "%-*s %-20s %8s %14s\n", NAME_WIDTH, "tensor", "operator", "snr, dB", "most apart");
  for (int i = 0; i < n; i++) {
    add_name(&t, p[i].name);
    text_printf(&t, " %-20s", p[i].op);
    add_snr(&t, p[i].snr);
    text_printf(&t, " %14.6g\n", p[i].most);
    if (first < 0 && p[i].snr < LOUD) first = i;
  }
  bool reaches = false;
  for (int i = 0; i < n; i++) reaches |= !strcmp(p[i].op, QUANT_OUTPUT) && p[i].snr < LOUD;
  if (first < 0) text_printf(&t, "no tensor has noise of more than a tenth of its signal (below %d dB)\n", LOUD);
  else if (reaches)
    text_printf(&t, "'%s' is the first whose noise is more than a tenth of its signal (below %d dB)\n", p[first].name,
                LOUD);
  else
    text_printf(
        &t,
        "tensors from '%s' on have noise of more than a tenth of their signal (below %d dB), the outputs have not: "
        "it does\nnot reach them, or channels were equalised and inner tensors hold other numbers\n",
        p[first].name, LOUD);
  return text_str(&t);
}

const char *quant_parts_json(Arena *a, int n, const QuantPart *p)
{
  Text t = text_new(a);
  text_char(&t, '[');
  for (int i = 0; i < n; i++) {
    text_add(&t, i ? ",\n {\"name\": " : "{\"name\": ");
    text_quote(&t, p[i].name);
    text_add(&t, ", \"op\": ");
    text_quote(&t, p[i].op);
    add_number(&t, "snr", p[i].snr);
    add_number(&t, "max_difference", p[i].most);
    text_char(&t, '}');
  }
  text_add(&t, "]\n");
  return text_str(&t);
}
