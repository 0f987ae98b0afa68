/* quant.h: post-training quantization: from a model of floats and samples of its input to one of integers.
 *
 * The float model runs over the samples with its inner tensors as outputs; what they hold says which real numbers each
 * must be able to stand for, and from that come scales and zero points: real = scale * (stored - zero point).  Weights
 * are known: each output channel gets a scale of its own.  Then the quantized model runs beside the float one, and what
 * the two give says what it cost.
 *
 *   samples ─run→ ranges ─range→ scales ─onnx→ QuantizeLinear and DequantizeLinear around the layers ─run→ errors
 *
 * Abbreviations: snr signal-to-noise ratio, in decibels. */
#ifndef LATHE_QUANT_H
#define LATHE_QUANT_H

#include "driver/driver.h"

/* ---- range.c: what numbers a tensor holds, and what stands for them ------------------------------ */

/* How much of the range that was seen is to be stood for.
 *   minmax      all of it
 *   percentile  all but the outermost elements
 *   kl          as much as keeps the distribution of the elements nearest to what it was */
typedef enum { QUANT_PERCENTILE, QUANT_KL, QUANT_MINMAX } QuantMethod; /* the first is the default */
/* By name; raises listing them. */
QuantMethod quant_method(Ctx *, const char *name);

enum { QUANT_BINS = 2048 };
/* What was seen of one tensor: its limits first, then how its elements lie between them.  Zeros are not counted there:
 * they are stood for exactly by any scale, and behind a Relu they are most of the elements. */
typedef struct QuantSeen {
  double lo, hi; /* zero lies between them */
  int64_t n;
  int64_t bad; /* elements that are NaN or infinite */
  int64_t *bin;
} QuantSeen;
void quant_see_limits(QuantSeen *, size_t n, const float *);
void quant_see_bins(QuantSeen *, size_t n, const float *); /* after the limits; bin has room */
/* percentile: the share of elements that stays inside, as 99.99.  levels: how many numbers can be stored. */
void quant_choose_range(const QuantSeen *, QuantMethod, double percentile, int levels, double *lo, double *hi);

typedef struct QuantParams {
  float scale;
  int32_t zero;
} QuantParams;
/* For integers of so many bits, signed; symmetric: the zero point is 0 and the lowest integer is not used; power2: the
 * scale is a power of two. */
QuantParams quant_params(double lo, double hi, int bits, bool symmetric, bool power2);
/* Weights seen as outer x channels x inner: symmetric, a scale for each channel; scale_floor: NULL, or what each scale
 * must not be below. */
typedef struct QuantShape {
  int64_t outer, channels, inner;
} QuantShape;
void quant_weights(const float *w, QuantShape, int bits, bool power2, const float *scale_floor, int8_t *out,
                   float *scale);

/* How far one tensor is from another. */
typedef struct QuantError {
  double signal, noise; /* sums of squares: of the wanted, of the difference */
  double most;          /* the largest difference */
  int64_t n;
} QuantError;
void quant_add_error(QuantError *, size_t n, const float *want, const float *have);
double quant_snr(const QuantError *); /* at most 200 */

/* ---- run.c: models over samples ---------------------------------------------------------------------- */

/* An array for an input: its first axis counts samples, or it is one sample without that axis.  name NULL: for the only
 * input.  Several for one input follow each other. */
typedef struct QuantArray {
  const char *name;
  const LatheRtTensor *tensor;
} QuantArray;
/* An input as the model declares it. */
typedef struct QuantPort {
  const char *name;
  DType dtype;
  int ndim;           /* -1: not known */
  const int64_t *dim; /* -1: open */
} QuantPort;
/* Arrays brought into the order of the inputs and cut into runs. */
typedef struct QuantSamples {
  int ninputs;
  int64_t n;    /* runs */
  int64_t rows; /* samples in each */
  struct QuantCut {
    Vec(const char *) run; /* where the elements of each lie */
    LatheRtDType dtype;
    int ndim;
    int64_t shape[MAX_RANK]; /* of one run */
  } *input;
} QuantSamples;
/* Raises one sentence for what does not fit. */
QuantSamples quant_samples(Arena *, int narrays, const QuantArray *, int nports, const QuantPort *);

