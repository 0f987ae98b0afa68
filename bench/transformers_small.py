"""Architectures of transformers at small sizes, made from their configurations, with inputs."""

import torch
import transformers

TEXT = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}


class Last(torch.nn.Module):
    """A model whose result is the tensors that matter, without caches."""

    def __init__(
        self,
        model,
        keys=(
            "last_hidden_state",
            "logits",
            "prediction_logits",
            "image_embeds",
            "text_embeds",
            "pred_boxes",
            "predicted_depth",
            "reconstruction",
            "pooler_output",
            "audio_embeds",
        ),
    ):
        super().__init__()
        self.model, self.keys = model, keys

    def forward(self, **inputs):
        """The outputs by name, where there are some."""
        out = self.model(**inputs)
        found = tuple(out[k] for k in self.keys if k in out and isinstance(out[k], torch.Tensor))
        return found or tuple(v for v in out.values() if isinstance(v, torch.Tensor))


def ids(length=10, vocabulary=99):
    """Numbers of words."""
    return torch.randint(3, vocabulary, (2, length))


def image(channels=3, side=32, batch=1):
    """An image."""
    return torch.randn(batch, channels, side, side)


def _case(cls, config, **inputs):
    def make():
        torch.manual_seed(0)
        settings = config()
        settings._attn_implementation = "sdpa"
        settings._experts_implementation = "batched_mm"  # (of what there is, what torch.export follows)
        try:
            model = getattr(transformers, cls)(settings)
        except ValueError:
            settings._attn_implementation = "eager"
            model = getattr(transformers, cls)(settings)
        if hasattr(model.config, "use_cache"):
            model.config.use_cache = False
        given = {k: (v() if callable(v) else v) for k, v in inputs.items()}
        return Last(model.eval()), (), given

    return make


CASES = {}


def text(name, cls=None, inputs=None, **more):
    """A model of text; a setting that is None is left out."""

    def config():
        settings = {k: v for k, v in {**TEXT, **more}.items() if v is not None}
        return getattr(transformers, name + "Config")(**settings)

    CASES[cls or name + "Model"] = _case(cls or name + "Model", config, **(inputs or {"input_ids": ids}))


# encoders of text
MASKED = {"input_ids": ids, "attention_mask": lambda: torch.ones(2, 10, dtype=torch.int64)}
for _name in (
    "Bert",
    "Roberta",
    "Electra",
    "Camembert",
    "XLMRoberta",
    "RobertaPreLayerNorm",
    "MPNet",
    "Ernie",
    "LayoutLM",
    "MegatronBert",
    "RoCBert",
    "Data2VecText",
    "BertGeneration",
    "Nystromformer",
    "XLMRobertaXL",
    "Splinter",
    "ConvBert",
    "MobileBert",
    "IBert",
    "RemBert",
    "Yoso",
    "Mra",
):
    text(_name, inputs=MASKED)
text("SqueezeBert", inputs=MASKED, embedding_size=32)
text("Albert", inputs=MASKED, embedding_size=16, num_hidden_groups=1)
text("DistilBert", inputs=MASKED, dim=32, n_layers=2, n_heads=4, hidden_dim=37)
text("Lilt", inputs=MASKED, hidden_size=24)
text("Esm", inputs=MASKED, pad_token_id=1, mask_token_id=4)
text("Deberta", inputs=MASKED)
text("DebertaV2", inputs=MASKED)
text("FNet")
text("ModernBert", inputs=MASKED, pad_token_id=0, eos_token_id=1, bos_token_id=2, cls_token_id=1, sep_token_id=2)
text("XLNet", d_model=32, n_layer=2, n_head=4, d_inner=37)
text("XLM", emb_dim=32, n_layers=2, n_heads=4)
text("Flaubert", emb_dim=32, n_layers=2, n_heads=4)
text("Funnel", num_hidden_layers=None, d_model=32, n_head=4, d_head=8, d_inner=37, block_sizes=[1, 1])
text("BigBird", inputs=MASKED, attention_type="original_full")
text("Longformer", inputs=MASKED, attention_window=4)
text(
    "Canine",
    inputs=MASKED,
    num_hash_buckets=101,
    local_attention_window=4,
    downsampling_rate=2,
    upsampling_kernel_size=2,
)
text(
    "Reformer",
    attn_layers=["local", "local"],
    axial_pos_shape=[2, 5],
    axial_pos_embds_dim=[16, 16],
    local_attn_chunk_length=5,
    attention_head_size=8,
    feed_forward_size=37,
    hidden_dropout_prob=0.0,
)

