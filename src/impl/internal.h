/* internal.h: what the files of this layer share.
 *
 * An ImplGroup is a fused function on its way: its tensor expressions, the schedule
 * made of them, and which blocks are what.  Schedules work on blocks by name (te gives
 * each operation's), and ask nest.c what a block's loops are and how it walks memory. */
#ifndef LATHE_IMPL_INTERNAL_H
#define LATHE_IMPL_INTERNAL_H

#include "impl/impl.h"

/* A plan's record and its table, from a list of fields as operators' attributes have them. */
#define DECLARE_PLAN(Name, LIST) \
  typedef struct Name {          \
    LIST(ATTR_MEMBER, Name)      \
  } Name;                        \
  extern const AttrsDef Name##_table;

/* generic_plan.c */
#define GENERIC_PLAN(A, S)                                                                    \
  A(S, INT, vectors, NULL, "vectors that one step of the innermost loop computes")            \
  A(S, INT, threads, NULL, "threads that share the outer loops")                              \
  A(S, INT, rows, NULL, "of a sum: rows that are added together, or that share what is read") \
  A(S, BOOL, along, NULL, "of a sum: lanes along it, rather than across results, where both can be")
DECLARE_PLAN(GenericPlan, GENERIC_PLAN)

struct ImplGroup {
  Ctx *ctx;
  Arena *arena; /* scratch of this lowering */
  Module *src;
  const Node *func;
  const Target *target;
  const ImplConfig *config;
  const Node *anchor; /* the call with the heaviest fusion kind */
  const Impl *impl;
  const void *plan;    /* a record of impl->plan */
  GenericPlan generic; /* of every block that the generic schedule takes */
  int nanchor;         /* operations of the anchor, producers first */
  const TeOp **anchor_op;
  const Tensor *anchor_out; /* its first output */
  const char *serial;       /* why threads do not share a loop that is worth it; NULL: they do */
  const char *refusal;      /* why the last schedule that was tried did not go */
  Map names;                /* TeOp* or E_REDUCE* -> block name, Tensor* -> buffer name */
  Sched *s;
};

/* A size that is known before the run; 0: it is not. */
static inline int64_t known(const Expr *e) { return e->kind == E_INT && e->u.i > 0 ? e->u.i : 0; }
static inline int64_t known_size(const Type *t, int d) { return known(t->shape[d]); }

/* Number i of a list that may have one number for all, or none. */
static inline int64_t impl_list_at(AttrInts list, int i, int64_t none)
{
  if (list.n == 0) return none;
  return list.v[list.n == 1 ? 0 : i];
}

/* An axis from 0 on for a compute, and its variable. */
static inline const Expr *impl_axis(Module *m, const char *name, const Expr *extent, IterKind kind, const IterVar **out)
{
  *out = itervar_new(m, var_new(m, name, DT_I32, VAR_PLAIN), expr_i32(m, 0), extent, kind, NULL);
  return var_expr((*out)->var);
}

/* tuned.c: those of the list that config->tuned names for the call, with their measured seconds; how many. */
int plan_tuned(const ImplCall *, const PlanList *, Plan **out);
/* "conv2d.nchwc"; "generic" */
const char *plan_name(const Plan *);

