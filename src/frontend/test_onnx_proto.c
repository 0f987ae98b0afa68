/* test_onnx_proto.c: the reader of protobuf's wire format. */
#include "frontend/test_onnx.h"

static PTensor *read_tensor(World *w, Text *t)
{
  return onnx_proto_read(w->m->arena, &onnx_proto_tensor, text_str(t), t->n);
}
static PModel *read_model(World *w, Text *t)
{
  return onnx_proto_read(w->m->arena, &onnx_proto_model, text_str(t), t->n);
}

CASE(packed_and_unpacked_lists_are_the_same)
{
  Text a = fresh(w);
  Text b = fresh(w);
  Text packed = fresh(w);
  float f[] = {1.5f, -2};
  int64_t v[] = {3, -1, 300};
  for (int i = 0; i < 3; i++) {
    pb_int(&a, 7, v[i]);
    pb_varint(&packed, (uint64_t)v[i]);
  }
  for (int i = 0; i < 2; i++) pb_float(&a, 4, f[i]);
  pb_msg(&b, 7, &packed);
  pb_bytes(&b, 4, f, sizeof f);
  for (int k = 0; k < 2; k++) {
    PTensor *t = read_tensor(w, k ? &b : &a);
    assert_int_equal(t->int64_data.n, 3);
    assert_int_equal(t->float_data.n, 2);
    for (int i = 0; i < 3; i++) assert_int_equal(t->int64_data.v[i], v[i]);
    for (int i = 0; i < 2; i++) assert_true(t->float_data.v[i] == f[i]);
  }
}

CASE(bytes_are_views_and_unknown_fields_are_skipped)
{
  Text t = fresh(w);
  pb_int(&t, 1000, 7);
  pb_str(&t, 900, "whatever");
  pb_varint(&t, 31 << 3 | 1);
  text_addn(&t, "12345678", 8);
  pb_bytes(&t, 9, "abc", 3);
  const char *bytes = text_str(&t);
  PTensor *p = onnx_proto_read(w->m->arena, &onnx_proto_tensor, bytes, t.n);
  assert_int_equal(p->raw_data.n, 3);
  assert_true(p->raw_data.p == bytes + t.n - 3);
  assert_true(p->has & 1u << PTENSOR_RAW);
  assert_string_equal(p->name, "");
}

CASE(a_model_nests)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2,n,?");
  g_node(&g, "Relu", "x", "y");
  g_output(&g, "y");
  Text t = model_of(&g, 13);
  PModel *m = read_model(w, &t);
  assert_int_equal(m->graph->node.n, 1);
  assert_string_equal(m->graph->node.v[0]->op_type, "Relu");
  assert_int_equal(m->opset_import.v[0]->version, 13);
  PShape *s = m->graph->input.v[0]->type->tensor->shape;
  assert_int_equal(s->dim.n, 3);
  assert_int_equal(s->dim.v[0]->dim_value, 2);
  assert_string_equal(s->dim.v[1]->dim_param, "n");
  assert_int_equal(s->dim.v[2]->has, 0);
}

/* What was read is written so that it is read the same: fields that nobody looks into too. */
CASE(what_is_read_is_written)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2,n,?");
  g_floats(&g, "c", 1, (int64_t[]){2}, (float[]){1.5f, -2});
  g_node(&g, "Relu", "x", "y");
  g_output(&g, "y");
  pb_str(&g.body, 10, "of the graph");
  Text t = model_of(&g, 13);
  pb_str(&t, 6, "what it is");
  pb_int(&t, 5, 0); /* model_version, said to be 0 */
  for (int i = 0; i < 2; i++) {
    Text entry = fresh(w);
    pb_str(&entry, 1, i ? "b" : "a");
    pb_str(&entry, 2, "value");
    pb_msg(&t, 14, &entry);
  }
  PModel *m = read_model(w, &t);
  Bytes once = onnx_proto_write(w->m->arena, &onnx_proto_model, m);
  PModel *back = onnx_proto_read(w->m->arena, &onnx_proto_model, once.p, once.n);
  Bytes twice = onnx_proto_write(w->m->arena, &onnx_proto_model, back);
  assert_int_equal(once.n, twice.n);
  assert_memory_equal(once.p, twice.p, once.n);
  assert_int_equal(back->has, m->has);
  assert_int_equal(back->doc.n, 10);
  assert_int_equal(back->metadata.n, 2);
  assert_int_equal(back->graph->doc.n, 12);
  assert_string_equal(back->graph->node.v[0]->op_type, "Relu");
  assert_int_equal(back->graph->initializer.v[0]->raw_data.n, 8);
  PShape *s = back->graph->input.v[0]->type->tensor->shape;
  assert_int_equal(s->dim.v[0]->dim_value, 2);
  assert_string_equal(s->dim.v[1]->dim_param, "n");
  assert_int_equal(s->dim.v[2]->has, 0);
}

