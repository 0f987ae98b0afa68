/* test_table.c: the table of operators as a whole: each is documented, has names for its
 * arguments, readable defaults, and exactly one meaning. */
#include "op/test_op.h"

static bool complain(const OpDef *op, const char *what)
{
  fprintf(stderr, "%s: %s\n", op->name, what);
  return false;
}

static int count_names(const char *args)
{
  int n = *args != 0;
  for (const char *p = args; *p; p++) n += *p == ',';
  return n;
}

static bool is_sound(World *w, const OpDef *op)
{
  if (!op->name || !*op->name) return complain(op, "no name");
  if (!op->doc || !*op->doc || op->doc[strlen(op->doc) - 1] == '.')
    return complain(op, "no doc, or one that ends with a full stop");
  if (!op->args) return complain(op, "no names of arguments");
  if (!op->type) return complain(op, "no type rule");
  if ((op->compute != NULL) + (op->decompose != NULL) + (op->tir != NULL) + (op->eval != NULL) != 1)
    return complain(op, "not exactly one meaning");
  if ((op->eval != NULL) != ((op->flags & OPF_HOST) != 0)) return complain(op, "eval and OPF_HOST go together");
  if (op->min_args < 0 || (op->max_args >= 0 && op->max_args < op->min_args))
    return complain(op, "impossible numbers of arguments");
  if (op->max_args >= 0 && count_names(op->args) != op->max_args)
    return complain(op, "args does not name max_args arguments");
  for (int i = 0; op->attrs && i < op->attrs->n; i++) {
    const AttrField *f = &op->attrs->field[i];
    if (!f->doc || !*f->doc) return complain(op, "an attribute without doc");
    for (int k = 0; k < i; k++)
      if (!strcmp(op->attrs->field[k].name, f->name)) return complain(op, "an attribute twice");
  }
  if (op->attrs && !attrs_new(w->m, op->attrs)) return complain(op, "no attributes could be made");
  return true;
}

CASE(every_operator_is_sound)
{
  int bad = 0;
  for (int i = 0; i < opdef_count(); i++) bad += !is_sound(w, opdef_at(i));
  assert_int_equal(bad, 0);
  assert_true(opdef_count() > 100);
}

CASE(names_are_unique)
{
  StrMap seen = {0};
  for (int i = 0; i < opdef_count(); i++) {
    if (strmap_get(&seen, opdef_at(i)->name)) complain(opdef_at(i), "listed twice");
    assert_null(strmap_get(&seen, opdef_at(i)->name));
    strmap_put(scratch(w->ctx), &seen, opdef_at(i)->name, (void *)(uintptr_t)opdef_at(i));
    assert_ptr_equal(opdef_find(opdef_at(i)->name), opdef_at(i));
  }
}

/* Defaults leave nothing to print: what is printed reads back to the same. */
CASE(defaults_print_as_nothing)
{
  for (int i = 0; i < opdef_count(); i++) {
    const AttrsDef *def = opdef_at(i)->attrs;
    bool all = true;
    for (int k = 0; def && k < def->n; k++) all = all && def->field[k].def;
    if (!def || !all) continue;
    Text t = text_new(scratch(w->ctx));
    attrs_print(&t, def, attrs_new(w->m, def));
    if (t.n) fprintf(stderr, "%s prints its defaults: %s\n", opdef_at(i)->name, t.s);
    assert_int_equal(t.n, 0);
  }
}

/* What ToMixedPrecision, FuseOps and the like read of an operator. */
CASE(facts_of_operators)
{
  (void)w;
  assert_int_equal(opdef_find("nn.conv2d")->narrow, NARROW_ALWAYS);
  assert_int_equal(opdef_find("nn.relu")->narrow, NARROW_FOLLOW);
  assert_int_equal(opdef_find("nn.softmax")->narrow, NARROW_NEVER);
  assert_int_equal(opdef_find("asin")->narrow, NARROW_UNKNOWN);
  assert_true(opdef_find("exp")->flags & OPF_DEAR);
  assert_false(opdef_find("add")->flags & OPF_DEAR);
  assert_true(opdef_find("equal")->flags & OPF_STRING);
}

CASE(layouts_are_read)
{
  (void)w;
  Layout l;
  assert_null(layout_parse("OIHW4i16o", &l));
  assert_int_equal(l.n, 6);
  assert_int_equal(layout_find(&l, 'W'), 3);
  assert_int_equal(layout_find(&l, 'C'), -1);
  assert_int_equal(layout_block(&l, 'O'), 16);
  assert_true(layout_is_split(&l, 'I') && !layout_is_split(&l, 'H'));
  assert_true(layout_is_plain("NHWC") && !layout_is_plain("NCHW8c") && !layout_is_plain(""));
  static const char *const wrong[] = {"", "NCHWc", "NC8HW", "NCC", "NHW4c", "NCHW4", "NC-W", NULL};
  for (int i = 0; wrong[i]; i++) assert_non_null(layout_parse(wrong[i], &l));
  assert_int_equal(layout_axis(&(LayoutPair){"NCHW", "NHWC"}, 1), 3);
  assert_int_equal(layout_axis(&(LayoutPair){"NCHW", "NCHW8c"}, 1), -1);
  assert_int_equal(layout_axis(&(LayoutPair){"NCHW", "NCHW8c"}, 3), 3);
  assert_int_equal(layout_outer_axis(&(LayoutPair){"NCHW", "NCHW8c"}, 1), 1);
  assert_int_equal(layout_axis(&(LayoutPair){"NCHW", "NCHW"}, 4), -1);
  assert_int_equal(layout_axis(&(LayoutPair){"NCHW", NULL}, 0), -1);
}

REFUSED(a_name_that_is_near, ERR_ARGUMENT, "there is no operator 'ad' (did you mean 'add'?)")
{
  opdef_get(w->ctx, "ad");
}

int main(void)
{
  op_init();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_operator_is_sound),   cmocka_unit_test(names_are_unique),
    cmocka_unit_test(defaults_print_as_nothing), cmocka_unit_test(facts_of_operators),
    cmocka_unit_test(layouts_are_read),          cmocka_unit_test(a_name_that_is_near),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
