/* onnx_proto.c: protobuf's wire format, read and written by tables.
 *
 * Comes in: bytes from anywhere, not to be trusted.  Goes out: the structs of
 * onnx_proto.h.  Invariant: a cursor never passes the end of the message it is in, and
 * the end of an inner message never passes that of the outer one.  Writing is the way back. */
#include "frontend/onnx_proto.h"

#include <limits.h>

/* A model nests graph, node, attribute, graph, …: sixty loops inside each other fit. */
enum { DEPTH_LIMIT = 200 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_GROUP = 3, WIRE_GROUP_END = 4, WIRE_32 = 5 };

#define FIELD(T, number, kind, member, message) {number, kind, #member, offsetof(T, member), message}
#define MESSAGE(id, text, T, fields) \
  const ProtoMessage id = {text, sizeof(T), fields, (int)(sizeof fields / sizeof *fields)}
#define LOCAL_MESSAGE(id, text, T, fields) \
  static const ProtoMessage id = {text, sizeof(T), fields, (int)(sizeof fields / sizeof *fields)}

static const ProtoMessage proto_type;

static const ProtoField entry_fields[] = {
  FIELD(PEntry, 1, PB_STR, key, NULL),
  FIELD(PEntry, 2, PB_STR, value, NULL),
};
LOCAL_MESSAGE(proto_entry, "StringStringEntryProto", PEntry, entry_fields);

/* clang-format off */
static const ProtoField tensor_fields[] = {
  FIELD(PTensor, 1, PB_INTS, dims, NULL),
  FIELD(PTensor, 2, PB_INT, data_type, NULL),
  FIELD(PTensor, 3, PB_BYTES, segment, NULL),
  FIELD(PTensor, 4, PB_FLOATS, float_data, NULL),
  FIELD(PTensor, 5, PB_INTS, int32_data, NULL),
  FIELD(PTensor, 6, PB_BYTES_LIST, string_data, NULL),
  FIELD(PTensor, 7, PB_INTS, int64_data, NULL),
  FIELD(PTensor, 8, PB_STR, name, NULL),
  FIELD(PTensor, 9, PB_BYTES, raw_data, NULL),
  FIELD(PTensor, 10, PB_DOUBLES, double_data, NULL),
  FIELD(PTensor, 11, PB_INTS, uint64_data, NULL),
  FIELD(PTensor, 12, PB_BYTES, doc, NULL),
  FIELD(PTensor, 13, PB_MSGS, external_data, &proto_entry),
  FIELD(PTensor, 14, PB_INT, data_location, NULL),
  FIELD(PTensor, 16, PB_BYTES_LIST, metadata, NULL),
};
/* clang-format on */
MESSAGE(onnx_proto_tensor, "TensorProto", PTensor, tensor_fields);

/* clang-format off */
static const ProtoField sparse_fields[] = {
  FIELD(PSparse, 1, PB_MSG, values, &onnx_proto_tensor),
  FIELD(PSparse, 2, PB_MSG, indices, &onnx_proto_tensor),
  FIELD(PSparse, 3, PB_INTS, dims, NULL),
};
/* clang-format on */
LOCAL_MESSAGE(proto_sparse, "SparseTensorProto", PSparse, sparse_fields);