#define DEFINE_PLAN_TABLE(Name, LIST)                                \
  static const AttrField Name##_fields[] = {LIST(ATTR_FIELD, Name)}; \
  const AttrsDef Name##_table = {#Name, sizeof(Name), Name##_fields, \
                                 (int)(sizeof Name##_fields / sizeof *Name##_fields)};
#define DEFINE_PLAN(Name, LIST) \
  DECLARE_PLAN(Name, LIST)      \
  DEFINE_PLAN_TABLE(Name, LIST)

/* ---- group.c -------------------------------------------------------------------------- */

/* Block that computes the anchor's operation number i (the reduction where there is one). */
const char *group_block(const ImplGroup *, const TeOp *);
/* The anchor's last reduction. */
BlockRV group_sum(ImplGroup *);
/* The one block that reads what the block writes; raises where there are several. */
BlockRV group_only_reader(ImplGroup *, BlockRV);
/* The anchor's operation of that name. */
bool group_find_stage(ImplGroup *, const char *name, BlockRV *);
BlockRV group_stage(ImplGroup *, const char *name); /* raises where there is none */
/* generic.c: runs body under protect; false when a primitive refused, and the function is then as it
 * was before the refused one.  Any other error is raised again. */
bool group_try(ImplGroup *, void (*body)(Ctx *, void *), void *arg);
/* generic.c: sched_prefetch where it is possible: without the hint the kernel is slower and no less right. */
void group_prefetch(ImplGroup *, BlockRV, int read, LoopRV, int64_t distance);

/* ---- nest.c: a block's loops and how it walks memory ----------------------------------- */

enum { NEST_LOOPS = 24, NEST_ACCESSES = 40 };

typedef struct NestLoop {
  LoopRV rv;
  Stmt *stmt;
  int64_t extent; /* 0: not known */
  bool reduce;
  bool guarded;                  /* a condition or the value itself depends on it: padding, concatenation, counts */
  bool unbounded;                /* guarded, and not by bounds alone, at which the lowering can cut the loop */
  bool joins;                    /* for every access one step is all of the next loop, whose extent is not known */
  int64_t grain;                 /* guarded by bounds alone: every one is a multiple of this, 1 when not known */
  int64_t stride[NEST_ACCESSES]; /* elements that access a moves in one step; STRIDE_ANY: not a constant */
} NestLoop;
#define STRIDE_ANY INT64_MIN

typedef struct NestAccess {
  const Buffer *buffer;
  bool write;
} NestAccess;

typedef struct Nest {
  BlockRV rv;
  Block *block;
  int n; /* loops, outermost first */
  NestLoop loop[NEST_LOOPS];
  int naccess; /* access 0 is the store */
  NestAccess access[NEST_ACCESSES];
  bool reduction;    /* it has an init or a reduce loop */
  bool plain;        /* one store (two with init), all loops told apart: may be scheduled */
  double iterations; /* product of the extents; unknown ones count as 64 */
  double operations; /* arithmetic operations of one iteration */
  int bits;          /* of the widest element touched */
} Nest;
void nest_read(ImplGroup *, BlockRV, Nest *);

/* A block that may vanish into its consumers: one store at its own variables, no reduction. */
bool nest_block_is_injective(const Block *);
bool nest_block_is_output(const PrimFunc *, const Block *);
/* How much an expression costs, in multiply-adds: elementary functions count as several. */
double nest_expr_operations(Ctx *, const Expr *);

/* ---- cost.c: the model of the machine ------------------------------------------------- */

enum { CACHE_LINE = 64 }; /* bytes */

int64_t cost_l1(const Target *); /* bytes of the caches; small ones where nobody knows */
int64_t cost_l2(const Target *);
double cost_pipes(const Target *); /* multiply-adds of whole vectors begun in a cycle */
/* vectors read in a cycle while lines come into the first-level cache */
double cost_loads(const Target *);
double cost_chain(const Target *);           /* cycles from a multiply-add to the next one that adds to its result */
double cost_far(const Target *);             /* cycles for a vector from the second-level cache */
double cost_flops(const Target *, int bits); /* of one core, a second */
/* products over words of 2 or 4 bfloat16 in the time of one over float32 */
double cost_words(const Target *, int elements);
double cost_bandwidth(const Target *); /* of one core, bytes a second from memory */
double cost_stream(const Target *);    /* the same, read straight ahead and only once */
double cost_cache(const Target *);     /* from the caches behind the first */
/* Seconds to copy so many bytes straight ahead, of which so many wait in the copy to be read; a change of layout, which
 * does not go straight ahead, takes twice as long. */
double cost_copy(const Target *, double bytes, double waiting);
/* Seconds that reading so many vectors adds to the arithmetic beside it, where so many bytes pass before one is read
 * again. */
double cost_reads(const Target *, double vectors, double bytes);
/* Cycles for a run of lines apart from the last one, of so many bytes that pass before it is read again. */
double cost_run(const Target *, double lines, double bytes);
/* Cycles of storing so many runs of bytes each, in turn to more planes than a core sees coming which line is next of,
 * that the arithmetic does not hide; bytes: of all planes. */
double cost_stores(const Target *, double runs, double run, double bytes);
/* How many threads are worth waking for so much work. */
int cost_threads(const Target *, double operations, double bytes);
/* Share of the threads' time that so many equal pieces fill. */
double cost_busy(double pieces, int threads);

/* ---- likely.c ------------------------------------------------------------------------------ */

/* A size, or what it is taken to be where it is not known: an extent of data of so many spatial dimensions; 0: of a
 * text, a table. */
int64_t likely_size(const Expr *, int dims);
/* Operations of a call, one of a batch where their number is not known. */
double likely_flops(Module *, const Node *call);
/* Has its result sizes, the batch apart, that are not known? */
bool likely_is_open(const Node *call);
/* The same call, such sizes a part of what they are. */
const Node *likely_part(Module *, const Node *call, int part);

/* ---- tile.c -------------------------------------------------------------------------------- */

typedef struct Tile {
  int64_t o, y, x; /* blocks of vectors, rows, columns of positions */
} Tile;
double tile_speed(const Target *, int64_t vectors, int64_t oy, int64_t ox, Tile);
/* The same of a tile of so many elements, whose steps lie side by side in a panel, by so many vectors, all of which
 * come from the first-level cache: what they take from elsewhere is cost_reads'. */
double tile_packed_speed(const Target *, int bits, int64_t elements, int64_t vectors);
/* The `most` fastest tiles (TILE_LIST at most), the fastest first; how many. */
enum { TILE_LIST = 16 };
int tile_list(const Target *, int bits, int64_t vectors, int64_t blocks, int64_t oy, int64_t ox, int most, Tile *);
Tile tile_best(const Target *, int64_t vectors, int64_t blocks, int64_t oy, int64_t ox);
/* the same, elements so wide */
Tile tile_for(const Target *, int bits, int64_t vectors, int64_t blocks, int64_t oy, int64_t ox);
/* WebAssembly's compilers make one expression of a sum's steps, and hold what they read for all the sums, in registers
 * that are not there: a step at a time, or as many as share a vector of elements. */
static inline bool tile_steps_dear(const Target *t) { return t->arch == ARCH_WASM32; }
int64_t tile_steps(const Target *, int64_t sums, int64_t extent); /* steps of the sum to write out; divides extent */
int64_t tile_steps_of(const Target *, Tile, int64_t vectors, int64_t extent);
/* Tiles of 2 x 2 blocks of sums over fours of bfloat16; 0: the target has none, or pairs are as fast. */
int64_t tile_block_rows(const Target *, int64_t width, int64_t panels, int64_t rows);
bool tile_blocks_pay(const Target *);

/* ---- epilogue.c ------------------------------------------------------------------------- */

/* The anchor's block accumulates a tile inside `at`, in registers; what comes after it is
 * computed there on the whole tile when it reads element by element, else the tile is
 * stored.  Gives the block that stores the tile. */
BlockRV impl_attach_epilogue(ImplGroup *, BlockRV anchor, LoopRV at);
/* Writes out a block's loops from number `outer` to the last but one and makes vectors of the last.  may_loop: the sums
 * are complete behind a loop, so that they may wait in memory for a function that is not written out. */
void epilogue_write_out(ImplGroup *, BlockRV store, int outer, bool may_loop);
/* Vectors of a function of so many operations that run best side by side. */
int64_t epilogue_abreast(const Target *, double operations);

/* ---- conv.c ------------------------------------------------------------------------------ */

int conv_dims(const Node *call);                  /* 1, 2, 3 */
const char *conv_spatial(int dims);               /* "W", "HW", "DHW" */
int64_t conv_block(const char *layout, int dims); /* channels of a block of NCHW16c; 0: another layout */
/* Is it the two letters of channels ("NC", "OI", "IO") and the spatial dimensions, in no blocks? */
bool conv_layout_is_plain(const char *layout, const char *channels, int dims);
bool conv_is_blocked(const Node *call);
bool conv_groups_wide(const Target *, const Node *call); /* groups that conv_schedule serves */
/* Loops of a nest over blocks of channels, by number: n is 0, the blocks of output channels 1, then z, y, x (-1: not
 * there), the channels of a block, the sum. */
typedef struct ConvLoops {
  int dims, z, y, x, c, first; /* first of the sum */
} ConvLoops;
BlockRV conv_begin(ImplGroup *, Nest **, ConvLoops *);           /* inlines what it can and reads the sum's loops */
int conv_sum_order(const Nest *, const ConvLoops *, int *index); /* loops of the sum, outermost first; how many */
void conv_schedule(ImplGroup *);
#define CONV_PLAN(A, S)                                                      \
  A(S, INT, data_block, NULL, "input channels of a block; 0: data is plain") \
  A(S, INT, out_block, NULL, "output channels of a block")                   \
  A(S, INT, o, NULL, "blocks of output channels of a register tile")         \
  A(S, INT, y, NULL, "rows of a register tile")                              \
  A(S, INT, x, NULL, "columns of a register tile")                           \
  A(S, INT, band, NULL, "rows of output that one block of output channels after the other goes over")
DECLARE_PLAN(ConvPlan, CONV_PLAN)
void conv_plans(const ImplCall *, PlanList *);
void conv_alter(const ImplCall *, const void *plan, AlteredCall *);
void conv_pack_plans(const ImplCall *, PlanList *);
/* Blocks of channels that divide them and fill vectors, the usual one first; how many. */
enum { CONV_BLOCKS = 8 };
int conv_blocks(const Target *, int bits, int64_t channels, int64_t *block);
/* Seconds on one core of so much arithmetic in register tiles that reach a share of the peak, in sums of so many
 * steps. */
double conv_tile_seconds(const Target *, int bits, double flops, double steps, double share);
void conv_pack_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);

