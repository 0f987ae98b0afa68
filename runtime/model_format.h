/* model_format.h: a compiled model as bytes.  The compiler's driver writes it
 * (src/driver/write.c), the runtime reads it (model_read.c; tiny.c what static entries need); nothing else knows it.
 *
 * Numbers are little endian and unaligned: u8, u32, u64, i64, f64.
 *   str    u32 length, that many bytes, none of them zero
 *   text   u32 length, that many bytes, a zero
 *   list   u32 count, that many items
 *   dtype  u8 code, u8 bits, u16 lanes, as in lathe_rt.h
 *   blob   u64 offset into the weights, a multiple of 64, u64 bytes
 *
 *   model     = magic[8]  u32 version  u32 flags
 *               str target  u64 weights  u64 prepared  u64 u64 digest
 *               list device  list module  list image  list kernel  list const  list symbol  list node
 *               list text  list packed  list function  list entry  u32 prepare
 *   device    = u32 type (LatheRtDeviceType)  u32 id  u32 align  str target
 *               device 0 is the host: a CPU, where shapes and conditions are.  align: of its tensors
 *   module    = str kind  str name  list variant
 *               kind "library": one of LatheRtModelData.modules; others: blobs for their kind's loader
 *   variant   = str arch  str features  u32 library  blob
 *               the first that this machine has everything for is taken; arch "": of any
 *   image     = u32 device  str arch  blob        code for a device, the first whose arch is the device's
 *   kernel    = str name  u32 module  u32 device  str plan  str trace
 *               of a function of the module; its tensors are on the device.  plan and trace: how it was scheduled, as
 *               text ("": not told)
 *   const     = dtype  list i64 (shape)  u32 device  u8 ConstPlace  u64 offset, a multiple of the device's align
 *               into the weights, or into what `prepare` makes
 *   symbol    = str name                          a size that inputs share
 *   node      = str name  str source  str impl  f64 flops  f64 flops_done  f64 bytes  list term
 *   term      = u8 WorkKind  f64 coefficient  list (u32 tensor, u32 dimension, i8 power)
 *               more operations: the coefficient times dimensions of the tensors of a call (those that
 *               the kernel reads, then those that it writes), each to a power
 *   text      = the model's own strings, in ascending order of their bytes; elements of constant
 *               tensors of strings are numbers of these
 *   packed    = str name                          a function that programs call by name
 *   function  = str name  u32 registers  u32 params  u32 results
 *               list u8 (kinds of the scalars: SCALAR_INT or SCALAR_FLOAT)
 *               list instruction
 *   entry     = str name  u32 function  u32 flags (ENTRY_STATIC, states << ENTRY_STATES)
 *               list port (inputs)  list port (outputs)
 *               list u64 (bytes of planned storage on each device)  u64 storage_bound
 *               the function's parameters are the inputs, its results the outputs; so many of the last inputs and
 *               of the last outputs are states, which callers do not see: all zeros in the first run, then what the
 *               run before gave
 *   port      = str name  str type  u8 kind (PortKind)  u32 device  dtype  list i64 (shape)
 *               a dimension: 0 or more, or -1 - symbol, or DIM_UNKNOWN
 *
 * prepare: PREPARE_NONE, or a function without parameters and results that is run once, when the
 * model is loaded.  Its ALLOCs with a place lie in a block of `prepared` bytes, which is where prepared
 * constants are; until it has run, it alone may use constants, those of the weights.  digest: of the
 * weights and of what prepares them; a cache knows the block by it.
 *
 * A register holds a tensor, a list (a sequence; an optional is a list of none or one),
 * data (a constructor's tag and fields; a tuple as one value has tag 0), a closure (a
 * function and its first arguments) or an object (what a packed function made); parameters
 * are registers 0 … params - 1.  A scalar is an int64 or a double.
 *
 * An instruction is a u8 of ModelOp and its operands, u32 unless told:
 *   CONST   register, const
 *   SCALAR  scalar, expr
 *   ALLOC   register, device, dtype, list expr (shape), u64 place: offset in the planned
 *           storage of the device, a multiple of its align, or PLACE_DYNAMIC
 *   VIEW    register, source, dtype, list expr: the same bytes under another shape
 *   MOVE    register, source
 *   COPY    register, source, device, u64 place: the same elements in memory of its own, on that device
 *   FREE    register: it is not used any more
 *   KERNEL  kernel, node, list (u8 KernelArgKind, u32 register or scalar)
 *   JUMP    target: the number of an instruction further on
 *   BRANCH  register (one bool), target if it is false
 *   CALL    function, list register (arguments), list register (results)
 *   TAIL    function, list register: calls it in place of this function
 *   RETURN  list register
 *   HOST    HostOp, node, list i64 (attributes), list register (arguments), list register (results)
 *   CHECK   expr, str: stops with the sentence unless the value is not 0
 *   CLOSURE register, function (of one result), list register: its first arguments
 *   APPLY   register (closure), list register (its other arguments), list register (one result)
 *   APPLY_TAIL  register (closure), list register: calls it in place of this function
 *   DATA    register, tag, list register (fields)
 *   FIELD   register, source (data), number of the field
 *   MATCH   register (data), tag, target if its tag is another
 *   FAIL    str: stops with the sentence
 *   PACKED  packed, node, list (u8 PackedArgKind, u32 register or scalar, or a str), list register (none or one
 *           result): tensors that it writes have been allocated and are among the arguments
 *   DONE    const: its bytes in the weights are not read any more (of `prepare`)
 * The last instruction of a function is RETURN, TAIL, APPLY_TAIL or FAIL.
 *
 * An expr is a list of steps over a stack, one value left at the end: u8 of ExprOp and
 *   INT i64   FLOAT f64   SCALAR u32   DIM u32 register, u32 dimension
 *   ELEM / ELEM_FLOAT u32 register, u32 index: an element of an integer / a float tensor
 * the others have no operand and take their values from the stack.  Integers are
 * int64 and wrap; a division by zero is 0; a dimension that comes out negative stops the
 * run (operators make sizes that do not fit -1).
 *
 * The function of a static entry (flag) has CONST, ALLOC with literal shapes and places,
 * VIEW, MOVE, COPY, KERNEL without scalars and RETURN alone, and no other entry has it. */
