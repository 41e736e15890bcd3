# SPDX-License-Identifier: Apache-2.0
"""torchaudio's networks and transforms."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from jetdvfs.tests.zoo.table import Entry, Made


def _wave(length: int = 4000, *lead: int) -> torch.Tensor:
    return torch.rand(*(lead or (1,)), length)


def _transformer(models: Any, make: str) -> torch.nn.Module:
    options: dict[str, Any] = {
        "extractor_mode": "group_norm", "extractor_conv_layer_config": [(32, 10, 5), (32, 3, 2), (32, 2, 2)],
        "extractor_conv_bias": False, "encoder_embed_dim": 32, "encoder_projection_dropout": 0.0,
        "encoder_pos_conv_kernel": 16, "encoder_pos_conv_groups": 4, "encoder_num_layers": 2, "encoder_num_heads": 4,
        "encoder_attention_dropout": 0.0, "encoder_ff_interm_features": 64, "encoder_ff_interm_dropout": 0.0,
        "encoder_dropout": 0.0, "encoder_layer_norm_first": False, "encoder_layer_drop": 0.0, "aux_num_out": 12,
    }  # fmt: skip
    if make == "wavlm_model":
        options |= {"encoder_num_buckets": 32, "encoder_max_distance": 80}
    made: torch.nn.Module = getattr(models, make)(**options)
    return made


def _tacotron(models: Any) -> Made:
    model = models.Tacotron2(
        n_mels=16, symbol_embedding_dim=32, encoder_embedding_dim=32, decoder_rnn_dim=64, attention_rnn_dim=64,
        prenet_dim=32, postnet_embedding_dim=32, decoder_max_step=8, encoder_n_convolution=1, postnet_n_convolution=2,
    )  # fmt: skip
    lengths = torch.tensor([10]), torch.tensor([8])
    return Made(model, (torch.randint(0, 40, (1, 10)), lengths[0], torch.rand(1, 16, 8), lengths[1]))


def _squim(models: Any) -> Made:
    return Made(models.squim_objective_base(), (_wave(8000),))


_NETWORKS: dict[str, Callable[[Any], Made]] = {
    "Conformer": lambda m: Made(m.Conformer(16, 4, 32, 2, 7), (torch.rand(1, 20, 16), torch.tensor([20]))),
    "ConvTasNet": lambda m: Made(
        m.ConvTasNet(2, enc_num_feats=32, msk_num_feats=16, msk_num_hidden_feats=32, msk_num_layers=3, msk_num_stacks=2),
        (_wave(800, 1, 1),),
    ),
    "DeepSpeech": lambda m: Made(m.DeepSpeech(16, n_hidden=32, n_class=12), (torch.rand(1, 1, 20, 16),)),
    "Emformer": lambda m: Made(
        m.Emformer(16, 4, 32, 2, 4, right_context_length=1), (torch.rand(1, 21, 16), torch.tensor([20]))
    ),
    "HDemucs": lambda m: Made(m.HDemucs(["a", "b"], channels=8, depth=6), (_wave(20000, 1, 2),)),
    "Tacotron2": _tacotron,
    "WaveRNN": lambda m: Made(
        m.WaveRNN([2, 2], 16, 4, n_rnn=32, n_fc=32, n_freq=8, n_hidden=16, n_output=16, n_res_block=2, kernel_size=3),
        (_wave(16, 1, 1), torch.rand(1, 1, 8, 6)),
    ),
    "Wav2Letter": lambda m: Made(m.Wav2Letter(12, "waveform", 1), (_wave(4000, 1, 1),)),
    "squim_objective": _squim,
    **{
        name: lambda m, name=name: Made(_transformer(m, f"{name}_model"), (_wave(),))  # type: ignore[misc]
        for name in ("wav2vec2", "wavlm")
    },
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "Spectrogram": {"n_fft": 256},
    "MelSpectrogram": {"n_fft": 256, "n_mels": 20},
    "MFCC": {"n_mfcc": 13, "melkwargs": {"n_fft": 256, "n_mels": 20}},
    "Resample": {"orig_freq": 16000, "new_freq": 8000},
}


def torchaudio(entry: Entry) -> Made:
    package = importlib.import_module("torchaudio")
    if entry.name in _NETWORKS:
        return _NETWORKS[entry.name](importlib.import_module("torchaudio.models"))
    return Made(getattr(package.transforms, entry.name)(**_OPTIONS.get(entry.name, {})), (_wave(),))
