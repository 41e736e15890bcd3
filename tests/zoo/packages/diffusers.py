# SPDX-License-Identifier: Apache-2.0
"""Networks of diffusers from small configurations."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from jetdvfs.tests.zoo.packages.transformers import Called
from jetdvfs.tests.zoo.table import Entry, Made

_R = torch.rand
_LATENT, _TEXT, _STEP = _R(1, 4, 16, 16), _R(1, 6, 32), torch.tensor([3.0])
_VAE: dict[str, Any] = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}
_ENCODER: dict[str, Any] = {
    "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2, "latent_channels": 4,
}  # fmt: skip
_UNET: dict[str, Any] = {
    "block_out_channels": (32, 64), "layers_per_block": 1, "cross_attention_dim": 32, "attention_head_dim": 8,
    "norm_num_groups": 8,
}  # fmt: skip
_HEADS: dict[str, Any] = {"num_attention_heads": 4, "attention_head_dim": 8, "num_layers": 2}

#: The configuration of each, and what it is called with.
_NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "AutoencoderKL": (_VAE | _ENCODER, {"sample": _R(1, 3, 32, 32)}),
    "AutoencoderTiny": (
        {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16), "num_encoder_blocks": (1, 1),
         "num_decoder_blocks": (1, 1)},
        {"sample": _R(1, 3, 32, 32)},
    ),
    "AsymmetricAutoencoderKL": (
        {"down_block_types": ("DownEncoderBlock2D",) * 2, "down_block_out_channels": (32, 64), "layers_per_down_block": 1,
         "up_block_types": ("UpDecoderBlock2D",) * 2, "up_block_out_channels": (32, 64), "layers_per_up_block": 1,
         "norm_num_groups": 8},
        {"sample": _R(1, 3, 32, 32)},
    ),
    "VQModel": (_VAE | _ENCODER | {"num_vq_embeddings": 32, "vq_embed_dim": 4}, {"sample": _R(1, 3, 32, 32)}),
    "UNet1DModel": (
        {"in_channels": 14, "out_channels": 14, "block_out_channels": (32, 64), "down_block_types": ("DownResnetBlock1D",) * 2,
         "up_block_types": ("UpResnetBlock1D",), "mid_block_type": "MidResTemporalBlock1D", "out_block_type": "OutConv1DBlock",
         "time_embedding_type": "positional", "use_timestep_embedding": True, "flip_sin_to_cos": False, "freq_shift": 1.0,
         "act_fn": "mish", "layers_per_block": 1, "norm_num_groups": 8},
        {"sample": _R(1, 14, 16), "timestep": torch.tensor([3])},
    ),
    "UNet2DModel": (
        {"block_out_channels": (32, 64), "layers_per_block": 1, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
         "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "norm_num_groups": 8, "attention_head_dim": 8},
        {"sample": _R(1, 3, 32, 32), "timestep": _STEP},
    ),
    "UNet2DConditionModel": (
        _UNET | {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
                 "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")},
        {"sample": _LATENT, "timestep": _STEP, "encoder_hidden_states": _TEXT},
    ),
    "UNet3DConditionModel": (
        _UNET | {"down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
                 "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D")},
        {"sample": _R(1, 4, 4, 16, 16), "timestep": _STEP, "encoder_hidden_states": _TEXT},
    ),
    "ControlNetModel": (
        _UNET | {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "conditioning_embedding_out_channels": (16, 32)},
        {"sample": _LATENT, "timestep": _STEP, "encoder_hidden_states": _TEXT, "controlnet_cond": _R(1, 3, 32, 32)},
    ),
    "DiTTransformer2DModel": (
        _HEADS | {"in_channels": 4, "out_channels": 8, "sample_size": 16, "num_embeds_ada_norm": 10},
        {"hidden_states": _LATENT, "timestep": torch.tensor([3]), "class_labels": torch.tensor([1])},
    ),
    "PixArtTransformer2DModel": (
        _HEADS | {"sample_size": 16, "caption_channels": 32, "cross_attention_dim": 32, "use_additional_conditions": False},
        {"hidden_states": _LATENT, "encoder_hidden_states": _TEXT, "timestep": torch.tensor([3])},
    ),
    "SD3Transformer2DModel": (
        _HEADS | {"sample_size": 16, "in_channels": 4, "out_channels": 4, "joint_attention_dim": 32,
                  "caption_projection_dim": 32, "pooled_projection_dim": 32, "pos_embed_max_size": 16},
        {"hidden_states": _LATENT, "encoder_hidden_states": _TEXT, "pooled_projections": _R(1, 32), "timestep": _STEP},
    ),
    "FluxTransformer2DModel": (
        {"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2, "in_channels": 4,
         "joint_attention_dim": 32, "pooled_projection_dim": 32, "axes_dims_rope": (4, 4, 8)},
        {"hidden_states": _R(1, 16, 4), "encoder_hidden_states": _TEXT, "pooled_projections": _R(1, 32), "timestep": _STEP,
         "img_ids": _R(16, 3), "txt_ids": _R(6, 3)},
    ),
    "PriorTransformer": (
        _HEADS | {"embedding_dim": 32, "num_embeddings": 6, "additional_embeddings": 4},
        {"hidden_states": _R(1, 32), "timestep": torch.tensor([3]), "proj_embedding": _R(1, 32),
         "encoder_hidden_states": _TEXT},
    ),
    "UVit2DModel": (
        {"hidden_size": 32, "cond_embed_dim": 32, "micro_cond_encode_dim": 8, "micro_cond_embed_dim": 40,
         "encoder_hidden_size": 32, "vocab_size": 32, "codebook_size": 24, "in_channels": 32, "block_out_channels": 32,
         "num_res_blocks": 1, "block_num_heads": 4, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 64, "downsample": True, "upsample": True},
        {"input_ids": torch.randint(0, 24, (1, 8, 8)), "encoder_hidden_states": _TEXT, "pooled_text_emb": _R(1, 32),
         "micro_conds": _R(1, 5)},
    ),
    "T2IAdapter": (
        {"channels": [32, 64], "num_res_blocks": 1, "downscale_factor": 8},
        {"x": _R(1, 3, 64, 64)},
    ),
    "SanaTransformer2DModel": (
        _HEADS | {"sample_size": 16, "in_channels": 4, "out_channels": 4, "num_cross_attention_heads": 4, "patch_size": 1,
                  "cross_attention_head_dim": 8, "cross_attention_dim": 32, "caption_channels": 32},
        {"hidden_states": _LATENT, "encoder_hidden_states": _TEXT, "timestep": _STEP},
    ),
    "AuraFlowTransformer2DModel": (
        {"sample_size": 16, "in_channels": 4, "num_mmdit_layers": 1, "num_single_dit_layers": 1, "attention_head_dim": 8,
         "num_attention_heads": 4, "caption_projection_dim": 32, "joint_attention_dim": 32, "out_channels": 4,
         "pos_embed_max_size": 64},
        {"hidden_states": _LATENT, "encoder_hidden_states": _TEXT, "timestep": _STEP},
    ),
    "Transformer2DModel": (
        _HEADS | {"in_channels": 32, "norm_num_groups": 8, "cross_attention_dim": 32},
        {"hidden_states": _R(1, 32, 16, 16), "encoder_hidden_states": _TEXT},
    ),
}  # fmt: skip


def diffusers(entry: Entry) -> Made:
    package = importlib.import_module("diffusers")
    package.logging.set_verbosity_error()
    config, inputs = _NETWORKS[entry.name]
    model = getattr(package, entry.name)(**config)
    options = {} if entry.name in ("T2IAdapter", "UVit2DModel") else {"return_dict": False}
    return Made(Called(model, tuple(inputs), options), tuple(inputs.values()))