# decoders
GQA = {
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
for _name in (
    "Llama",
    "Mistral",
    "Gemma",
    "Gemma2",
    "Qwen2",
    "Qwen3",
    "Phi",
    "Phi3",
    "StableLm",
    "Starcoder2",
    "Cohere",
    "Cohere2",
    "Olmo",
    "Olmo2",
    "Granite",
    "Glm",
    "Glm4",
    "Nemotron",
    "Helium",
    "SmolLM3",
    "Arcee",
    "Ministral",
    "Seed_Oss",
    "ApertusC",
    "Persimmon",
    "Exaone4",
):
    text(_name, _name + "ForCausalLM", **GQA)
text("Gemma3Text", "Gemma3ForCausalLM", **GQA)
text("GPT2", "GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4)
text("GPTNeo", "GPTNeoForCausalLM", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]])
text("GPTNeoX", "GPTNeoXForCausalLM")
text("GPTNeoXJapanese", "GPTNeoXJapaneseForCausalLM")
text("GPTJ", "GPTJForCausalLM", n_embd=32, n_layer=2, n_head=4, rotary_dim=4)
text("CodeGen", "CodeGenForCausalLM", n_embd=32, n_layer=2, n_head=4, rotary_dim=4)
text("GPTBigCode", "GPTBigCodeForCausalLM", n_embd=32, n_layer=2, n_head=4)
text("OPT", "OPTForCausalLM", ffn_dim=37, word_embed_proj_dim=32)
text("Bloom", "BloomForCausalLM", n_layer=2, n_head=4)
text("Falcon", "FalconForCausalLM")
text("Mpt", "MptForCausalLM", d_model=32, n_heads=4, n_layers=2, max_seq_len=64)
text("XGLM", "XGLMForCausalLM", d_model=32, num_layers=2, attention_heads=4, ffn_dim=37)
text("BioGpt", "BioGptForCausalLM")
text("OpenAIGPT", "OpenAIGPTLMHeadModel", n_embd=32, n_layer=2, n_head=4)
text("CTRL", "CTRLLMHeadModel", n_embd=32, n_layer=2, n_head=4, dff=37)
text("Biogpt", "BioGptModel") if hasattr(transformers, "BiogptConfig") else None
text("DiffLlama", "DiffLlamaForCausalLM", **GQA)

# mixtures of experts
for _name in (
    "Mixtral",
    "Qwen2Moe",
    "Qwen3Moe",
    "Olmoe",
    "Phimoe",
    "GraniteMoe",
    "GptOss",
    "Dbrx",
    "Ernie4_5_Moe",
    "MiniMax",
):
    text(
        _name,
        _name + "ForCausalLM",
        num_local_experts=4,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        moe_num_experts=4,
        shared_expert_intermediate_size=16,
        **GQA,
    )

# state space and recurrent
text("Mamba", "MambaForCausalLM", state_size=8, expand=2)
text("Mamba2", "Mamba2ForCausalLM", state_size=8, num_heads=8, head_dim=8, n_groups=1, chunk_size=4)
text("FalconMamba", "FalconMambaForCausalLM", state_size=8)
text("Rwkv", "RwkvForCausalLM", attention_hidden_size=32, context_length=32)
text("RecurrentGemma", "RecurrentGemmaForCausalLM", lru_width=32, num_key_value_heads=1, attention_window_size=16)

# encoder and decoder
SEQ = {"input_ids": ids, "decoder_input_ids": ids}
SEQ_SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "max_position_embeddings": 64,
}
for _name in (
    "Bart",
    "MBart",
    "Marian",
    "Pegasus",
    "Blenderbot",
    "BlenderbotSmall",
    "PLBart",
    "M2M100",
    "Mvp",
    "BigBirdPegasus",
    "PegasusX",
):
    more = {"attention_type": "original_full"} if _name == "BigBirdPegasus" else {}
    more.update({"pad_token_id": 0, "decoder_start_token_id": 1} if _name == "Marian" else {})
    text(_name, inputs=SEQ, **SEQ_SIZES, **more)
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4, "num_decoder_layers": 2}
for _name in ("T5", "MT5", "UMT5", "LongT5", "SwitchTransformers"):
    text(_name, inputs=SEQ, **T5)