/* ---- words.c ------------------------------------------------------------------------------ */

/* The operator's own sum; over words where the weight has groups of bfloat16. */
void conv_words_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);

/* ---- conv_shape.c ------------------------------------------------------------------------ */

/* Any convolution, in plain layouts or over blocks of channels.  Sizes that are not known are 0. */
typedef struct ConvShape {
  int dims, bits;
  int word; /* elements that lie side by side in the weight and are multiplied together (OIHW4i8o2i), else 1 */
  bool transposed;
  bool constant;                   /* the weight is known at compile time */
  int64_t n, c, o, groups, ig, og; /* ig, og: channels of one group */
  int64_t in[3], out[3], k[3], stride[3], dilation[3], before[3], after[3];
  int64_t data_block, out_block; /* channels of a block; 0: plain */
  int64_t weight_block;          /* output channels of a block of the weight; 0: plain */
  bool open;                     /* in and out have likely values where they are not known (conv_shape_open) */
  int64_t likely_in[3], likely_out[3];
  int64_t split[3]; /* flat.c: data is taken apart into planes of every split-th element */
} ConvShape;
/* Elements of a group, the layout's last letter, of a weight of bfloat16 or bytes; 1: it has none. */
int conv_word_of(const char *kernel_layout, const Type *weight);
/* False: not such a convolution, or channels, groups or taps are not known. */
bool conv_shape(const ImplCall *, ConvShape *);
bool conv_shape_of(const OpDef *, const void *attrs, const Type *data, const Type *weight, const Type *out,
                   ConvShape *);
