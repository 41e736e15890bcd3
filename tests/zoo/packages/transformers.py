# SPDX-License-Identifier: Apache-2.0
"""Models of transformers from small configurations: each kind of model keeps its structure, with few and narrow layers."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch

from jetdvfs.tests.zoo.table import Entry, Made

#: What is made smaller, wherever a configuration has a number of that name: names by number.
_NUMBERS = {
    1: "num_random_blocks n_groups num_global_layers num_parallel_samples topk_group first_k_dense_replace",
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers num_encoder_layers "
    "layers num_key_value_heads num_experts_per_tok num_codevector_groups n_group",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "num_encoder_attention_heads num_decoder_attention_heads n_attention_heads linear_num_value_heads "
    "rotary_dim num_experts num_local_experts n_routed_experts block_size time_step_rank num_labels "
    "num_conv_pos_embedding_groups num_frames",
    7: "conv_depthwise_kernel_size",
    8: "head_dim d_kv d_head global_head_dim state_size mamba_d_state qk_nope_head_dim qk_rope_head_dim v_head_dim "
    "attention_window encoder_attention_window local_attention_window_size hidden_size_per_layer_input",
    10: "num_queries",
    16: "patch_size num_mel_bins kv_lora_rank q_lora_rank num_conv_pos_embeddings sliding_window bottleneck_size "
    "intra_bottleneck_size",
    32: "hidden_size d_model n_embd embed_dim emb_dim dim hidden_dim projection_dim embedding_size n_dim attention_hidden_size "
    "d_embed text_embed_dim input_dim output_dim lru_width d_embedding",
    40: "max_source_positions max_target_positions",
    64: "intermediate_size ffn_dim n_inner d_ff encoder_ffn_dim decoder_ffn_dim ffn_hidden_size d_inner dim_feedforward "
    "moe_intermediate_size shared_expert_intermediate_size dff feed_forward_size encoder_intermediate_size "
    "max_position_embeddings n_positions image_size",
    128: "vocab_size",
}
_SMALL = {name: number for number, names in _NUMBERS.items() for name in names.split()}
#: What some kinds need besides, so that the numbers fit each other.
_MORE: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 16, "num_hidden_groups": 1},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "deberta-v2": {"pooler_hidden_size": 32},
    "deberta": {"pooler_hidden_size": 32},
    "electra": {"embedding_size": 32},
    "funnel": {"block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "window_size": 8},
    "led": {"attention_window": [8, 8]},
    "longformer": {"attention_window": [8, 8]},
    "mobilebert": {"embedding_size": 32, "true_hidden_size": 16, "num_feedforward_networks": 2},
    "mra": {"block_per_row": 1},
    "mamba2": {"num_heads": 8, "head_dim": 8, "hidden_size": 32, "expand": 2, "chunk_size": 8},
    "deepseek_v3": {"head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 4},
    "esm": {"vocab_size": 128, "pad_token_id": 0, "mask_token_id": 1},
    "layoutlm": {"max_2d_position_embeddings": 64},
    "xlm": {"emb_dim": 32},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
    "squeezebert": {"embedding_size": 32},
    "swin": {"embed_dim": 24, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
    "swinv2": {"embed_dim": 24, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
    "maskformer-swin": {"embed_dim": 24, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
    "beit": {"use_relative_position_bias": True},
    "recurrent_gemma": {"attention_window_size": 16, "num_hidden_layers": 3},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "sew": {"squeeze_factor": 2},
    "hiera": {
        "embed_dim": 24,
        "depths": [1, 1, 1, 1],
        "num_heads": [1, 2, 4, 8],
        "image_size": [224, 224],
        "patch_size": [7, 7],
    },
}
_KEEP: dict[str, tuple[str, ...]] = {
    # kinds whose numbers are those of a stage, not of a plain stack of layers
    "bit": ("embedding_size",), "resnet": ("embedding_size",), "regnet": ("embedding_size",), "hgnet_v2": ("embedding_size",),
    "convnext": ("patch_size",), "convnextv2": ("patch_size",), "mobilevit": ("patch_size",), "mobilevitv2": ("patch_size",),
    "poolformer": ("patch_size",), "focalnet": ("patch_size", "embed_dim"), "efficientnet": ("hidden_dim",),
    "swiftformer": ("patch_size",), "levit": ("patch_size", "image_size"), "cvt": ("embed_dim",),
    "esm": ("d_model",),
    **dict.fromkeys(("hubert", "wav2vec2", "wavlm", "data2vec-audio", "unispeech", "unispeech-sat", "sew", "sew-d"),
                    ("num_codevector_groups",)),
    "hiera": ("num_heads",), "swin": ("num_heads", "hidden_size"), "swinv2": ("num_heads",), "maskformer-swin": ("num_heads",),
}  # fmt: skip


class Called(torch.nn.Module):
    """A model that takes its inputs by name and gives a record, as a module that takes and gives tensors."""

    def __init__(self, model: Any, names: tuple[str, ...], options: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.model(**dict(zip(self.names, tensors, strict=True)), **self.options)
        return tuple(_tensors(out.to_tuple() if hasattr(out, "to_tuple") else out))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def small_config(kind: str) -> Any:
    """The configuration of a kind of model, made small."""
    package = importlib.import_module("transformers")
    config = package.AutoConfig.for_model(kind)
    _shrink(config, _KEEP.get(kind, ()))
    for name, value in _MORE.get(kind, {}).items():
        setattr(config, name, value)
    return config


def _shrink(config: Any, keep: tuple[str, ...]) -> None:
    if isinstance(getattr(config, "pad_token_id", None), int):
        config.pad_token_id = 0
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            _shrink(value, keep)
        elif name in _SMALL and isinstance(value, int) and not isinstance(value, bool) and name not in keep:
            setattr(config, name, min(value, _SMALL[name]))
        elif name in ("layer_types", "mlp_layer_types") and isinstance(value, list):
            setattr(config, name, value[: getattr(config, "num_hidden_layers", 2)])


def transformers(entry: Entry) -> Made:
    package = importlib.import_module("transformers")
    package.logging.set_verbosity_error()
    config = small_config(entry.name)
    model = package.AutoModel.from_config(config)
    inputs = _inputs(entry, config)
    takes = inspect.signature(model.forward).parameters
    options = {"use_cache": False} if "use_cache" in takes else {}
    given = {name: tensor for name, tensor in inputs.items() if name in takes or "kwargs" in takes}
    return Made(Called(model, tuple(given), options), tuple(given.values()))


def _inputs(entry: Entry, config: Any) -> dict[str, torch.Tensor]:
    words = torch.randint(3, 100, (1, 8))
    side = getattr(config, "image_size", 64)
    side = side[0] if isinstance(side, (list, tuple)) else side
    picture = {"pixel_values": torch.rand(1, getattr(config, "num_channels", 3), side, side)}
    if entry.group in ("text", "decoder"):
        return {"input_ids": words}
    if entry.group == "seq2seq":
        return {"input_ids": words, "decoder_input_ids": words[:, :5]}
    if entry.group in ("image", "detection"):
        return picture
    if entry.group == "video":
        return {"pixel_values": torch.rand(1, config.num_frames, 3, side, side)}
    if entry.group == "audio":
        return {"input_values": torch.rand(1, 4000)}
    if entry.group == "pair":
        vision = config.vision_config.image_size
        return {"input_ids": words, "pixel_values": torch.rand(1, 3, vision, vision)}
    if entry.group == "series":
        return {"past_values": torch.rand(1, config.context_length, config.num_input_channels)}
    if entry.name == "audio-spectrogram-transformer":
        return {"input_values": torch.rand(1, config.max_length, config.num_mel_bins)}
    if entry.name == "whisper":
        return {
            "input_features": torch.rand(1, config.num_mel_bins, 2 * config.max_source_positions),
            "decoder_input_ids": words,
        }
    if entry.name == "speech_to_text":
        return {"input_features": torch.rand(1, 40, config.input_feat_per_channel), "decoder_input_ids": words}
    if entry.name == "wav2vec2-bert":
        return {"input_features": torch.rand(1, 40, config.feature_projection_input_dim)}
    return {"input_features": torch.rand(1, 64, config.num_mel_bins)}
