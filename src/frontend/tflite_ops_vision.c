/* tflite_ops_vision.c: boxes: non-maximum suppression, and what detectors put behind their network.
 *
 * The options of a custom operator are a flexbuffer: a map whose values stand before its end.
 *
 *   … keys' place (offset back) ┬ keys' width ┬ size ┬ values … ┬ types …      root value ┬ root type ┬ root width */
#include "frontend/tflite_ops.h"

/* ---- flexbuffers ---------------------------------------------------------------------------------------- */

typedef struct Flex {
  Conversion *c;
  Bytes b;
} Flex;

static uint64_t flex_read(const Flex *f, size_t at, size_t width)
{
  uint64_t v = 0;
  if (width > 8 || at > f->b.n || width > f->b.n - at)
    kit_fail(f->c, ERR_PARSE, "its options lead outside their bytes");
  for (size_t i = 0; i < width; i++) v |= (uint64_t)(uint8_t)f->b.p[at + i] << (8 * i);
  return v;
}

/* What an offset that stands there points back to. */
static size_t flex_back(const Flex *f, size_t at, size_t width)
{
  uint64_t by = flex_read(f, at, width);
  if (by > at) kit_fail(f->c, ERR_PARSE, "its options lead outside their bytes");
  return at - (size_t)by;
}

static size_t less(const Flex *f, size_t at, size_t by)
{
  if (by > at) kit_fail(f->c, ERR_PARSE, "its options lead outside their bytes");
  return at - by;
}

static double flex_number(const Flex *f, size_t at, size_t width, int type)
{
  enum { INT = 1, UINT = 2, FLOAT = 3, BOOL = 26 };
  uint64_t v = flex_read(f, at, width);
  if (type == INT) return (double)value_int(DTYPE(DT_INT, (int)(8 * width)), (int64_t)v).i;
  if (type == UINT || type == BOOL) return (double)v;
  if (type != FLOAT || width < 4) kit_fail(f->c, ERR_UNSUPPORTED, "its options have a value that is no number");
  if (width == 4) {
    float x;
    uint32_t bits = (uint32_t)v;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
  }
  double x;
  memcpy(&x, &v, sizeof x);
  return x;
}

/* The number that the map at the root has for a key. */
static double option(Conversion *c, const char *key, double def)
{
  Flex f = {c, tfl_op(c)->custom};
  if (f.b.n < 3) return def;
  size_t root_width = (size_t)flex_read(&f, f.b.n - 1, 1);
  int packed = (int)flex_read(&f, f.b.n - 2, 1);
  enum { MAP = 9 };
  if (packed >> 2 != MAP) kit_fail(c, ERR_PARSE, "its options are no map");
  size_t width = (size_t)1 << (packed & 3);
  size_t map = flex_back(&f, less(&f, f.b.n - 2, root_width), root_width);
  size_t n = (size_t)flex_read(&f, less(&f, map, width), width);
  size_t keys = flex_back(&f, less(&f, map, 3 * width), width);
  size_t key_width = (size_t)flex_read(&f, less(&f, map, 2 * width), width);
  for (size_t i = 0; i < n; i++) {
    size_t name = flex_back(&f, keys + i * key_width, key_width);
    size_t k = 0;
    while (flex_read(&f, name + k, 1) == (uint8_t)key[k] && key[k]) k++;
    if (key[k] || flex_read(&f, name + k, 1)) continue;
    int type = (int)flex_read(&f, map + n * width + i, 1);
    return flex_number(&f, map + i * width, width, type >> 2);
  }
  return def;
}

/* ---- suppression ------------------------------------------------------------------------------------------- */

/* Places of the boxes that are kept, the best first, `most` of them, zeros behind; how many there are. */
static const Node *kept(Conversion *c, const Node *boxes, const Node *scores, int64_t most, const Node *iou,
                        const Node *least, const Node **count)
{
  const Node *arg[5] = {kit_unsqueeze(c, boxes, 0), kit_unsqueeze(c, kit_unsqueeze(c, scores, 0), 0),
                        kit_scalar(c, DT_I64, (double)most), kit_scalar_of(c, iou), kit_scalar_of(c, least)};
  const Node *r = kit_opn(c, "vision.all_class_non_max_suppression", 5, arg, NULL);
  const Node *rows = kit_squeeze(c, kit_slice(c, node_get(c->m, r, 0), 1, 2, 3), 1);
  int64_t n = kit_static_dim(c, boxes, 0);
  *count = kit_scalar_of(c, node_get(c->m, r, 1));
  rows = n < most ? kit_pad(c, rows, 1, (int64_t[]){0}, (int64_t[]){most - n}, 0) : kit_slice(c, rows, 0, 0, most);
  const Node *there = kit_less(c, kit_iota(c, kit_scalar(c, DT_I64, (double)most), DT_I64), *count);
  return kit_where(c, there, rows, kit_scalar(c, DT_I64, 0));
}

