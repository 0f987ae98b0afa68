/* tflite_model.c: the tables of a TFLite model, read out of the flatbuffer.
 *
 * Comes in: a file not to be trusted.  Goes out: structs whose indices are all inside the lists they point into, and
 * constants that borrow the file's bytes; sparse ones are spread out, those of 4 bits unpacked. */
#include "frontend/tflite_import.h"

enum { MOST = 1 << 24 }; /* tensors, operators, buffers */

/* ---- names of numbers ------------------------------------------------------------------------- */

/* clang-format off */
static const char *const builtin_names[] = {
  "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE", "DEQUANTIZE",
  "EMBEDDING_LOOKUP", "FLOOR", "FULLY_CONNECTED", "HASHTABLE_LOOKUP", "L2_NORMALIZATION", "L2_POOL_2D",
  "LOCAL_RESPONSE_NORMALIZATION", "LOGISTIC", "LSH_PROJECTION", "LSTM", "MAX_POOL_2D", "MUL", "RELU", "RELU_N1_TO_1",
  "RELU6", "RESHAPE", "RESIZE_BILINEAR", "RNN", "SOFTMAX", "SPACE_TO_DEPTH", "SVDF", "TANH", "CONCAT_EMBEDDINGS",
  "SKIP_GRAM", "CALL", "CUSTOM", "EMBEDDING_LOOKUP_SPARSE", "PAD", "UNIDIRECTIONAL_SEQUENCE_RNN", "GATHER",
  "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "TRANSPOSE", "MEAN", "SUB", "DIV", "SQUEEZE",
  "UNIDIRECTIONAL_SEQUENCE_LSTM", "STRIDED_SLICE", "BIDIRECTIONAL_SEQUENCE_RNN", "EXP", "TOPK_V2", "SPLIT",
  "LOG_SOFTMAX", "DELEGATE", "BIDIRECTIONAL_SEQUENCE_LSTM", "CAST", "PRELU", "MAXIMUM", "ARG_MAX", "MINIMUM", "LESS",
  "NEG", "PADV2", "GREATER", "GREATER_EQUAL", "LESS_EQUAL", "SELECT", "SLICE", "SIN", "TRANSPOSE_CONV",
  "SPARSE_TO_DENSE", "TILE", "EXPAND_DIMS", "EQUAL", "NOT_EQUAL", "LOG", "SUM", "SQRT", "RSQRT", "SHAPE", "POW",
  "ARG_MIN", "FAKE_QUANT", "REDUCE_PROD", "REDUCE_MAX", "PACK", "LOGICAL_OR", "ONE_HOT", "LOGICAL_AND",
  "LOGICAL_NOT", "UNPACK", "REDUCE_MIN", "FLOOR_DIV", "REDUCE_ANY", "SQUARE", "ZEROS_LIKE", "FILL", "FLOOR_MOD",
  "RANGE", "RESIZE_NEAREST_NEIGHBOR", "LEAKY_RELU", "SQUARED_DIFFERENCE", "MIRROR_PAD", "ABS", "SPLIT_V", "UNIQUE",
  "CEIL", "REVERSE_V2", "ADD_N", "GATHER_ND", "COS", "WHERE", "RANK", "ELU", "REVERSE_SEQUENCE", "MATRIX_DIAG",
  "QUANTIZE", "MATRIX_SET_DIAG", "ROUND", "HARD_SWISH", "IF", "WHILE", "NON_MAX_SUPPRESSION_V4",
  "NON_MAX_SUPPRESSION_V5", "SCATTER_ND", "SELECT_V2", "DENSIFY", "SEGMENT_SUM", "BATCH_MATMUL",
  "PLACEHOLDER_FOR_GREATER_OP_CODES", "CUMSUM", "CALL_ONCE", "BROADCAST_TO", "RFFT2D", "CONV_3D", "IMAG", "REAL",
  "COMPLEX_ABS", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "REDUCE_ALL",
  "CONV_3D_TRANSPOSE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "BROADCAST_ARGS", "RANDOM_STANDARD_NORMAL",
  "BUCKETIZE", "RANDOM_UNIFORM", "MULTINOMIAL", "GELU", "DYNAMIC_UPDATE_SLICE", "RELU_0_TO_1",
  "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_SUM", "ATAN2", "UNSORTED_SEGMENT_MIN", "SIGN",
  "BITCAST", "BITWISE_XOR", "RIGHT_SHIFT", "STABLEHLO_LOGISTIC", "STABLEHLO_ADD", "STABLEHLO_DIVIDE",
  "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_RESHAPE", "STABLEHLO_CLAMP", "STABLEHLO_CONCATENATE",
  "STABLEHLO_BROADCAST_IN_DIM", "STABLEHLO_CONVOLUTION", "STABLEHLO_SLICE", "STABLEHLO_CUSTOM_CALL",
  "STABLEHLO_REDUCE", "STABLEHLO_ABS", "STABLEHLO_AND", "STABLEHLO_COSINE", "STABLEHLO_EXPONENTIAL",
  "STABLEHLO_FLOOR", "STABLEHLO_LOG", "STABLEHLO_MINIMUM", "STABLEHLO_NEGATE", "STABLEHLO_OR", "STABLEHLO_POWER",
  "STABLEHLO_REMAINDER", "STABLEHLO_RSQRT", "STABLEHLO_SELECT", "STABLEHLO_SUBTRACT", "STABLEHLO_TANH",
  "STABLEHLO_SCATTER", "STABLEHLO_COMPARE", "STABLEHLO_CONVERT", "STABLEHLO_DYNAMIC_SLICE",
  "STABLEHLO_DYNAMIC_UPDATE_SLICE", "STABLEHLO_PAD", "STABLEHLO_IOTA", "STABLEHLO_DOT_GENERAL",
  "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SORT", "STABLEHLO_WHILE", "STABLEHLO_GATHER", "STABLEHLO_TRANSPOSE",
  "DILATE", "STABLEHLO_RNG_BIT_GENERATOR", "REDUCE_WINDOW", "STABLEHLO_COMPOSITE", "STABLEHLO_SHIFT_LEFT",
  "STABLEHLO_CBRT", "STABLEHLO_CASE",
};
static const struct {
  const char *name;
  DType dtype;
} types[] = {
  {"float32", {DT_FLOAT, 32, 1}}, {"float16", {DT_FLOAT, 16, 1}}, {"int32", {DT_INT, 32, 1}},
  {"uint8", {DT_UINT, 8, 1}},     {"int64", {DT_INT, 64, 1}},     {"string", {DT_TEXT, 64, 1}},
  {"bool", {DT_UINT, 1, 1}},      {"int16", {DT_INT, 16, 1}},     {"complex64", {DT_VOID, 0, 1}},
  {"int8", {DT_INT, 8, 1}},       {"float64", {DT_FLOAT, 64, 1}}, {"complex128", {DT_VOID, 0, 1}},
  {"uint64", {DT_UINT, 64, 1}},   {"resource", {DT_INT, 32, 1}},  {"variant", {DT_VOID, 0, 1}},
  {"uint32", {DT_UINT, 32, 1}},   {"uint16", {DT_UINT, 16, 1}},   {"int4", {DT_INT, 4, 1}},
  {"bfloat16", {DT_BFLOAT, 16, 1}},
};
/* clang-format on */

