"""Passes over graphs.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional

from lathe._ir.transform import Pass

__all__ = [
    "InferType", "SimplifyInference", "FlattenAtrousConv", "PatchRows", "FakeQuantizationToInteger", "LegalizeQnn",
    "ByTable", "CanonicalizeQnn", "Legalize", "FoldConstant", "LiftWeights", "SimplifyExpr", "DynamicToStatic",
    "DeadCodeElimination", "EliminateCommonSubexpr", "ForwardFoldScaleAxis", "BackwardFoldScaleAxis",
    "FoldScaleAxis", "FuseAttention", "CanonicalizeOps", "CanonicalizeCast", "AlterOpLayout", "ConvertLayout",
    "FuseOps", "DefuseOps", "WrapCalls", "CombineParallelConv2D", "CombineParallelDense",
    "CombineParallelBatchMatmul", "FastMath", "WidenPrecision", "ReducePrecision", "ToMixedPrecision", "Inline",
    "RemoveUnusedFunctions", "PlanDevices", "ToANormalForm", "ToGraphNormalForm", "MergeComposite",
    "AnnotateTarget", "MergeCompilerRegions", "PartitionGraph",
]

def InferType() -> Pass:
    """give every node its type"""

def SimplifyInference() -> Pass:
    """normalisations become multiply and add; dropout goes"""

def FlattenAtrousConv() -> Pass:
    """a convolution over blocks that were moved to the batch becomes one with dilation"""

def PatchRows(layers: Optional[int] = None, patches: Optional[int] = None) -> Pass:
    """the first layers are computed a band of rows at a time, where relay.PatchRows.patches says so"""

def FakeQuantizationToInteger(hard_fail: Optional[bool] = None, use_qat: Optional[bool] = None) -> Pass:
    """what stands between qnn.dequantize and qnn.quantize is computed in integers"""

def LegalizeQnn() -> Pass:
    """quantized tensors take the sign that the target's dot products want"""

def ByTable() -> Pass:
    """functions of one byte that are worth it are looked up in a table of their 256 results"""

def CanonicalizeQnn() -> Pass:
    """quantized operators become integer core operators"""

def Legalize() -> Pass:
    """operators without a kernel of their own become others"""

def FoldConstant() -> Pass:
    """compute what depends on constants alone"""

def LiftWeights() -> Pass:
    """weights that grow are brought into form when the model is loaded, where that is asked for"""

def SimplifyExpr() -> Pass:
    """drop and merge reshapes, transposes, casts, neutral arithmetic"""

def DynamicToStatic() -> Pass:
    """operands that say sizes and are known become attributes"""

def DeadCodeElimination(inline_once: Optional[bool] = None) -> Pass:
    """drop let bindings that nobody reads"""

def EliminateCommonSubexpr() -> Pass:
    """equal computations are made once"""

def ForwardFoldScaleAxis() -> Pass:
    """a factor before a convolution or product goes into its weight"""

def BackwardFoldScaleAxis() -> Pass:
    """a factor behind a convolution or product goes into its weight"""

def FoldScaleAxis() -> Pass:
    """both directions, constants folded between them"""

def FuseAttention() -> Pass:
    """products around a softmax become nn.attention, which keeps no scores"""

def CanonicalizeOps() -> Pass:
    """bias_add becomes expand_dims and add"""

def CanonicalizeCast() -> Pass:
    """widening casts move to their users"""

def AlterOpLayout() -> Pass:
    """operators take the layouts that their implementations want"""

def ConvertLayout(desired_layouts: Any = None) -> Pass:
    """operators take the layouts asked for"""

def FuseOps(fuse_opt_level: Optional[int] = None) -> Pass:
    """operators that can share a kernel become one function"""

def DefuseOps() -> Pass:
    """the opposite of FuseOps"""

def WrapCalls() -> Pass:
    """each call that stands alone becomes a group of one"""

def CombineParallelConv2D(min_num_branches: Optional[int] = None) -> Pass:
    """convolutions of one input become one"""

def CombineParallelDense(min_num_branches: Optional[int] = None) -> Pass:
    """dense layers of one input become one"""

def CombineParallelBatchMatmul(min_num_branches: Optional[int] = None) -> Pass:
    """batched products of one input become one"""

def FastMath() -> Pass:
    """exp, tanh and erf by short approximations"""

def WidenPrecision() -> Pass:
    """what sums floats of 16 bits takes operands of float32, so that its kernels are those of float32"""

def ReducePrecision() -> Pass:
    """what lathe.fast_math asks for: products of bfloat16, or float16 arithmetic"""

def ToMixedPrecision(mixed_precision_type: Any = None, missing_op_mode: Optional[int] = None) -> Pass:
    """compute in float16 or bfloat16 where it is safe"""

def Inline() -> Pass:
    """calls of functions marked Inline become their bodies"""

def RemoveUnusedFunctions(entry_functions: Any = None) -> Pass:
    """drop functions that no entry reaches"""

def PlanDevices(targets: Any = None) -> Pass:
    """give every node a device, and copy values between them"""

def ToANormalForm() -> Pass:
    """every intermediate value gets a let"""

def ToGraphNormalForm() -> Pass:
    """lets of pure values become sharing"""

def MergeComposite() -> Pass:
    """what the context's patterns match becomes functions marked Composite"""

def AnnotateTarget(targets: Any = None, include_non_call_ops: Optional[bool] = None) -> Pass:
    """mark what external compilers take"""

def MergeCompilerRegions() -> Pass:
    """regions of one external compiler that read each other become one"""

def PartitionGraph(mod_name: Any = None, bind_constants: Optional[bool] = None) -> Pass:
    """regions of external compilers become functions of the module"""