#ifndef LATHE_RT_MODEL_FORMAT_H
#define LATHE_RT_MODEL_FORMAT_H

#include <stdint.h>

#define MODEL_MAGIC "LATHEMD" /* and the zero */
enum { MODEL_VERSION = 4, ENTRY_STATIC = 1, ENTRY_STATES = 8 };
enum { MODEL_ALIGN = 64 /* of blobs */, MODEL_MAX_STACK = 64, MODEL_MAX_DEVICES = 64 };
#define PREPARE_NONE UINT32_MAX
#define DIM_UNKNOWN INT64_MIN
#define PLACE_DYNAMIC UINT64_MAX

/* As LatheRtPortKind. */
typedef enum { PORT_TENSOR, PORT_SEQUENCE, PORT_OPTIONAL, PORT_OPTIONAL_SEQUENCE, PORT_OBJECT } PortKind;
typedef enum { CONST_STORED, CONST_PREPARED } ConstPlace;
typedef enum { WORK_FORMULA, WORK_DONE } WorkKind; /* by the operators' formulas; by the algorithm */
typedef enum { SCALAR_INT, SCALAR_FLOAT } ScalarKind;
typedef enum { KARG_REGISTER, KARG_SCALAR } KernelArgKind;
typedef enum { PARG_REGISTER, PARG_SCALAR, PARG_TEXT } PackedArgKind;

typedef enum {
  MO_CONST,
  MO_SCALAR,
  MO_ALLOC,
  MO_VIEW,
  MO_MOVE,
  MO_COPY,
  MO_FREE,
  MO_KERNEL,
  MO_JUMP,
  MO_BRANCH,
  MO_CALL,
  MO_TAIL,
  MO_RETURN,
  MO_HOST,
  MO_CHECK,
  MO_CLOSURE,
  MO_APPLY,
  MO_APPLY_TAIL,
  MO_DATA,
  MO_FIELD,
  MO_MATCH,
  MO_FAIL,
  MO_PACKED,
  MO_DONE,
  MO_COUNT
} ModelOp;