static const ProtoField dim_fields[] = {
  FIELD(PDim, 1, PB_INT, dim_value, NULL),
  FIELD(PDim, 2, PB_STR, dim_param, NULL),
  FIELD(PDim, 3, PB_BYTES, denotation, NULL),
};
LOCAL_MESSAGE(proto_dim, "Dimension", PDim, dim_fields);
static const ProtoField shape_fields[] = {FIELD(PShape, 1, PB_MSGS, dim, &proto_dim)};
LOCAL_MESSAGE(proto_shape, "TensorShapeProto", PShape, shape_fields);
static const ProtoField tensor_type_fields[] = {
  FIELD(PTensorType, 1, PB_INT, elem_type, NULL),
  FIELD(PTensorType, 2, PB_MSG, shape, &proto_shape),
};
LOCAL_MESSAGE(proto_tensor_type, "TypeProto.Tensor", PTensorType, tensor_type_fields);
static const ProtoField elem_type_fields[] = {FIELD(PElemType, 1, PB_MSG, elem_type, &proto_type)};
LOCAL_MESSAGE(proto_elem_type, "TypeProto.Sequence", PElemType, elem_type_fields);
static const ProtoField map_type_fields[] = {
  FIELD(PMapType, 1, PB_INT, key_type, NULL),
  FIELD(PMapType, 2, PB_MSG, value_type, &proto_type),
};
LOCAL_MESSAGE(proto_map_type, "TypeProto.Map", PMapType, map_type_fields);
/* clang-format off */
static const ProtoField type_fields[] = {
  FIELD(PType, 1, PB_MSG, tensor, &proto_tensor_type),
  FIELD(PType, 4, PB_MSG, sequence, &proto_elem_type),
  FIELD(PType, 5, PB_MSG, map, &proto_map_type),
  FIELD(PType, 6, PB_BYTES, denotation, NULL),
  FIELD(PType, 7, PB_BYTES, opaque, NULL),
  FIELD(PType, 8, PB_MSG, sparse, &proto_tensor_type),
  FIELD(PType, 9, PB_MSG, optional, &proto_elem_type),
};
/* clang-format on */
LOCAL_MESSAGE(proto_type, "TypeProto", PType, type_fields);
static const ProtoField value_info_fields[] = {
  FIELD(PValueInfo, 1, PB_STR, name, NULL),
  FIELD(PValueInfo, 2, PB_MSG, type, &proto_type),
  FIELD(PValueInfo, 3, PB_BYTES, doc, NULL),
  FIELD(PValueInfo, 4, PB_BYTES_LIST, metadata, NULL),
};
LOCAL_MESSAGE(proto_value_info, "ValueInfoProto", PValueInfo, value_info_fields);

/* clang-format off */
static const ProtoField attr_fields[] = {
  FIELD(PAttr, 1, PB_STR, name, NULL),
  FIELD(PAttr, 2, PB_FLOAT, f, NULL),
  FIELD(PAttr, 3, PB_INT, i, NULL),
  FIELD(PAttr, 4, PB_BYTES, s, NULL),
  FIELD(PAttr, 5, PB_MSG, t, &onnx_proto_tensor),
  FIELD(PAttr, 6, PB_MSG, g, &onnx_proto_graph),
  FIELD(PAttr, 7, PB_FLOATS, floats, NULL),
  FIELD(PAttr, 8, PB_INTS, ints, NULL),
  FIELD(PAttr, 9, PB_BYTES_LIST, strings, NULL),
  FIELD(PAttr, 10, PB_MSGS, tensors, &onnx_proto_tensor),
  FIELD(PAttr, 11, PB_MSGS, graphs, &onnx_proto_graph),
  FIELD(PAttr, 13, PB_BYTES, doc, NULL),
  FIELD(PAttr, 14, PB_MSG, tp, &proto_type),
  FIELD(PAttr, 15, PB_MSGS, tps, &proto_type),
  FIELD(PAttr, 20, PB_INT, type, NULL),
  FIELD(PAttr, 21, PB_STR, ref, NULL),
  FIELD(PAttr, 22, PB_MSG, sparse, &proto_sparse),
  FIELD(PAttr, 23, PB_MSGS, sparses, &proto_sparse),
};
/* clang-format on */
LOCAL_MESSAGE(proto_attr, "AttributeProto", PAttr, attr_fields);

/* clang-format off */
static const ProtoField node_fields[] = {
  FIELD(PNode, 1, PB_STRS, input, NULL),
  FIELD(PNode, 2, PB_STRS, output, NULL),
  FIELD(PNode, 3, PB_STR, name, NULL),
  FIELD(PNode, 4, PB_STR, op_type, NULL),
  FIELD(PNode, 5, PB_MSGS, attribute, &proto_attr),
  FIELD(PNode, 6, PB_BYTES, doc, NULL),
  FIELD(PNode, 7, PB_STR, domain, NULL),
  FIELD(PNode, 8, PB_STR, overload, NULL),
  FIELD(PNode, 9, PB_BYTES_LIST, metadata, NULL),
  FIELD(PNode, 10, PB_BYTES_LIST, devices, NULL),
};
/* clang-format on */
LOCAL_MESSAGE(proto_node, "NodeProto", PNode, node_fields);