/* The same of a convolution of bytes, summed in int32. */
bool conv_shape_bytes(const Node *call, ConvShape *);

/* For implementations that serve any extent: those that are not known get likely values.  True: there are such. */
bool conv_shape_open(ConvShape *);
/* Operations, of one image where their number is not known. */
double conv_shape_flops(const ConvShape *);
/* Tiles of a band of a plane of unknown extent, where a cache holds so many: 0 all those, 1 some of them, 2 one.  What
 * a plan may be does not depend on what is likely, its seconds alone do. */
int64_t conv_open_band(int64_t fit, int which);

/* ---- im2col.c ---------------------------------------------------------------------------- */

extern const AttrsDef Im2colPlan_table;
void im2col_plans(const ImplCall *, PlanList *);
void im2col_alter(const ImplCall *, const void *plan, AlteredCall *);
void im2col_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void im2col_schedule(ImplGroup *);

/* ---- panels.c ---------------------------------------------------------------------------- */

extern const AttrsDef PanelsPlan_table;
void panels_plans(const ImplCall *, PlanList *);
void panels_bytes_plans(const ImplCall *, PlanList *); /* over eight bytes at a time, in 2 x 2 blocks of sums */
void panels_alter(const ImplCall *, const void *plan, AlteredCall *);
void panels_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void panels_schedule(ImplGroup *);
/* What products over packed panels share: a copy (…, k, elements of a panel) made of squares that are turned round in
 * registers, and the lines of the panels that a step reads a little later.  `alone`: of that buffer only, NULL: of all
 * that it reads. */
