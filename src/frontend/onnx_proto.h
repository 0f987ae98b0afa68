/* onnx_proto.h: the messages of an ONNX file, as structs that point into its bytes.
 *
 * onnx_proto.c reads protobuf's wire format with one table per message.  Strings are
 * copied (they get their terminator), byte fields are views of the file, lists live in
 * the arena given.  Every length is checked against its message; nesting is limited;
 * unknown fields are skipped; groups, which ONNX never uses, are refused.
 *
 * `has` tells which singular fields were present: bit k for field number k.
 *
 * onnx_proto_write writes the same messages by the same tables.  Every field that ONNX defines is in them; what nobody
 * here looks into (documentation, metadata, annotations) is kept as its bytes, so that a model that was read and
 * written again says what it said before. */
#ifndef LATHE_ONNX_PROTO_H
#define LATHE_ONNX_PROTO_H

#include "frontend/kit.h"

typedef Vec(int64_t) PInts;
typedef Vec(float) PFloats;
typedef Vec(double) PDoubles;
typedef Vec(const char *) PStrs;
typedef Vec(Bytes) PBytesList;

typedef struct PEntry {
  uint32_t has;
  const char *key, *value;
} PEntry;

typedef struct PTensor {
  uint32_t has;
  PInts dims;
  int64_t data_type;
  PFloats float_data;
  PInts int32_data, int64_data, uint64_data;
  PDoubles double_data;
  PBytesList string_data;
  const char *name;
  Bytes raw_data;
  Vec(PEntry *) external_data;
  int64_t data_location; /* 1: in another file */
  Bytes segment, doc;
  PBytesList metadata;
} PTensor;
enum { PTENSOR_RAW = 9 };

typedef struct PSparse {
  uint32_t has;
  PTensor *values, *indices;
  PInts dims;
} PSparse;

typedef struct PDim {
  uint32_t has;
  int64_t dim_value;
  const char *dim_param;
  Bytes denotation;
} PDim;
enum { PDIM_VALUE = 1, PDIM_PARAM = 2 };
typedef struct PShape {
  uint32_t has;
  Vec(PDim *) dim;
} PShape;
typedef struct PType PType;
typedef struct PTensorType {
  uint32_t has;
  int64_t elem_type;
  PShape *shape;
} PTensorType;
typedef struct PElemType {
  uint32_t has;
  PType *elem_type;
} PElemType; /* sequence and optional */
typedef struct PMapType {
  uint32_t has;
  int64_t key_type;
  PType *value_type;
} PMapType;
struct PType {
  uint32_t has;
  PTensorType *tensor, *sparse;
  PElemType *sequence, *optional;
  PMapType *map;
  Bytes denotation, opaque;
};
typedef struct PValueInfo {
  uint32_t has;
  const char *name;
  PType *type;
  Bytes doc;
  PBytesList metadata;
} PValueInfo;

typedef struct PGraph PGraph;
/* AttributeProto.AttributeType */
enum {
  PATTR_NONE,
  PATTR_FLOAT,
  PATTR_INT,
  PATTR_STRING,
  PATTR_TENSOR,
  PATTR_GRAPH,
  PATTR_FLOATS,
  PATTR_INTS,
  PATTR_STRINGS,
  PATTR_TENSORS,
  PATTR_GRAPHS,
  PATTR_SPARSE,
  PATTR_SPARSES,
  PATTR_TYPE,
  PATTR_TYPES,
};
typedef struct PAttr {
  uint32_t has;
  const char *name, *ref; /* ref: takes the value of the enclosing function's attribute */
  int64_t type;           /* 0 in the oldest files: told by what is present */
  float f;
  int64_t i;
  Bytes s;
  PTensor *t;
  PGraph *g;
  PFloats floats;
  PInts ints;
  PBytesList strings;
  Vec(PTensor *) tensors;
  Vec(PGraph *) graphs;
  PSparse *sparse;
  Vec(PSparse *) sparses;
  PType *tp;
  Vec(PType *) tps;
  Bytes doc;
} PAttr;

typedef struct PNode {
  uint32_t has;
  PStrs input, output;
  const char *name, *op_type, *domain, *overload;
  Vec(PAttr *) attribute;
  Bytes doc;
  PBytesList metadata, devices;
} PNode;

struct PGraph {
  uint32_t has;
  Vec(PNode *) node;
  const char *name;
  Vec(PTensor *) initializer;
  Vec(PSparse *) sparse_initializer;
  Vec(PValueInfo *) input, output, value_info;
  Bytes doc;
  PBytesList annotations, metadata;
};

typedef struct POpset {
  uint32_t has;
  const char *domain;
  int64_t version;
} POpset;

typedef struct PFunction {
  uint32_t has;
  const char *name, *domain, *overload;
  PStrs input, output, attribute;
  Vec(PAttr *) attribute_proto; /* attributes with a default */
  Vec(PNode *) node;
  Vec(POpset *) opset_import;
  Bytes doc;
  PBytesList value_info, metadata;
} PFunction;

typedef struct PModel {
  uint32_t has;
  int64_t ir_version;
  const char *producer_name;
  PGraph *graph;
  Vec(POpset *) opset_import;
  Vec(PFunction *) functions;
  Bytes producer_version, domain, doc;
  int64_t model_version;
  PBytesList metadata, training, configuration;
} PModel;

/* A table per message. */
typedef enum {
  PB_INT,
  PB_FLOAT,
  PB_STR,
  PB_BYTES,
  PB_MSG,
  PB_INTS,
  PB_FLOATS,
  PB_DOUBLES,
  PB_STRS,
  PB_BYTES_LIST,
  PB_MSGS
} ProtoKind;
typedef struct ProtoField {
  int number;
  ProtoKind kind;
  const char *name;
  size_t offset;
  const struct ProtoMessage *message;
} ProtoField;
typedef struct ProtoMessage {
  const char *name;
  size_t size;
  const ProtoField *field;
  int n;
} ProtoMessage;
extern const ProtoMessage onnx_proto_model, onnx_proto_graph, onnx_proto_tensor;

/* Reads a message; raises ERR_PARSE with the message's and the field's name and the
 * offset in the file.  What comes back lives in the arena and points into bytes. */
void *onnx_proto_read(Arena *, const ProtoMessage *, const void *bytes, size_t n);
/* Writes one.  A singular field is written when `has` tells of it, or when it is not zero. */
Bytes onnx_proto_write(Arena *, const ProtoMessage *, const void *message);

#endif