/* clang-format off */
static const ProtoField graph_fields[] = {
  FIELD(PGraph, 1, PB_MSGS, node, &proto_node),
  FIELD(PGraph, 2, PB_STR, name, NULL),
  FIELD(PGraph, 5, PB_MSGS, initializer, &onnx_proto_tensor),
  FIELD(PGraph, 10, PB_BYTES, doc, NULL),
  FIELD(PGraph, 11, PB_MSGS, input, &proto_value_info),
  FIELD(PGraph, 12, PB_MSGS, output, &proto_value_info),
  FIELD(PGraph, 13, PB_MSGS, value_info, &proto_value_info),
  FIELD(PGraph, 14, PB_BYTES_LIST, annotations, NULL),
  FIELD(PGraph, 15, PB_MSGS, sparse_initializer, &proto_sparse),
  FIELD(PGraph, 16, PB_BYTES_LIST, metadata, NULL),
};
/* clang-format on */
MESSAGE(onnx_proto_graph, "GraphProto", PGraph, graph_fields);

static const ProtoField opset_fields[] = {
  FIELD(POpset, 1, PB_STR, domain, NULL),
  FIELD(POpset, 2, PB_INT, version, NULL),
};
LOCAL_MESSAGE(proto_opset, "OperatorSetIdProto", POpset, opset_fields);

/* clang-format off */
static const ProtoField function_fields[] = {
  FIELD(PFunction, 1, PB_STR, name, NULL),
  FIELD(PFunction, 4, PB_STRS, input, NULL),
  FIELD(PFunction, 5, PB_STRS, output, NULL),
  FIELD(PFunction, 6, PB_STRS, attribute, NULL),
  FIELD(PFunction, 7, PB_MSGS, node, &proto_node),
  FIELD(PFunction, 8, PB_BYTES, doc, NULL),
  FIELD(PFunction, 9, PB_MSGS, opset_import, &proto_opset),
  FIELD(PFunction, 10, PB_STR, domain, NULL),
  FIELD(PFunction, 11, PB_MSGS, attribute_proto, &proto_attr),
  FIELD(PFunction, 12, PB_BYTES_LIST, value_info, NULL),
  FIELD(PFunction, 13, PB_STR, overload, NULL),
  FIELD(PFunction, 14, PB_BYTES_LIST, metadata, NULL),
};
/* clang-format on */
LOCAL_MESSAGE(proto_function, "FunctionProto", PFunction, function_fields);

/* clang-format off */
static const ProtoField model_fields[] = {
  FIELD(PModel, 1, PB_INT, ir_version, NULL),
  FIELD(PModel, 2, PB_STR, producer_name, NULL),
  FIELD(PModel, 3, PB_BYTES, producer_version, NULL),
  FIELD(PModel, 4, PB_BYTES, domain, NULL),
  FIELD(PModel, 5, PB_INT, model_version, NULL),
  FIELD(PModel, 6, PB_BYTES, doc, NULL),
  FIELD(PModel, 7, PB_MSG, graph, &onnx_proto_graph),
  FIELD(PModel, 8, PB_MSGS, opset_import, &proto_opset),
  FIELD(PModel, 14, PB_BYTES_LIST, metadata, NULL),
  FIELD(PModel, 20, PB_BYTES_LIST, training, NULL),
  FIELD(PModel, 25, PB_MSGS, functions, &proto_function),
  FIELD(PModel, 26, PB_BYTES_LIST, configuration, NULL),
};
/* clang-format on */
MESSAGE(onnx_proto_model, "ModelProto", PModel, model_fields);

/* ---- the cursor ------------------------------------------------------------------------ */

typedef struct Reader {
  Ctx *ctx;
  Arena *arena;
  const char *begin;   /* of the file, for offsets in messages */
  const char *p, *end; /* of the message being read */
  const ProtoMessage *message;
  int depth;
} Reader;