const char *tfl_builtin_name(int code)
{
  int n = (int)(sizeof builtin_names / sizeof *builtin_names);
  return code >= 0 && code < n ? builtin_names[code] : NULL;
}

const char *tfl_type_name(int64_t type)
{
  return type >= 0 && type < (int64_t)(sizeof types / sizeof *types) ? types[type].name : "of a type not known";
}

/* ---- lists ------------------------------------------------------------------------------------------ */

static int count(Import *im, const FlatVector *v, const char *what)
{
  if (v->n > MOST) raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: %zu %s; there are at most %d", v->n, what, MOST);
  return (int)v->n;
}

/* Numbers of tensors; -1 only where one may be left out. */
static const int32_t *indices(Import *im, const FlatTable *t, int slot, const TflGraph *g, bool optional,
                              const char *what, int *n)
{
  FlatVector v = flat_vector(t, slot, 4, what);
  *n = count(im, &v, what);
  int32_t *list = arena_array(im->arena, int32_t, *n + 1);
  for (int i = 0; i < *n; i++) {
    list[i] = flat_i32_at(&v, (size_t)i);
    if (list[i] < (optional ? -1 : 0) || list[i] >= g->ntensors)
      raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: %s %d is tensor %d; subgraph '%s' has %d", what, i, list[i], g->name,
            g->ntensors);
  }
  return list;
}

