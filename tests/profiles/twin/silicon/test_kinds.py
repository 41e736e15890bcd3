# SPDX-License-Identifier: Apache-2.0
"""What a kind of kernel is stands in one row for the predictor and in one for the simulated silicon, and nowhere else."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest

from jetdvfs.kernels import kinds
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.kinds import ELEMENTWISE, KernelKind, per_element
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.kernels.operators.layout import preserved
from jetdvfs.kernels.operators.recorder import Recorder
from jetdvfs.kernels.operators.registry import RULES, operator
from jetdvfs.kernels.operators.values import Tensor
from jetdvfs.kernels.rewriting.fusion import fuse
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.twin.silicon import kinds as silicon_kinds
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.execution import execute
from jetdvfs.profiles.twin.silicon.kernels import pointwise
from jetdvfs.profiles.twin.silicon.kinds import SiliconKind
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.tests.support.models.handmade import archive, forward

#: The kinds that only the predictor knows. The silicon is frozen, so it goes on guessing them: arithmetic on elements.
GUESSED = {
    "arithmetic on elements, as the guess is": """
        dequantize fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask
        quantize_per_channel quantize_per_tensor
        abs acos acosh add_scalar addcdiv addcmul angle asin asinh atan atan2 atan2_scalar atanh bitwise_and
        bitwise_and_scalar bitwise_left_shift bitwise_left_shift_scalar bitwise_not bitwise_or bitwise_or_scalar
        bitwise_right_shift bitwise_right_shift_scalar bitwise_xor bitwise_xor_scalar ceil celu clamp clamp_max
        clamp_min complex copysign copysign_scalar cos cosh deg2rad digamma div_scalar elu eq eq_scalar erf erfc
        erfinv exp2 expm1 floor floor_divide floor_divide_scalar fmax fmax_scalar fmin fmin_scalar fmod fmod_scalar
        frac ge ge_scalar glu gru_cell gt gt_scalar hardshrink heaviside heaviside_scalar hypot hypot_scalar i0 isinf
        isnan isneginf isposinf ldexp ldexp_scalar le le_scalar leaky_relu lerp lgamma log log10 log1p log2
        log_sigmoid logaddexp logaddexp2 logaddexp2_scalar logaddexp_scalar logical_and logical_and_scalar logical_not
        logical_or logical_or_scalar logical_xor logical_xor_scalar logit lstm_cell lt lt_scalar maximum
        maximum_scalar minimum minimum_scalar mish mul_scalar nan_to_num ne ne_scalar neg nextafter nextafter_scalar
        polar polar_scalar pow_scalar prelu rad2deg reciprocal remainder remainder_scalar rnn_cell round
        rrelu_with_noise rsqrt rsub rsub_scalar sgn sign signbit sin sinc sinh softplus softshrink sub_scalar tan
        threshold trunc xlogy xlogy_scalar
    """,
    "copies and fills, which the guess makes a little dear in instructions": """
        arange bernoulli block_diag channel_shuffle col2im constant_pad_nd copy diag_embed diagonal_copy embedding
        exponential eye fill flip full gather im2col index index_copy index_fill index_put index_select linspace
        logspace masked_fill masked_scatter normal ones pixel_shuffle pixel_unshuffle rand rand_like randint randn
        randn_like reflection_pad1d reflection_pad2d reflection_pad3d repeat replication_pad1d replication_pad2d
        replication_pad3d roll rot90 scatter take to tril tril_indices triu triu_indices unfold_backward uniform
        upsample_nearest1d upsample_nearest2d upsample_nearest3d where zeros
    """,
    "more than arithmetic on elements: the guess is too cheap": """
        _linalg_solve_ex deform_conv2d grid_sampler_3d histc index_reduce linalg_inv_ex multinomial
        _cdist_forward _fft_c2c _fft_c2r _fft_r2c _trilinear _weight_norm_interface adaptive_avg_pool3d
        adaptive_max_pool3d addbmm addmv addr affine_grid_generator all aminmax any avg_pool3d
        binary_cross_entropy_with_logits bucketize conv1d conv3d conv_transpose1d conv_transpose3d count_nonzero
        cummax cummin cumprod cumsum dist embedding_bag grid_sampler_2d gru huber_loss index_add kthvalue linalg_cross
        logcumsumexp logsumexp lstm max_pool3d max_unpool2d max_unpool3d median min mode mse_loss nansum norm prod
        renorm rms_norm rnn roi_align scatter_add scatter_reduce searchsorted smooth_l1_loss sort std std_mean topk
        trace upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_trilinear3d var var_mean
    """,
    "made by fusion, which the silicon does not know: the guess leaves a convolution's products out": """
        conv2d_add_relu conv2d_relu conv3d_add_relu conv3d_relu fused_pointwise
    """,
}


def test_every_kind_that_only_one_side_knows_is_named_with_the_reason() -> None:
    guessed = [name for names in GUESSED.values() for name in names.split()]
    assert len(guessed) == len(set(guessed))
    assert kinds.KINDS.keys() - silicon_kinds.KINDS.keys() == set(guessed)
    assert not silicon_kinds.KINDS.keys() - kinds.KINDS.keys()


@pytest.fixture
def swirl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pointwise operator that nobody knew: one shape rule, and one row on each side."""

    @operator("swirl", "swirl_")
    def rule(recorder: Recorder, self: Tensor) -> Tensor:
        return recorder.launch("swirl", [self], recorder.tensor(self.shape, self.dtype, preserved(self)))

    monkeypatch.setitem(kinds.KINDS, "swirl", KernelKind("swirl", per_element(50), served_by=ELEMENTWISE, fusible=True))
    monkeypatch.setitem(silicon_kinds.KINDS, "swirl", SiliconKind(pointwise(90.0), 30.0))
    yield
    for name in ("swirl", "swirl_"):
        del RULES[name]


def test_a_new_operator_is_decomposed_fused_predicted_and_simulated(swirl: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = archive(forward("y = torch.relu(x)", "return torch.swirl(y)"))
    network = decompose(io.BytesIO(model), [TensorSpec((8, 64, 56, 56))])
    elements = 8 * 64 * 56 * 56
    launch = network.launches[1]
    assert (launch.kind, launch.flops, launch.bytes) == ("swirl", 50 * elements, 8 * elements)
    (group,) = fuse(network).launches
    assert group.params["kinds"] == "relu+swirl"

    bundle = load_bundle("agx-xavier-sim")
    predicted = surface(network, bundle.cost)
    assert not predicted.unmodelled
    assert np.isfinite(predicted.latency_ms).all() and np.isfinite(predicted.energy_mj).all()

    clocks = Clocks.of([load_board("agx-xavier").grid.top])
    silicon = Silicon(None, version=1)
    known = execute(network, silicon, clocks)
    monkeypatch.delitem(silicon_kinds.KINDS, "swirl")
    guessed = execute(network, silicon, clocks)
    assert known.gpu_busy_s > guessed.gpu_busy_s  # ninety instructions for each element, not the guess's six
    assert known.host_busy_s > guessed.host_busy_s