_Noreturn static void bad(Reader *r, const char *field, const char *what)
{
  raise(r->ctx, ERR_PARSE, NOWHERE, "onnx: %s%s%s %s at byte %zu: the file is damaged or not an ONNX model",
        r->message->name, *field ? "." : "", field, what, (size_t)(r->p - r->begin));
}

static uint64_t read_varint(Reader *r, const char *field)
{
  uint64_t v = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (r->p == r->end) bad(r, field, "ends inside a number");
    uint8_t b = (uint8_t)*r->p++;
    if (shift < 64) v |= (uint64_t)(b & 127) << shift;
    if (!(b & 128)) return v;
  }
  bad(r, field, "has a number of more than ten bytes");
}

static Bytes read_bytes(Reader *r, const char *field)
{
  uint64_t n = read_varint(r, field);
  if (n > (uint64_t)(r->end - r->p)) bad(r, field, "has a length past the end of its message");
  Bytes b = {r->p, (size_t)n};
  r->p += n;
  return b;
}

static void read_fixed(Reader *r, const char *field, void *out, size_t n)
{
  if ((size_t)(r->end - r->p) < n) bad(r, field, "ends inside a number");
  memcpy(out, r->p, n);
  r->p += n;
}

static void skip_field(Reader *r, int wire)
{
  char buf[8];
  if (wire == WIRE_VARINT) read_varint(r, "");
  else if (wire == WIRE_64) read_fixed(r, "", buf, 8);
  else if (wire == WIRE_32) read_fixed(r, "", buf, 4);
  else if (wire == WIRE_BYTES) read_bytes(r, "");
  else if (wire == WIRE_GROUP || wire == WIRE_GROUP_END) bad(r, "", "has a group, which ONNX does not use,");
  else bad(r, "", "has a field of an unknown wire type");
}

static const char *to_string(Reader *r, const ProtoField *f, Bytes b)
{
  if (memchr(b.p, 0, b.n)) bad(r, f->name, "has a string with a zero byte inside");
  return arena_strndup(r->arena, b.p, b.n);
}

/* ---- lists: every Vec has the same head ------------------------------------------------ */

typedef Vec(char) AnyVec;

static void *push_slots(Reader *r, const ProtoField *f, AnyVec *list, size_t n, size_t size)
{
  if (n > (size_t)(INT_MAX / 2 - list->n)) bad(r, f->name, "has too many elements");
  int want = list->n + (int)n;
  if (want > list->cap) {
    int cap = list->cap ? list->cap * 2 : 4;
    if (cap < want) cap = want;
    char *v = arena_alloc_array(r->arena, (size_t)cap, size);
    if (list->n) memcpy(v, list->v, (size_t)list->n * size);
    list->v = v;
    list->cap = cap;
  }
  void *slot = list->v ? list->v + (size_t)list->n * size : NULL; /* NULL: room for none was asked for */
  list->n = want;
  return slot;
}

static void read_ints(Reader *r, const ProtoField *f, int wire, AnyVec *list)
{
  if (wire == WIRE_VARINT) {
    *(int64_t *)push_slots(r, f, list, 1, sizeof(int64_t)) = (int64_t)read_varint(r, f->name);
    return;
  }
  Bytes b = read_bytes(r, f->name);
  size_t n = 0;
  for (size_t i = 0; i < b.n; i++) n += !((uint8_t)b.p[i] & 128);
  int64_t *out = push_slots(r, f, list, n, sizeof(int64_t));
  Reader in = *r;
  in.p = b.p;
  in.end = b.p + b.n;
  for (size_t i = 0; i < n; i++) out[i] = (int64_t)read_varint(&in, f->name);
  if (in.p != in.end) bad(&in, f->name, "ends inside a number");
}

static void read_fixeds(Reader *r, const ProtoField *f, bool packed, size_t size, AnyVec *list)
{
  if (!packed) {
    read_fixed(r, f->name, push_slots(r, f, list, 1, size), size);
    return;
  }
  Bytes b = read_bytes(r, f->name);
  if (b.n % size) bad(r, f->name, "ends inside a number");
  if (b.n) memcpy(push_slots(r, f, list, b.n / size, size), b.p, b.n);
}

/* ---- messages ---------------------------------------------------------------------------- */

static void *read_message(Reader *outer, const ProtoMessage *message, Bytes b);