/* One row: constant, what it takes, what it gives.  I int, F float. */
/* clang-format off */
#define MODEL_EXPR_OPS(X)                                                              \
  X(XO_INT, "", 'I') X(XO_FLOAT, "", 'F') X(XO_SCALAR, "", '?')                        \
  X(XO_DIM, "", 'I') X(XO_ELEM, "", 'I') X(XO_ELEM_FLOAT, "", 'F')                     \
  X(XO_ADD, "II", 'I') X(XO_SUB, "II", 'I') X(XO_MUL, "II", 'I')                       \
  X(XO_DIV, "II", 'I') X(XO_MOD, "II", 'I')            /* truncate */                  \
  X(XO_FLOORDIV, "II", 'I') X(XO_FLOORMOD, "II", 'I')                                  \
  X(XO_MIN, "II", 'I') X(XO_MAX, "II", 'I') X(XO_ABS, "I", 'I')                        \
  X(XO_EQ, "II", 'I') X(XO_NE, "II", 'I') X(XO_LT, "II", 'I') X(XO_LE, "II", 'I')      \
  X(XO_AND, "II", 'I') X(XO_OR, "II", 'I') X(XO_NOT, "I", 'I')   /* of truth values */ \
  X(XO_SELECT, "III", 'I')                             /* condition, then, else */     \
  X(XO_WRAP8, "I", 'I') X(XO_WRAP16, "I", 'I') X(XO_WRAP32, "I", 'I')   /* signed */   \
  X(XO_WRAPU8, "I", 'I') X(XO_WRAPU16, "I", 'I') X(XO_WRAPU32, "I", 'I')               \
  X(XO_BITAND, "II", 'I') X(XO_BITOR, "II", 'I') X(XO_BITXOR, "II", 'I')               \
  X(XO_SHL, "II", 'I') X(XO_SHR, "II", 'I')            /* count modulo 64; SHR arithmetic */ \
  X(XO_FADD, "FF", 'F') X(XO_FSUB, "FF", 'F') X(XO_FMUL, "FF", 'F') X(XO_FDIV, "FF", 'F') \
  X(XO_FMOD, "FF", 'F') X(XO_FMIN, "FF", 'F') X(XO_FMAX, "FF", 'F') X(XO_POW, "FF", 'F') \
  X(XO_FEQ, "FF", 'I') X(XO_FNE, "FF", 'I') X(XO_FLT, "FF", 'I') X(XO_FLE, "FF", 'I')  \
  X(XO_FSELECT, "IFF", 'F')                                                            \
  X(XO_FLOOR, "F", 'F') X(XO_CEIL, "F", 'F') X(XO_TRUNC, "F", 'F')                     \
  X(XO_ROUND, "F", 'F') X(XO_NEARBYINT, "F", 'F') X(XO_FABS, "F", 'F')                 \
  X(XO_SQRT, "F", 'F') X(XO_EXP, "F", 'F') X(XO_LOG, "F", 'F')                         \
  X(XO_TO_FLOAT, "I", 'F') X(XO_TO_INT, "F", 'I')      /* truncates and saturates; NaN gives 0 */ \
  X(XO_ROUND32, "F", 'F')                              /* to the nearest float32 */
/* clang-format on */

typedef enum {
#define X(id, takes, gives) id,
  MODEL_EXPR_OPS(X)
#undef X
      XO_COUNT
} ExprOp;

/* What the executor does itself.  attr and arg as told; a list is copied on write.
 * One row: constant, attributes, arguments (-1: any number), results. */
#define MODEL_HOST_OPS(X)                                                                                             \
  X(HO_LIST, 0, -1, 1)  /* the arguments as a list */                                                                 \
  X(HO_INSERT, 0, 3, 1) /* list, item, position (scalar tensor) */                                                    \
  X(HO_APPEND, 0, 2, 1) /* list, item */                                                                              \
  X(HO_ERASE, 0, 2, 1)  /* list, position */                                                                          \
  X(HO_ERASE_LAST, 0, 1, 1)                                                                                           \
  X(HO_AT, 0, 2, 1)          /* list, position: the item */                                                           \
  X(HO_LENGTH, 0, 1, 1)      /* an int64 scalar */                                                                    \
  X(HO_CONCAT, 2, 1, 1)      /* axis, new_axis; list of tensors */                                                    \
  X(HO_SPLIT, 2, -1, 1)      /* axis, keepdims; tensor, optional sizes (scalar or vector): a list */                  \
  X(HO_HAS, 1, -1, 1)        /* is it an optional?; a list of none or one, or any value, or nothing: a bool scalar */ \
  X(HO_GET, 1, 1, 1)         /* is it an optional?; the item of a list of one, or the value itself */                 \
  X(HO_TEXT_CONCAT, 0, 2, 1) /* strings, strings: each with its partner behind it */                                  \
  X(HO_LETTERS, 0, 2, 1)     /* strings, int32 table (first, last, step, distance) of letters that become others */   \
  X(HO_TEXT_SPLIT, 1, 2, 2)  /* splits at most (-1: any number); strings, separator: parts, their counts */           \
  X(HO_MATCH, 0, 2, 1)       /* strings, int32 program (PatternOp): bools */                                          \
  X(HO_PRINT, 0, 1, 1)       /* int64, uint64, float32 or float64: strings */                                         \
  X(HO_PARSE, 1, 1, 1)       /* 0 int64, 1 float64, 2 float32; strings: numbers */

typedef enum {
#define X(id, attrs, args, rets) id,
  MODEL_HOST_OPS(X)
#undef X
      HO_COUNT
} HostOp;

/* A pattern: steps of three numbers, or more, that begin at the first.
 *   LETTER  count, distance of the next step, count pairs (least, greatest): takes one letter among those
 *   SPLIT   step, step: goes on at both
 *   ASSERT  PatternFact, 0: goes on at the next step if it holds here
 *   END     0, 0: the text matches if it is over */
typedef enum { PO_LETTER, PO_SPLIT, PO_ASSERT, PO_END } PatternOp;
typedef enum { PA_BEGIN, PA_END, PA_EDGE, PA_NO_EDGE } PatternFact; /* of the text; of a word */

#endif