text(
    "ProphetNet",
    inputs=SEQ,
    num_hidden_layers=None,
    num_encoder_layers=2,
    num_decoder_layers=2,
    num_encoder_attention_heads=4,
    num_decoder_attention_heads=4,
    encoder_ffn_dim=37,
    decoder_ffn_dim=37,
)
text("FSMT", inputs=SEQ, src_vocab_size=99, tgt_vocab_size=99, langs=["en", "de"], **SEQ_SIZES)


# vision
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "image_size": 32,
    "patch_size": 8,
}


def vision(name, cls=None, inputs=None, **more):
    """A model of images; one whose sizes are lists, stage by stage, has no others."""
    stages = any(k in more for k in ("hidden_sizes", "embed_dim")) or name.startswith(("MobileNet", "Efficient"))

    def config():
        common = {"image_size": 32} if stages else VISION
        return getattr(transformers, name + "Config")(**{**common, **more})

    CASES[cls or name + "Model"] = _case(cls or name + "Model", config, **(inputs or {"pixel_values": image}))


for _name in (
    "ViT",
    "DeiT",
    "Dinov2",
    "Dinov2WithRegisters",
    "Beit",
    "ViTMSN",
    "Data2VecVision",
    "IJepa",
    "VitDet",
    "DINOv3ViT",
    "Pixtral",
):
    vision(_name, _name + ("VisionModel" if _name == "Pixtral" else "Model"))
SWIN = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4}
vision("Swin", **SWIN)
vision("Swinv2", **SWIN)
vision("DonutSwin", **SWIN)
vision("MaskFormerSwin", **SWIN)
vision("ConvNext", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], patch_size=4)
vision("ConvNextV2", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], patch_size=4)
vision("ResNet", embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])
vision("RegNet", embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], groups_width=8)
vision("MobileNetV1")
vision("MobileNetV2")
vision("EfficientNet", image_size=32)
vision(
    "MobileViT",
    hidden_sizes=[16, 24, 32],
    neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64],
    image_size=64,
    patch_size=2,
    inputs={"pixel_values": lambda: image(side=64)},
)
vision("MobileViTV2", image_size=64, patch_size=2, inputs={"pixel_values": lambda: image(side=64)})
vision(
    "Segformer",
    hidden_sizes=[8, 16, 24, 32],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 2, 2, 4],
    patch_sizes=[7, 3, 3, 3],
    inputs={"pixel_values": lambda: image(side=64)},
)
vision(
    "Pvt",
    hidden_sizes=[8, 16, 24, 32],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 2, 2, 4],
    patch_sizes=[4, 2, 2, 2],
    image_size=64,
    inputs={"pixel_values": lambda: image(side=64)},
)
vision(
    "PvtV2",
    hidden_sizes=[8, 16, 24, 32],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 2, 2, 4],
    patch_sizes=[7, 3, 3, 3],
    image_size=64,
    inputs={"pixel_values": lambda: image(side=64)},
)
vision("PoolFormer", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], patch_sizes=[7, 3, 3, 3])
vision("Cvt", embed_dim=[8, 16, 32], num_heads=[1, 2, 4], depth=[1, 1, 1])
vision(
    "Levit",
    hidden_sizes=[16, 32, 48],
    num_attention_heads=[2, 4, 4],
    depths=[1, 1, 1],
    key_dim=[8, 8, 8],
    image_size=64,
    patch_size=16,
    inputs={"pixel_values": lambda: image(side=64)},
)
vision("Bit", embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_groups=1)
vision("FocalNet", embed_dim=16, depths=[1, 1], focal_levels=[1, 1], focal_windows=[3, 3], patch_size=4)
vision(
    "Hiera",
    embed_dim=8,
    depths=[1, 1, 1],
    num_heads=[1, 2, 4],
    image_size=[64, 64],
    patch_size=[7, 7],
    patch_stride=[4, 4],
    patch_padding=[3, 3],
    mlp_ratio=2.0,
    masked_unit_size=[4, 4],
    query_stride=[2, 2],
    num_query_pool=1,
    embed_dim_multiplier=2.0,
    inputs={"pixel_values": lambda: image(side=64)},
)
vision("VisionTransformer", "ViTForImageClassification") if hasattr(transformers, "VisionTransformerConfig") else None
vision("Yolos", "YolosForObjectDetection", image_size=[32, 32], num_detection_tokens=5)
(
    vision("Glpn", "GLPNModel", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])
    if hasattr(transformers, "GlpnConfig")
    else None
)
vision("VideoMAE", num_frames=4, tubelet_size=2, inputs={"pixel_values": lambda: torch.randn(1, 4, 3, 32, 32)})
vision("Timesformer", num_frames=4, inputs={"pixel_values": lambda: torch.randn(1, 4, 3, 32, 32)})
vision("Vivit", num_frames=4, tubelet_size=[2, 8, 8], inputs={"pixel_values": lambda: torch.randn(1, 4, 3, 32, 32)})