void panels_turn(ImplGroup *, BlockRV packing);
void panels_fetch(ImplGroup *, BlockRV product, LoopRV step, const Buffer *alone);

/* ---- matmul.c ---------------------------------------------------------------------------- */

extern const AttrsDef MatmulPlan_table;
void matmul_plans(const ImplCall *, PlanList *);        /* of the call as it stands */
void matmul_packed_plans(const ImplCall *, PlanList *); /* over a weight in panels, or one to be brought into them */
void matmul_alter(const ImplCall *, const void *plan, AlteredCall *);
void matmul_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void matmul_schedule(ImplGroup *);
void matmul_schedule_tiles(ImplGroup *, int64_t width, int64_t rows); /* of a product over a weight in panels */
/* The product over its weight in panels of so many columns; word: so many steps of k, bfloat16, side by side. */
void matmul_alter_to(const ImplCall *, int64_t width, int word, AlteredCall *);
/* a as (batch…, rows / height, k, height), zeros behind the last row. */
const Tensor *matmul_pack_rows(Module *, const Tensor *a, int64_t height, int word);
/* Elements of a word over which a product of bfloat16 with a weight known at compile time is made; 0: there is no such
 * form of it. */
int matmul_word(Ctx *, const Target *, const Node *call);

/* ---- int8_conv.c ------------------------------------------------------------------------- */

/* Channels of a block of bytes; 0: four does not divide their number. */
int64_t int8_block(const Target *, int64_t channels);
/* Products of a step of its sum, whose operands lie side by side: of `of` of them in all. */
int int8_word(const Target *, const Node *call, int64_t of);
/* Has the target an instruction for the sums of a product's or a convolution's bytes? */
bool int8_has_dot(const Target *, const Node *call);
/* One for 2 x 2 blocks of sums of eight products each? */
bool int8_has_blocks(const Target *, const Node *call);
enum { INT8_EIGHT = 8 };
/* The dot product of eight elements of a's and of b's last dimension, at and of the indices before it. */
const Expr *int8_eights_dot(Module *, const Tensor *a, const Expr **at, const Tensor *b, const Expr **of);
/* Products of integers, summed in int32: the form that the target's instructions want.  False: the call stays. */
bool int8_alter(Module *, const Target *, const Node *call, AlteredCall *out);
void int8_conv_plans(const ImplCall *, PlanList *);
void int8_conv_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);

/* ---- int8_product.c ---------------------------------------------------------------------- */