/* A prefix of a model is read or refused as damaged, and nothing else happens. */
typedef struct Prefix {
  Arena *arena;
  const char *p;
  size_t n;
} Prefix;
static void read_prefix(Ctx *ctx, void *arg)
{
  (void)ctx;
  Prefix *x = arg;
  onnx_proto_read(x->arena, &onnx_proto_model, x->p, x->n);
}

CASE(every_truncation_is_clean)
{
  Graph g = graph_new(w);
  g_floats(&g, "c", 1, (int64_t[]){3}, (float[]){1, 2, 3});
  g_node(&g, "Add", "c,c", "y");
  g_output(&g, "y");
  Text t = model_of(&g, 13);
  int refused = 0;
  for (size_t n = 0; n < t.n; n++) {
    char *part = malloc(n + 1); /* its end is where the sanitizer looks */
    memcpy(part, text_str(&t), n);
    part = realloc(part, n ? n : 1);
    ErrKind k = protect(w->ctx, read_prefix, &(Prefix){w->m->arena, part, n});
    assert_true(k == ERR_NONE || k == ERR_PARSE);
    refused += k == ERR_PARSE;
    free(part);
  }
  assert_true(refused > 20);
  error_clear(w->ctx);
}

REFUSED(a_length_past_the_end, ERR_PARSE, "TensorProto.name", "past the end")
{
  Text t = fresh(w);
  pb_varint(&t, 8 << 3 | 2);
  pb_varint(&t, 100);
  text_addn(&t, "abc", 3);
  read_tensor(w, &t);
}

REFUSED(a_length_of_64_bits, ERR_PARSE, "past the end")
{
  Text t = fresh(w);
  pb_varint(&t, 9 << 3 | 2);
  pb_varint(&t, UINT64_MAX);
  read_tensor(w, &t);
}

REFUSED(a_number_without_end, ERR_PARSE, "ends inside a number")
{
  Text t = fresh(w);
  pb_varint(&t, 2 << 3);
  text_addn(&t, "\xff\xff", 2);
  read_tensor(w, &t);
}

REFUSED(a_number_of_eleven_bytes, ERR_PARSE, "more than ten bytes")
{
  Text t = fresh(w);
  pb_varint(&t, 2 << 3);
  text_addn(&t, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
  read_tensor(w, &t);
}

REFUSED(a_wrong_wire_type, ERR_PARSE, "TensorProto.data_type", "wrong wire type")
{
  Text t = fresh(w);
  pb_str(&t, 2, "float");
  read_tensor(w, &t);
}

REFUSED(a_group, ERR_PARSE, "group")
{
  Text t = fresh(w);
  pb_varint(&t, 100 << 3 | 3);
  read_tensor(w, &t);
}

REFUSED(half_a_float, ERR_PARSE, "float_data", "ends inside a number")
{
  Text t = fresh(w);
  pb_bytes(&t, 4, "abcde", 5);
  read_tensor(w, &t);
}

REFUSED(a_zero_byte_in_a_name, ERR_PARSE, "zero byte")
{
  Text t = fresh(w);
  pb_bytes(&t, 8, "a\0b", 3);
  read_tensor(w, &t);
}

REFUSED(graphs_inside_graphs_without_end, ERR_PARSE, "nests deeper")
{
  Text g = fresh(w);
  pb_str(&g, 2, "innermost");
  for (int i = 0; i < 300; i++) {
    Text attr = fresh(w);
    Text node = fresh(w);
    Text outer = fresh(w);
    pb_msg(&attr, 6, &g);
    pb_msg(&node, 5, &attr);
    pb_msg(&outer, 1, &node);
    g = outer;
  }
  onnx_proto_read(w->m->arena, &onnx_proto_graph, text_str(&g), g.n);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(packed_and_unpacked_lists_are_the_same),
    cmocka_unit_test(bytes_are_views_and_unknown_fields_are_skipped),
    cmocka_unit_test(a_model_nests),
    cmocka_unit_test(what_is_read_is_written),
    cmocka_unit_test(every_truncation_is_clean),
    cmocka_unit_test(a_length_past_the_end),
    cmocka_unit_test(a_length_of_64_bits),
    cmocka_unit_test(a_number_without_end),
    cmocka_unit_test(a_number_of_eleven_bytes),
    cmocka_unit_test(a_wrong_wire_type),
    cmocka_unit_test(a_group),
    cmocka_unit_test(half_a_float),
    cmocka_unit_test(a_zero_byte_in_a_name),
    cmocka_unit_test(graphs_inside_graphs_without_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