# speech
SPEECH = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "conv_dim": [16, 16],
    "conv_stride": [4, 4],
    "conv_kernel": [8, 8],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}


def speech(name, inputs=None, cls=None, **more):
    """A model of sound."""

    def config():
        return getattr(transformers, name + "Config")(**{**SPEECH, **more})

    CASES[cls or name + "Model"] = _case(
        cls or name + "Model", config, **(inputs or {"input_values": lambda: torch.randn(1, 800)})
    )


for _name in ("Wav2Vec2", "Hubert", "UniSpeech", "UniSpeechSat", "Data2VecAudio", "SEW"):
    speech(_name, squeeze_factor=2) if _name == "SEW" else speech(_name)
speech("WavLM")
speech("Wav2Vec2Conformer")
speech(
    "Whisper",
    {"input_features": lambda: torch.randn(2, 16, 60), "decoder_input_ids": ids},
    vocab_size=99,
    num_mel_bins=16,
    max_source_positions=30,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    **{**SEQ_SIZES, "max_position_embeddings": 64},
)
speech(
    "Speech2Text",
    {"input_features": lambda: torch.randn(2, 40, 16), "decoder_input_ids": ids},
    vocab_size=99,
    input_feat_per_channel=16,
    conv_channels=16,
    **{k: v for k, v in SEQ_SIZES.items() if k != "max_position_embeddings"},
)
speech(
    "AST",
    {"input_values": lambda: torch.randn(1, 64, 16)},
    max_length=64,
    num_mel_bins=16,
    patch_size=8,
    frequency_stride=8,
    time_stride=8,
)


# several kinds of input
def several(name, parts, inputs, cls=None, **more):
    """A model made of models."""

    def config():
        kind = getattr(transformers, name + "Config")
        return kind(**{k: v for k, v in parts.items()}, **more)

    CASES[cls or name + "Model"] = _case(cls or name + "Model", config, **inputs)


PAIR = {
    "input_ids": ids,
    "pixel_values": lambda: image(batch=2),
    "attention_mask": lambda: torch.ones(2, 10, dtype=torch.int64),
}
TOWERS = {
    "text_config": {**TEXT, "max_position_embeddings": 32, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
    "vision_config": VISION,
}
for _name in ("CLIP", "Siglip", "AltCLIP", "ChineseCLIP", "CLIPSeg", "MetaClip2", "Siglip2"):
    if _name not in ("Siglip2",):
        several(_name, TOWERS, PAIR)
several("Blip", TOWERS, PAIR)
several(
    "GroupViT",
    {
        "text_config": TOWERS["text_config"],
        "vision_config": {**VISION, "depths": [1, 1, 1], "num_group_tokens": [4, 2, 0], "num_output_groups": [4, 2, 0]},
    },
    PAIR,
)
text("VisualBert", inputs={**MASKED, "visual_embeds": lambda: torch.randn(2, 3, 20)}, visual_embedding_dim=20)
CASES["ViltModel"] = _case(
    "ViltModel",
    lambda: transformers.ViltConfig(**{**TEXT, **VISION}),
    input_ids=ids,
    pixel_values=lambda: image(batch=2),
    attention_mask=lambda: torch.ones(2, 10, dtype=torch.int64),
    pixel_mask=lambda: torch.ones(2, 32, 32, dtype=torch.int64),
)
CASES = {k: v for k, v in CASES.items() if hasattr(transformers, k)}