extern const AttrsDef Int8Plan_table;
bool int8_alter_dense(Module *, const Target *, const Node *call, AlteredCall *out);
void int8_dense_plans(const ImplCall *, PlanList *); /* over a weight in panels */
void int8_dense_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void int8_rows_plans(const ImplCall *, PlanList *); /* over operands as they are */
void int8_rows_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void int8_product_schedule(ImplGroup *);
void int8_blocks_plans(const ImplCall *, PlanList *); /* the same in 2 x 2 blocks of sums */
void int8_blocks_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void int8_blocks_schedule(ImplGroup *);

/* ---- int8_depthwise.c ------------------------------------------------------------------------ */

bool int8_alter_depthwise(Module *, const Target *, const Node *call, AlteredCall *out);
void int8_depthwise_plans(const ImplCall *, PlanList *);
void int8_depthwise_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);

/* ---- nbits.c ----------------------------------------------------------------------------- */

extern const AttrsDef NbitsPlan_table;
void nbits_plans(const ImplCall *, PlanList *);
void nbits_alter(const ImplCall *, const void *plan, AlteredCall *);
void nbits_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void nbits_schedule(ImplGroup *);

/* ---- blocks.c ---------------------------------------------------------------------------- */

extern const AttrsDef BlocksPlan_table;
void blocks_plans(const ImplCall *, PlanList *);
void blocks_alter(const ImplCall *, const void *plan, AlteredCall *);
void blocks_dense_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void blocks_dense_schedule(ImplGroup *);
/* The element of a row and of a column of its panel in sums (lead…, tile, row / 2, column / 2, lane), tiles so many
 * rows high. */
const Expr *blocks_read(Module *, const Tensor *sums, int nlead, const Expr *const *lead, const Expr *row,
                        int64_t height, const Expr *column);
/* Cycles of a step of a tile of so many rows and columns in 2 x 2 blocks, of which so many bits begin in a cycle; 0:
 * registers do not hold it. */
double blocks_step_cycles(const Target *, int begun_bits, int64_t height, int64_t width);
/* The product's loops inside a tile, the sum's last: steps, blocks, vectors of a block's lanes.  Gives the loop over
 * steps that is written out. */
LoopRV blocks_tile(ImplGroup *, BlockRV product, int64_t steps);

/* ---- attention.c ------------------------------------------------------------------------- */

extern const AttrsDef AttentionPlan_table;
void attention_plans(const ImplCall *, PlanList *);
void attention_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void attention_schedule(ImplGroup *);

/* ---- alter.c ------------------------------------------------------------------------------- */

int64_t alter_block_vectors(int64_t n, int64_t lanes);
int64_t alter_block(const Target *, int bits, int64_t channels);
const Node *alter_transform(Module *, const Node *, const char *from, const char *to); /* layout_transform */
bool alter_is_constant(Ctx *, const Node *); /* known at compile time, or made from such */
/* With so many zeros behind each dimension. */
const Node *alter_pad(Module *, const Node *, const int64_t *more);
/* A weight whose first dimension is groups of rows, with zeros behind the last row of each up to a multiple of
 * block. */
const Node *alter_pad_rows(Module *, const Node *weight, int64_t groups, int64_t block);

/* ---- alter_conv.c -------------------------------------------------------------------------- */

/* A convolution over plain data as one over blocks of channels (data_block 0: data stays plain). */
void alter_to_blocks(const ImplCall *, int64_t data_block, int64_t out_block, AlteredCall *out);
/* The weight's input channels in no blocks, whatever the data's are. */
void alter_whole_weight(const ImplCall *, int64_t out_block, AlteredCall *out);

/* ---- layout.c ------------------------------------------------------------------------------ */

bool transform_fits(const Target *, const Node *call);
double transform_cost(const Target *, const Node *call);
void transform_schedule(ImplGroup *);
bool transform_padded_fits(const Target *,
                           const Node *call); /* from plain to blocks, of what is padded or concatenated */
void transform_padded_schedule(ImplGroup *);

/* ---- pool.c -------------------------------------------------------------------------------- */