static int wire_of(ProtoKind kind)
{
  switch (kind) {
  case PB_INT:
  case PB_INTS: return WIRE_VARINT;
  case PB_FLOAT:
  case PB_FLOATS: return WIRE_32;
  case PB_DOUBLES: return WIRE_64;
  case PB_STR:
  case PB_BYTES:
  case PB_MSG:
  case PB_STRS:
  case PB_BYTES_LIST:
  case PB_MSGS: return WIRE_BYTES;
  }
  return -1;
}

static void read_field(Reader *r, const ProtoField *f, int wire, char *out)
{
  bool list = f->kind == PB_INTS || f->kind == PB_FLOATS || f->kind == PB_DOUBLES;
  if (wire != wire_of(f->kind) && !(list && wire == WIRE_BYTES)) bad(r, f->name, "has the wrong wire type");
  void *slot = out + f->offset;
  if (f->number < 32) *(uint32_t *)out |= 1u << f->number;
  switch (f->kind) {
  case PB_INT: *(int64_t *)slot = (int64_t)read_varint(r, f->name); break;
  case PB_FLOAT: read_fixed(r, f->name, slot, 4); break;
  case PB_STR: *(const char **)slot = to_string(r, f, read_bytes(r, f->name)); break;
  case PB_BYTES: *(Bytes *)slot = read_bytes(r, f->name); break;
  case PB_MSG: *(void **)slot = read_message(r, f->message, read_bytes(r, f->name)); break;
  case PB_INTS: read_ints(r, f, wire, slot); break;
  case PB_FLOATS: read_fixeds(r, f, wire == WIRE_BYTES, 4, slot); break;
  case PB_DOUBLES: read_fixeds(r, f, wire == WIRE_BYTES, 8, slot); break;
  case PB_STRS: {
    const char *s = to_string(r, f, read_bytes(r, f->name));
    *(const char **)push_slots(r, f, slot, 1, sizeof s) = s;
    break;
  }
  case PB_BYTES_LIST: {
    Bytes b = read_bytes(r, f->name);
    *(Bytes *)push_slots(r, f, slot, 1, sizeof b) = b;
    break;
  }
  case PB_MSGS: {
    void *message = read_message(r, f->message, read_bytes(r, f->name));
    *(void **)push_slots(r, f, slot, 1, sizeof message) = message;
    break;
  }
  }
}

/* Text is never NULL: an absent string is the empty one. */
static void fill_strings(const ProtoMessage *message, char *out)
{
  for (int i = 0; i < message->n; i++)
    if (message->field[i].kind == PB_STR && !*(const char **)(out + message->field[i].offset))
      *(const char **)(out + message->field[i].offset) = "";
}

static void *read_message(Reader *outer, const ProtoMessage *message, Bytes b)
{
  Reader r = {outer->ctx, outer->arena, outer->begin, b.p, b.p + b.n, message, outer->depth + 1};
  if (r.depth > DEPTH_LIMIT)
    raise(r.ctx, ERR_PARSE, NOWHERE, "onnx: %s nests deeper than %d messages", message->name, DEPTH_LIMIT);
  char *out = arena_alloc(r.arena, message->size);
  while (r.p < r.end) {
    uint64_t key = read_varint(&r, "");
    int wire = (int)(key & 7);
    uint64_t number = key >> 3;
    if (!number || number > 0x1fffffff) bad(&r, "", "has a field number out of range");
    const ProtoField *f = NULL;
    for (int i = 0; i < message->n && !f; i++)
      if ((uint64_t)message->field[i].number == number) f = &message->field[i];
    if (f) read_field(&r, f, wire, out);
    else skip_field(&r, wire);
  }
  fill_strings(message, out);
  return out;
}

void *onnx_proto_read(Arena *arena, const ProtoMessage *message, const void *bytes, size_t n)
{
  Reader r = {arena_ctx(arena), arena, bytes, bytes, (const char *)bytes + n, message, 0};
  return read_message(&r, message, (Bytes){bytes, n});
}

/* ---- writing ------------------------------------------------------------------------------ */

/* A message's length stands before it, so each is gone over twice: without a place its bytes are counted alone. */
typedef struct Writer {
  char *p;
  size_t n;
} Writer;