static const int64_t *dims(Import *im, const FlatTable *t, int slot, int *n)
{
  FlatVector v = flat_vector(t, slot, 4, "the shape of a tensor");
  *n = count(im, &v, "dimensions");
  int64_t *d = arena_array(im->arena, int64_t, *n + 1);
  for (int i = 0; i < *n; i++) d[i] = flat_i32_at(&v, (size_t)i);
  return v.p ? d : NULL;
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

static TflQuant read_quant(Import *im, const FlatTable *tensor, const char *name)
{
  FlatTable t = flat_table(tensor, 4, "QuantizationParameters");
  FlatVector scale = flat_vector(&t, 2, 4, "the scales of a tensor");
  FlatVector zero = flat_vector(&t, 3, 8, "the zero points of a tensor");
  TflQuant q = {.n = count(im, &scale, "scales"), .axis = (int)flat_int(&t, 6, 4, 0)};
  if (flat_uint(&t, 4, 1, 0))
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "tflite: tensor '%s' is quantized in blocks or by a scheme of its own",
          name);
  if (!q.n) return q;
  if (zero.n != scale.n && zero.n > 1)
    raise(im->ctx, ERR_ARGUMENT, NOWHERE, "tflite: tensor '%s' has %zu scales and %zu zero points", name, scale.n,
          zero.n);
  double *s = arena_array(im->arena, double, q.n);
  int64_t *z = arena_array(im->arena, int64_t, q.n);
  for (int i = 0; i < q.n; i++) {
    s[i] = (double)flat_f32_at(&scale, (size_t)i);
    z[i] = zero.n ? flat_i64_at(&zero, zero.n == 1 ? 0 : (size_t)i) : 0;
  }
  q.scale = s;
  q.zero = z;
  return q;
}

static void read_tensor(Import *im, const FlatTable *t, const TflModel *m, TflTensor *out)
{
  int nsignature = 0;
  out->name = flat_str(t, 3);
  out->dim = dims(im, t, 0, &out->ndim);
  out->type = flat_int(t, 1, 1, 0);
  out->buffer = (size_t)flat_uint(t, 2, 4, 0);
  out->variable = flat_uint(t, 5, 1, 0) != 0;
  out->signature = dims(im, t, 7, &nsignature);
  if (nsignature != out->ndim) out->signature = NULL;
  if (out->ndim > MAX_RANK)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "tflite: tensor '%s' has %d dimensions; there are at most %d", out->name,
          out->ndim, MAX_RANK);
  bool known = out->type >= 0 && out->type < (int64_t)(sizeof types / sizeof *types);
  if (!known || types[out->type].dtype.code == DT_VOID)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "tflite: tensor '%s' is %s (type %" PRId64 "), which is not supported",
          out->name, tfl_type_name(out->type), out->type);
  out->dtype = types[out->type].dtype;
  if (out->buffer >= (size_t)m->nbuffers && out->buffer)
    raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: tensor '%s' lies in buffer %zu; the file has %d", out->name,
          out->buffer, m->nbuffers);
  out->q = read_quant(im, t, out->name);
  out->sparsity = flat_table(t, 6, "SparsityParameters");
}

static void name_tensors(Import *im, TflGraph *g)
{
  StrMap seen = {0};
  for (int i = 0; i < g->ntensors; i++) {
    TflTensor *t = &g->tensor[i];
    t->key = *t->name && !strmap_get(&seen, t->name) ? t->name : arena_printf(im->arena, "%s:%d", t->name, i);
    strmap_put(im->arena, &seen, t->key, t);
  }
}

/* ---- operators --------------------------------------------------------------------------------------------- */

typedef struct OpCode {
  int code;
  const char *op;
  int64_t version;
} OpCode;

static OpCode read_code(Import *im, const FlatTable *t)
{
  int64_t old = flat_int(t, 0, 1, 0);
  int64_t code = flat_int(t, 3, 4, 0);
  OpCode c = {.version = flat_int(t, 2, 4, 1)};
  if (code < old) code = old; /* files from before there were more than 127 have the old field alone */
  c.code = (int)code;
  const char *name = tfl_builtin_name(c.code);
  if (!name) raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "tflite: builtin operator %" PRId64 " is not known", code);
  c.op = strcmp(name, "CUSTOM") ? name : arena_printf(im->m->arena, "CUSTOM.%s", flat_str(t, 1));
  return c;
}