extern const AttrsDef PoolPlan_table;
void pool_plans(const ImplCall *, PlanList *);
double pool_cost(const Target *, const Node *call);
void pool_schedule(ImplGroup *);
bool pool_map_fits(const Target *, const Node *call); /* small maps, a vector over the ends of rows */
void pool_map_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void pool_map_schedule(ImplGroup *);
bool pool_columns_fits(const Target *, const Node *call); /* windows some columns apart */
void pool_columns_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);

/* ---- softmax.c ----------------------------------------------------------------------------- */

extern const AttrsDef SoftmaxPlan_table;
void softmax_plans(const ImplCall *, PlanList *);
void softmax_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void softmax_log_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void softmax_schedule(ImplGroup *);

/* ---- conv_transpose.c ---------------------------------------------------------------------- */

extern const AttrsDef PhasesPlan_table;
void transpose_plans(const ImplCall *, PlanList *);
void transpose_alter(const ImplCall *, const void *plan, AlteredCall *);
void transpose_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void transpose_schedule(ImplGroup *);

/* ---- flat.c -------------------------------------------------------------------------------- */

extern const AttrsDef FlatPlan_table;
void conv_flat_plans(const ImplCall *, PlanList *);
void conv_flat_alter(const ImplCall *, const void *plan, AlteredCall *);
void conv_flat_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void conv_flat_schedule(ImplGroup *);

/* ---- recurrent.c --------------------------------------------------------------------------- */

bool recurrent_alter(Module *, const Target *, const Node *call, AlteredCall *out);

/* ---- depthwise.c --------------------------------------------------------------------------- */

#define DEPTHWISE_PLAN(A, S)                       \
  A(S, INT, block, NULL, "channels of a block")    \
  A(S, INT, x, NULL, "columns of a register tile") \
  A(S, INT, band, NULL, "rows of output that one thread computes together")
DECLARE_PLAN(DepthwisePlan, DEPTHWISE_PLAN)
bool depthwise_fits(const Node *call);
void depthwise_plans(const ImplCall *, PlanList *);
void depthwise_lanes_plans(const ImplCall *, PlanList *); /* groups narrower than a block */
void depthwise_open_plans(const ImplCall *, PlanList *);  /* rows and columns known only at run time */
void depthwise_open_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void depthwise_open_schedule(ImplGroup *);
void depthwise_alter(const ImplCall *, const void *plan, AlteredCall *);
void depthwise_lanes_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void depthwise_schedule(ImplGroup *);
bool depthwise_one_channel(const Target *); /* is a tile columns of one channel, not of a block of them? */

/* ---- planes.c ------------------------------------------------------------------------------ */

extern const AttrsDef PlanesPlan_table;
void planes_plans(const ImplCall *, PlanList *);
void planes_alter(const ImplCall *, const void *plan, AlteredCall *);
void planes_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void planes_schedule(ImplGroup *);

/* ---- winograd.c ---------------------------------------------------------------------------- */

#define WINOGRAD_PLAN(A, S)                                                               \
  A(S, INT, tile, NULL, "outputs of a tile, one way")                                     \
  A(S, BOOL, before, NULL, "the weight is transformed at compile time, else in the call") \
  A(S, INT, data_block, NULL, "input channels of a block")                                \
  A(S, INT, out_block, NULL, "output channels of a block")                                \
  A(S, INT, band, NULL, "rows of tiles that pass through all stages together; 0: all do") \
  A(S, INT, o, NULL, "blocks of output channels of the product's register tile")          \
  A(S, INT, x, NULL, "tiles of the product's register tile")