/* boxes (n, 4), scores (n), how many at most, overlap, least score, and for V5 a sigma */
const Node *tfl_convert_nms(Conversion *c)
{
  const Node *scores = kit_in(c, 1);
  int64_t most = kit_const_int(c, kit_in(c, 2), "the number of boxes");
  const Node *sigma = kit_opt(c, 5);
  double s = 0;
  if (most < 0 || most > INT32_MAX) kit_fail(c, ERR_ARGUMENT, "%" PRId64 " boxes", most);
  if (sigma && (!kit_const_float(c, sigma, &s) || s != 0))
    kit_fail(c, ERR_UNSUPPORTED, "scores that fall with the overlap (sigma above 0) are not supported");
  const Node *count;
  const Node *at = kept(c, kit_in(c, 0), scores, most, kit_in(c, 3), kit_in(c, 4), &count);
  int last = sigma ? 2 : 1;
  c->out[0] = kit_cast_to(c, at, DT_I32);
  if (sigma) {
    const Node *there = kit_less(c, kit_iota(c, kit_scalar(c, DT_I64, (double)most), DT_I64), count);
    c->out[1] =
        kit_where(c, there, kit_op2(c, "take", scores, at, "axis:i,mode:s", 0, "clip"), kit_scalar(c, DT_F32, 0));
  }
  c->out[last] = kit_cast_to(c, count, DT_I32);
  return NULL;
}

/* ---- TFLite_Detection_PostProcess ------------------------------------------------------------------------------- */

static const Node *real_input(Conversion *c, int i)
{
  const TflTensor *t = tfl_in(c, i);
  return tfl_is_quantized(t) ? tfl_real(c, kit_in(c, i), t) : kit_in(c, i);
}

static const Node *column(Conversion *c, const Node *x, int i) { return kit_slice(c, x, 1, i, i + 1); }

/* Center and size relative to an anchor (y, x, height, width) as two corners. */
static const Node *decoded(Conversion *c, const Node *box, const Node *anchor)
{
  static const char *const scales[] = {"y_scale", "x_scale", "h_scale", "w_scale"};
  const Node *v[4], *low[2], *high[2];
  for (int i = 0; i < 4; i++) {
    double scale = option(c, scales[i], 0);
    if (!(scale > 0)) kit_fail(c, ERR_ARGUMENT, "%s is %g; it is above zero", scales[i], scale);
    v[i] = kit_div(c, column(c, box, i), kit_scalar(c, DT_F32, scale));
  }
  for (int i = 0; i < 2; i++) {
    const Node *size = column(c, anchor, 2 + i);
    const Node *center = kit_add(c, kit_mul(c, v[i], size), column(c, anchor, i));
    const Node *half = kit_mul(c, kit_mul(c, kit_exp(c, v[2 + i]), size), kit_scalar(c, DT_F32, 0.5));
    low[i] = kit_sub(c, center, half);
    high[i] = kit_add(c, center, half);
  }
  return kit_concat(c, 4, (const Node *[]){low[0], low[1], high[0], high[1]}, 1);
}

/* Encoded boxes (1, n, 4), scores (1, n, classes), anchors (n, 4): each anchor with its best class, suppressed over all
 * classes together. */
const Node *tfl_convert_detection(Conversion *c)
{
  const Node *box = kit_squeeze(c, real_input(c, 0), 0);
  const Node *score = kit_squeeze(c, real_input(c, 1), 0);
  int64_t most = (int64_t)option(c, "max_detections", 0);
  int64_t classes = (int64_t)option(c, "num_classes", 0);
  int64_t background = kit_static_dim(c, score, 1) - classes;
  if (option(c, "use_regular_nms", 0) != 0)
    kit_fail(c, ERR_UNSUPPORTED, "suppression class by class (use_regular_nms) is not supported");
  if (option(c, "max_classes_per_detection", 1) != 1)
    kit_fail(c, ERR_UNSUPPORTED, "several classes of one box are not supported");
  if (most < 1 || most > 1 << 20 || classes < 1 || background < 0 || background > 1)
    kit_fail(c, ERR_ARGUMENT, "%" PRId64 " detections, %" PRId64 " classes of %" PRId64 " scores", most, classes,
             classes + background);
  if (background) score = kit_slice(c, score, 1, 1, classes + 1);
  int64_t axis = 1;
  const Node *best = kit_reduce1(c, "max", score, 1, false);
  const Node *class = kit_op1(c, "argmax", score, "axis:I", 1, &axis);
  const Node *boxes = decoded(c, box, real_input(c, 2));
  const Node *count;
  const Node *iou = kit_scalar(c, DT_F32, option(c, "nms_iou_threshold", 0));
  const Node *at = kept(c, boxes, best, most, iou, kit_scalar(c, DT_F32, option(c, "nms_score_threshold", 0)), &count);
  const Node *there = kit_less(c, kit_iota(c, kit_scalar(c, DT_I64, (double)most), DT_I64), count);
  const Node *none = kit_scalar(c, DT_F32, 0);
  const Node *value[3] = {boxes, kit_cast_to(c, class, DT_F32), best};
  for (int i = 0; i < 3; i++) {
    const Node *y = kit_op2(c, "take", value[i], at, "axis:i,mode:s", 0, "clip");
    y = kit_where(c, i ? there : kit_unsqueeze(c, there, 1), y, none);
    c->out[i] = kit_unsqueeze(c, y, 0);
  }
  c->out[3] = kit_vector_of(c, kit_cast_to(c, count, DT_F32));
  return NULL;
}

/* ---- what the reader has done already ----------------------------------------------------------------------- */

const Node *tfl_convert_densify(Conversion *c) { return kit_in(c, 0); }