static void read_operator(Import *im, const FlatTable *t, const TflGraph *g, int ncodes, const OpCode *code,
                          TflOperator *out)
{
  uint64_t index = flat_uint(t, 0, 4, 0);
  if (index >= (uint64_t)ncodes)
    raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: an operator has code %" PRIu64 "; the file lists %d", index, ncodes);
  out->code = code[index].code;
  out->op = code[index].op;
  out->version = code[index].version;
  out->in = indices(im, t, 1, g, true, "an operator's input", &out->nin);
  out->out = indices(im, t, 2, g, false, "an operator's output", &out->nout);
  out->inter = indices(im, t, 8, g, true, "an operator's intermediate", &out->ninter);
  out->options_type = (int)flat_uint(t, 3, 1, 0);
  out->options = flat_table(t, 4, "an operator's options");
  FlatVector custom = flat_vector(t, 5, 1, "an operator's options");
  out->custom = (Bytes){custom.p, custom.n};
}

/* ---- the model ------------------------------------------------------------------------------------------------ */

static void read_graph(Import *im, const FlatTable *t, const TflModel *m, int ncodes, const OpCode *code, TflGraph *g)
{
  FlatVector tensors = flat_vector(t, 0, 4, "the tensors of a subgraph");
  FlatVector ops = flat_vector(t, 3, 4, "the operators of a subgraph");
  g->name = flat_str(t, 4);
  g->ntensors = count(im, &tensors, "tensors");
  g->tensor = arena_array(im->arena, TflTensor, g->ntensors + 1);
  for (int i = 0; i < g->ntensors; i++) {
    FlatTable one = flat_at(t, &tensors, (size_t)i, "Tensor");
    read_tensor(im, &one, m, &g->tensor[i]);
  }
  name_tensors(im, g);
  g->in = indices(im, t, 1, g, false, "a subgraph's input", &g->nin);
  g->out = indices(im, t, 2, g, false, "a subgraph's output", &g->nout);
  g->nops = count(im, &ops, "operators");
  TflOperator *op = arena_array(im->arena, TflOperator, g->nops + 1);
  for (int i = 0; i < g->nops; i++) {
    FlatTable one = flat_at(t, &ops, (size_t)i, "Operator");
    read_operator(im, &one, g, ncodes, code, &op[i]);
  }
  g->op = op;
}

/* Data beside the tables (files of more than 2 GB) is said by its place in the file. */
static Bytes read_buffer(Import *im, const FlatTable *t, int i)
{
  FlatVector data = flat_vector(t, 0, 1, "the data of a buffer");
  uint64_t offset = flat_uint(t, 1, 8, 0);
  uint64_t size = flat_uint(t, 2, 8, 0);
  if (offset <= 1) return (Bytes){data.p, data.n};
  if (offset > im->file.n || size > im->file.n - offset)
    raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: the file is damaged: buffer %d leads outside its %zu bytes", i,
          im->file.n);
  return (Bytes){im->file.p + offset, (size_t)size};
}

static void read_names(Import *im, const FlatTable *t, int slot, const TflGraph *g, int *n, const char ***name,
                       const int32_t **index)
{
  FlatVector v = flat_vector(t, slot, 4, "the names of a signature");
  *n = count(im, &v, "names");
  *name = arena_array(im->arena, const char *, *n + 1);
  int32_t *at = arena_array(im->arena, int32_t, *n + 1);
  for (int i = 0; i < *n; i++) {
    FlatTable one = flat_at(t, &v, (size_t)i, "TensorMap");
    (*name)[i] = flat_str(&one, 0);
    uint64_t tensor = flat_uint(&one, 1, 4, 0);
    if (tensor >= (uint64_t)g->ntensors)
      raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: the signature's '%s' is tensor %" PRIu64 "; subgraph '%s' has %d",
            (*name)[i], tensor, g->name, g->ntensors);
    at[i] = (int32_t)tensor;
  }
  *index = at;
}

static void read_signatures(Import *im, const FlatTable *root, TflModel *m)
{
  FlatVector list = flat_vector(root, 7, 4, "the signatures");
  m->nsignatures = count(im, &list, "signatures");
  TflSignature *s = arena_array(im->arena, TflSignature, m->nsignatures + 1);
  for (int i = 0; i < m->nsignatures; i++) {
    FlatTable t = flat_at(root, &list, (size_t)i, "SignatureDef");
    uint64_t graph = flat_uint(&t, 4, 4, 0);
    if (graph >= (uint64_t)m->ngraphs)
      raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: a signature is of subgraph %" PRIu64 "; there are %d", graph,
            m->ngraphs);
    s[i].graph = (int)graph;
    read_names(im, &t, 0, &m->graph[graph], &s[i].nin, &s[i].in_name, &s[i].in);
    read_names(im, &t, 1, &m->graph[graph], &s[i].nout, &s[i].out_name, &s[i].out);
  }
  m->signature = s;
}