static void put_raw(Writer *w, const void *p, size_t n)
{
  if (w->p && n) memcpy(w->p + w->n, p, n);
  w->n += n;
}

static void put_varint(Writer *w, uint64_t v)
{
  char byte[10];
  size_t n = 0;
  for (; v > 127; v >>= 7) byte[n++] = (char)(v | 128);
  byte[n++] = (char)v;
  put_raw(w, byte, n);
}

static void put_key(Writer *w, const ProtoField *f, int wire)
{
  put_varint(w, (uint64_t)f->number << 3 | (uint64_t)wire);
}

static void put_bytes(Writer *w, const ProtoField *f, const void *p, size_t n)
{
  put_key(w, f, WIRE_BYTES);
  put_varint(w, n);
  put_raw(w, p, n);
}

static void write_message(Writer *w, const ProtoMessage *message, const char *in);

static void put_message(Writer *w, const ProtoField *f, const void *message)
{
  Writer count = {0};
  write_message(&count, f->message, message);
  put_key(w, f, WIRE_BYTES);
  put_varint(w, count.n);
  write_message(w, f->message, message);
}

static void put_ints(Writer *w, const ProtoField *f, const PInts *list)
{
  Writer count = {0};
  for (int i = 0; i < list->n; i++) put_varint(&count, (uint64_t)list->v[i]);
  put_key(w, f, WIRE_BYTES);
  put_varint(w, count.n);
  for (int i = 0; i < list->n; i++) put_varint(w, (uint64_t)list->v[i]);
}

static void write_list(Writer *w, const ProtoField *f, const AnyVec *list)
{
  for (int i = 0; i < list->n; i++) {
    if (f->kind == PB_MSGS) put_message(w, f, ((void *const *)list->v)[i]);
    else if (f->kind == PB_STRS) put_bytes(w, f, ((char *const *)list->v)[i], strlen(((char *const *)list->v)[i]));
    else put_bytes(w, f, ((const Bytes *)list->v)[i].p, ((const Bytes *)list->v)[i].n);
  }
}

static void write_field(Writer *w, const ProtoField *f, bool there, const void *slot)
{
  const AnyVec *list = slot;
  switch (f->kind) {
  case PB_INT: {
    int64_t v;
    memcpy(&v, slot, sizeof v);
    if (!there && !v) break;
    put_key(w, f, WIRE_VARINT);
    put_varint(w, (uint64_t)v);
    break;
  }
  case PB_FLOAT:
    if (!there && *(const float *)slot == 0) break;
    put_key(w, f, WIRE_32);
    put_raw(w, slot, 4);
    break;
  case PB_STR: {
    const char *s = *(const char *const *)slot;
    if (there || (s && *s)) put_bytes(w, f, s, s ? strlen(s) : 0);
    break;
  }
  case PB_BYTES: {
    const Bytes *b = slot;
    if (there || b->n) put_bytes(w, f, b->p, b->n);
    break;
  }
  case PB_MSG:
    if (*(void *const *)slot) put_message(w, f, *(void *const *)slot);
    break;
  case PB_INTS:
    if (list->n) put_ints(w, f, slot);
    break;
  case PB_FLOATS:
  case PB_DOUBLES:
    if (list->n) put_bytes(w, f, list->v, (size_t)list->n * (f->kind == PB_FLOATS ? 4 : 8));
    break;
  case PB_STRS:
  case PB_BYTES_LIST:
  case PB_MSGS: write_list(w, f, list); break;
  }
}

static void write_message(Writer *w, const ProtoMessage *message, const char *in)
{
  uint32_t has = *(const uint32_t *)in;
  for (int i = 0; i < message->n; i++) {
    const ProtoField *f = &message->field[i];
    write_field(w, f, f->number < 32 && (has >> f->number & 1), in + f->offset);
  }
}

Bytes onnx_proto_write(Arena *arena, const ProtoMessage *message, const void *in)
{
  Writer w = {0};
  write_message(&w, message, in);
  w = (Writer){arena_alloc(arena, w.n + 1), 0};
  write_message(&w, message, in);
  return (Bytes){w.p, w.n};
}