DECLARE_PLAN(WinogradPlan, WINOGRAD_PLAN)
void winograd_plans(const ImplCall *, PlanList *);
void winograd_alter(const ImplCall *, const void *plan, AlteredCall *);
typedef struct WinogradSizes {
  /* images, channels, those of an output block, the output, outputs per tile */
  int64_t n, c, o, block, y, x, tile, groups;
  int bits;
} WinogradSizes;
/* rows of tiles that pass through all stages together; 0: all do */
int64_t winograd_band(const Target *, const WinogradSizes *);
/* is the weight fetched from memory while its last block is multiplied? */
bool winograd_fetches(const Target *, const WinogradSizes *);
WinogradSizes winograd_sizes(const ConvShape *, int64_t tile, int64_t block);
void winograd_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void winograd_schedule(ImplGroup *);
bool winograd_weight_fits(const Target *, const Node *call);
double winograd_weight_cost(const Target *, const Node *call);
void winograd_weight_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void winograd_weight_schedule(ImplGroup *);

/* ---- parts.c ------------------------------------------------------------------------------------ */

enum { PARTS_AXES = 12 };
/* Steps of a sum's first axis in a block of at most so many terms: a divisor. */
int64_t parts_steps(const TeOp *sum, int64_t most);
/* The sum of `term` instead, over all steps (blocks 1) or over those of block b, its last axis. */
const Tensor *parts_sum(Module *, const TeOp *sum, const Expr *term, int64_t steps, int64_t blocks);
/* in float32, rounded to out */
const Tensor *parts_total(Module *, const TeOp *sum, const Tensor *part, int64_t blocks, DType out);
/* What `out` is made of with another tensor in the place of the one of that name. */
const Tensor *parts_replace(Module *, const Tensor *out, const char *name,
                            const Tensor *(*instead)(Module *, const Tensor *, const void *), const void *arg);
/* The block of partial sums, where the total is a sum over several of them. */
bool parts_find(ImplGroup *, BlockRV *part);

/* ---- half.c ----------------------------------------------------------------------------------- */

void half_conv_plans(const ImplCall *, PlanList *);
void half_depthwise_plans(const ImplCall *, PlanList *);
void half_winograd_plans(const ImplCall *, PlanList *);
/* sums of products in float16, in blocks */
void half_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
void half_conv_schedule(ImplGroup *);
extern const AttrsDef HalfDensePlan_table;
void half_dense_plans(const ImplCall *, PlanList *);
void half_dense_alter(const ImplCall *, const void *plan, AlteredCall *);
void half_dense_schedule(ImplGroup *);
void half_winograd_compute(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
/* Puts the partial sums into the loop over blocks (the last of `depth` loops): terms, then the tile in registers, whose
 * loops are those of part's axes, by number and outermost first. */
void half_schedule_part(ImplGroup *, BlockRV part, LoopRV block, int depth, int ntile, const int *tile, int64_t sums);

/* ---- generic_plan.c ----------------------------------------------------------------------- */

extern const GenericPlan generic_plain; /* all as the loops' own rules say */
double generic_seconds(const ImplCall *, const GenericPlan *);
/* Every plan of the generic schedule for the call, the plain one first. */
void generic_plans(const ImplCall *, PlanList *);
/* Threads that the group's plan gives so much work. */
int generic_threads(const ImplGroup *, double operations, double bytes);

/* ---- generic.c ------------------------------------------------------------------------- */

/* Puts every block into its consumers that is better computed there. */
void generic_inline(ImplGroup *);
void generic_keep(ImplGroup *, BlockRV); /* not this one */
void generic_schedule(ImplGroup *);
/* Schedules one block that stands at the root, or below `depth` loops that are done already. */
void generic_block(ImplGroup *, BlockRV, int depth, bool parallel);

/* The blocks that stand at the root untouched, each by itself. */
void generic_rest(ImplGroup *);

/* Helpers over schedule.h. */
LoopRV generic_split_by(ImplGroup *, LoopRV, int64_t factor, LoopRV *inner);
/* Unrolls the loops of a block from number `from` on whose extents are known, and makes vectors of the last. */
void generic_write_out(ImplGroup *, BlockRV, int from);
int generic_root_blocks(ImplGroup *, BlockRV **out); /* blocks below the root, in order */
SchedArg generic_block_arg(BlockRV);

#endif