TflModel *tfl_read_model(Import *im)
{
  FlatFile *f = arena_new_of(im->arena, FlatFile);
  *f = (FlatFile){im->ctx, im->arena, im->file};
  if (im->file.n < 8 || memcmp(im->file.p + 4, "TFL3", 4))
    raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: %s%s%s is no TFLite model: it does not say TFL3", im->path ? "'" : "",
          im->path ? im->path : "the data", im->path ? "'" : "");
  FlatTable root = flat_root(f, "Model");
  TflModel *m = arena_new_of(im->arena, TflModel);
  FlatVector codes = flat_vector(&root, 1, 4, "the operator codes");
  FlatVector graphs = flat_vector(&root, 2, 4, "the subgraphs");
  FlatVector buffers = flat_vector(&root, 4, 4, "the buffers");
  int ncodes = count(im, &codes, "operator codes");
  OpCode *code = arena_array(im->arena, OpCode, ncodes + 1);
  for (int i = 0; i < ncodes; i++) {
    FlatTable t = flat_at(&root, &codes, (size_t)i, "OperatorCode");
    code[i] = read_code(im, &t);
  }
  m->nbuffers = count(im, &buffers, "buffers");
  Bytes *data = arena_array(im->arena, Bytes, m->nbuffers + 1);
  for (int i = 0; i < m->nbuffers; i++) {
    FlatTable t = flat_at(&root, &buffers, (size_t)i, "Buffer");
    data[i] = read_buffer(im, &t, i);
  }
  m->buffer = data;
  m->ngraphs = count(im, &graphs, "subgraphs");
  m->graph = arena_array(im->arena, TflGraph, m->ngraphs + 1);
  if (!m->ngraphs) raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: the model has no subgraph");
  for (int i = 0; i < m->ngraphs; i++) {
    FlatTable t = flat_at(&root, &graphs, (size_t)i, "SubGraph");
    read_graph(im, &t, m, ncodes, code, &m->graph[i]);
  }
  read_signatures(im, &root, m);
  return m;
}

/* ---- constants ------------------------------------------------------------------------------------------------- */

/* Strings: their number, where each begins, where the last ends (all int32), the bytes. */
static void read_strings(Import *im, const TflTensor *t, Bytes raw, size_t n, ConstData *d)
{
  FlatVector at = {raw.p, raw.n / 4, 0};
  if (raw.n < 4 || (size_t)flat_i32_at(&at, 0) != n || raw.n / 4 < n + 2)
    raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: the strings of tensor '%s' do not fit its shape", t->name);
  uint64_t *number = arena_array(im->m->arena, uint64_t, n + 1);
  for (size_t i = 0; i < n; i++) {
    int64_t begin = flat_i32_at(&at, 1 + i);
    int64_t end = flat_i32_at(&at, 2 + i);
    if (begin < 0 || end < begin || (size_t)end > raw.n)
      raise(im->ctx, ERR_PARSE, NOWHERE, "tflite: string %zu of tensor '%s' leads outside its buffer", i, t->name);
    number[i] = ctx_string(im->ctx, raw.p + begin, (size_t)(end - begin));
  }
  d->data = number;
}

static const Node *dense_constant(Import *im, TflTensor *t, Bytes raw)
{
  ConstData d = {.dtype = t->dtype, .file = im->path};
  if (im->path) d.file_offset = (uint64_t)(raw.p - im->file.p);
  size_t n = kit_const_shape(im, t->name, t->ndim, t->dim, &d);
  if (dtype_is_string(t->dtype)) {
    d.file = NULL;
    read_strings(im, t, raw, n, &d);
  } else {
    kit_const_raw(im, t->name, raw, n, &d);
  }
  if (t->dtype.bits == 4) { /* in bytes from here on */
    d.dtype = DT_I8;
    d.bytes = n;
  }
  return kit_const(im, &d);
}

const Node *tfl_constant(Import *im, TflTensor *t)
{
  if (t->node) return t->node;
  Bytes raw = tfl_of(im)->model->nbuffers ? tfl_of(im)->model->buffer[t->buffer] : (Bytes){0};
  bool empty = false;
  for (int i = 0; i < t->ndim; i++) empty |= t->dim[i] == 0;
  if (!raw.n && !(empty && t->buffer)) return NULL;
  t->node = t->sparsity.file ? tfl_sparse_constant(im, t, raw) : dense_constant(im, t, raw);
  return t->node;
}