/* A compiled model that runs here. */
typedef struct QuantRunner {
  Ctx *ctx;
  LatheRtExecutor *executor;
} QuantRunner;
/* Compiled from @main; lives until the scope ends. */
QuantRunner quant_runner(Ctx *, Module *);
void quant_run(QuantRunner *, const QuantSamples *, int64_t run);
const LatheRtTensor *quant_output(QuantRunner *, int i);
/* Its elements when they are float32, else NULL. */
const float *quant_floats(const LatheRtTensor *, size_t *n);

/* ---- models ------------------------------------------------------------------------------------------- */

/* stage by stage; done of total.  Non-zero stops the work. */
typedef int (*QuantProgress)(void *env, const char *stage, int64_t done, int64_t total);

typedef struct QuantOptions {
  QuantMethod method;
  double percentile;    /* 0: 99.99 */
  double accuracy_drop; /* the share of samples that may get another answer; below 0: any */
  int64_t calibration;  /* samples that scales are found with, at most; 0: 256 */
  const char *skip;     /* names of nodes to leave in float, separated by commas; NULL: none */
  const int64_t *labels;
  int64_t nlabels;
  QuantProgress progress;
  void *env;
} QuantOptions;

/* One layer (a convolution or product with constant weights) of the report. */
typedef struct QuantLayer {
  const char *name, *op, *output;
  double lo, hi;         /* of its result, as it is stood for */
  QuantParams params;    /* of its result */
  float w_least, w_most; /* the scales of its weights */
  double alone;          /* snr of its result, when it alone is quantized */
  double inside;         /* snr of its result in the quantized model */
  const char *kept;      /* why it stays in float; NULL: it does not */
} QuantLayer;
typedef struct QuantReport {
  int n;
  QuantLayer *layer;
  int quantized;                   /* layers in integers */
  int64_t samples, calibration;    /* seen in all, for the scales */
  bool labelled;                   /* accuracies are against labels; else against the float model's answers */
  double float_accuracy, accuracy; /* shares of samples */
  double snr;                      /* of the first output */
  bool equalised, bias_corrected;  /* done, since it made the error less */
  size_t float_bytes, bytes;       /* of the files */
} QuantReport;

/* onnx.c: reads an ONNX file and gives the bytes of one with QuantizeLinear and DequantizeLinear (in the arena). */
const void *quant_onnx(Arena *, const char *path, int narrays, const QuantArray *, const QuantOptions *, QuantReport *,
                       size_t *n);

/* As TVM's qconfig has them. */
typedef struct QuantGraphOptions {
  int input_bits, weight_bits; /* 2 to 8 */
  bool input_signed;           /* int8; else uint8 */
  bool power2;                 /* scales of weights are powers of two */
  double global_scale;         /* what activations reach; 0: it is found on the data */
  int nskip;
  const int64_t *skip; /* convolutions that stay in float, by their order */
  bool skip_dense;     /* matrix products stay in float */
  bool simulate;       /* floats that behave as the integers would */
  bool upward;         /* requantize rounds halves up; else away from zero */
} QuantGraphOptions;
/* graph.c: @main of m, whose weights are constants, in qnn operators; how many layers.  What stays in float is in the
 * context's notes. */
int quant_graph(Arena *, Module *m, PassContext *, int narrays, const QuantArray *, const QuantGraphOptions *,
                const QuantOptions *);

/* report.c: the report as a table, or for machines. */
const char *quant_report_text(Arena *, const QuantReport *);
const char *quant_report_json(Arena *, const QuantReport *);

/* Where two models part: the tensors that both have, in the order of the first. */
#define QUANT_OUTPUT "output"
typedef struct QuantPart {
  const char *name, *op; /* op QUANT_OUTPUT: of the models' outputs, which stand last */
  double snr, most;
} QuantPart;
/* onnx_compare.c */
int quant_onnx_compare(Arena *, const char *path, const char *other, int narrays, const QuantArray *,
                       const QuantOptions *, QuantPart **out);
const char *quant_parts_text(Arena *, int n, const QuantPart *);
const char *quant_parts_json(Arena *, int n, const QuantPart *);

#endif
