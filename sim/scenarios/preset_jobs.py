# SPDX-License-Identifier: Apache-2.0
"""Workloads with the sizes of named models, cut down by a scale.

Real iterations take seconds and move gigabytes per NIC. ``scale`` divides both the bytes and the compute
times of an iteration, so its shape stays. What repeats within an iteration (layers, micro-batches) is cut
first, down to a few; the rest of the scale makes messages smaller. Below ``SMALLEST_BUCKET_BYTES`` a
collective would be of another kind (latency decides, not rate), so such a scale is refused.

Compute: 400 TFLOP/s per GPU, 6 FLOP per parameter and token, 16,384 tokens per GPU and iteration (1 M on 64).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sim.planning.workloads import bucket_sizes
from sim.spec import Algorithm, Dispatch, JobSpec, SimulationError, Workload

SMALLEST_BUCKET_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Site:
    """Where a preset is put: machines, GPUs of each, iterations, scale, seed of the job."""

    machines: tuple[int, ...]
    gpus: int
    steps: int
    scale: float
    seed: int

    def repeats(self, real: int, fewest: int) -> int:
        """How often something that repeats ``real`` times is done."""
        return max(min(fewest, real), math.ceil(real / self.scale))

    def bytes(self, real: float) -> int:
        """Bytes of an iteration, in whole KiB."""
        return max(1024, int(real / self.scale) // 1024 * 1024)

    def compute_ns(self, parameters: float, tokens: int = 16_384, factor: float = 1.0) -> int:
        """Compute of an iteration."""
        return int(6 * parameters * tokens * factor / 400e12 / self.scale * 1e9)


@dataclass(frozen=True, slots=True)
class Preset:
    """A workload: what it is, its real sizes, and how it becomes a job.

    ``bucket_bytes`` are those of one bucket at scale 1 after cutting repetitions, given the GPUs per machine;
    the default scale leaves ``default_bytes`` of them.
    """

    name: str
    text: str
    real: str
    build: Callable[[Site], JobSpec]
    bucket_bytes: Callable[[int], float]
    default_bytes: float = 16.8e6
    smallest_bytes: float = SMALLEST_BUCKET_BYTES
    several_jobs: bool = False
    storage: bool = False

    def default_scale(self, gpus: int) -> int:
        """The scale if none is given."""
        return max(1, int(self.bucket_bytes(gpus) / self.default_bytes))

    def largest_scale(self, gpus: int) -> int:
        """The largest scale that keeps buckets of a real kind."""
        return max(1, int(self.bucket_bytes(gpus) / self.smallest_bytes))


# ---- the presets

_DENSE, _SMALL, _MIXTURE_ACTIVE, _MIXTURE_DENSE = 70e9, 8e9, 37e9, 16e9
_LAYERS_8B, _LAYERS_MIXTURE = 32, 58
_BF16, _FP32 = 2, 4
_STAGES = 4
_MICRO_BATCHES, _FEWEST_MICRO_BATCHES = 64, 8
_ACTIVATION_BYTES = 8192 * 8192 * _BF16  # one micro-batch of 8 k tokens, hidden size 8192
_FEWEST_LAYERS = 4
_TOKENS_MIXTURE = 4_096
_ROUTED_BYTES = _TOKENS_MIXTURE * 8 * 7168  # top-8 of 4,096 tokens, hidden size 7168, one byte each
_KEY_VALUE_BYTES = 16_384 * 2 * 8 * 128 * _BF16
_LONG_CONTEXT_FACTOR = 3.1  # attention over 128 k tokens costs about twice the rest


def _gradients(gpus: int) -> float:
    return _DENSE * _BF16 / gpus


def _dp(site: Site) -> JobSpec:
    job = JobSpec(
        site.machines,
        Workload.DP,
        site.steps,
        collective_bytes=site.bytes(_gradients(site.gpus)),
        compute_ns=site.compute_ns(_DENSE),
    )
    several = (replace(job, buckets=count) for count in (8, 6, 4, 3, 2))
    fitting = (one for one in several if min(bucket_sizes(one, site.seed)) >= SMALLEST_BUCKET_BYTES)
    return next(fitting, job)


def _dp_overlap(site: Site) -> JobSpec:
    return replace(_dp(site), overlap=True)


def _tree(site: Site) -> JobSpec:
    return replace(_dp(site), algorithm=Algorithm.DOUBLE_TREE)


def _nvls(site: Site) -> JobSpec:
    return replace(_dp(site), algorithm=Algorithm.NVLS)


def _evaluation(site: Site) -> JobSpec:
    job = _dp(site)
    return replace(job, pause_every=7, pause_ns=2 * job.compute_ns)


def _warm_up(site: Site) -> JobSpec:
    return replace(_dp(site), long_first_steps=3)


def _fsdp(site: Site) -> JobSpec:
    return JobSpec(
        site.machines,
        Workload.FSDP,
        site.steps,
        collective_bytes=site.bytes(_SMALL * _BF16 / site.gpus),
        compute_ns=site.compute_ns(_SMALL),
        layers=site.repeats(_LAYERS_8B, _FEWEST_LAYERS),
        prefetch=True,
    )


def _stages(machines: int) -> int:
    for stages in (_STAGES, 3, 2):
        if machines % stages == 0:
            return stages
    raise SimulationError(f"workload pp: {machines} machines are not 2, 3 or 4 equal stages")


def _pp(site: Site) -> JobSpec:
    micro_batches = site.repeats(_MICRO_BATCHES, _FEWEST_MICRO_BATCHES)
    activation = _ACTIVATION_BYTES / site.gpus * _MICRO_BATCHES / micro_batches
    return JobSpec(
        site.machines,
        Workload.PP,
        site.steps,
        collective_bytes=site.bytes(_gradients(site.gpus) / _STAGES),
        compute_ns=site.compute_ns(_DENSE),
        layers=2,
        stages=_stages(len(site.machines)),
        micro_batches=micro_batches,
        activation_bytes=site.bytes(activation),
    )


def _moe(site: Site) -> JobSpec:
    # Dispatch (1 byte per element) and combine (2), forward and backward; each exchange has the mean size.
    exchanged = _ROUTED_BYTES * (1 + _BF16) * 2 * _LAYERS_MIXTURE
    return JobSpec(
        site.machines,
        Workload.MOE,
        site.steps,
        collective_bytes=site.bytes(exchanged),
        compute_ns=site.compute_ns(_MIXTURE_ACTIVE, _TOKENS_MIXTURE),
        layers=site.repeats(_LAYERS_MIXTURE, 2),
        uneven=True,
        dispatch=Dispatch.PXN if site.gpus > 1 else Dispatch.RAIL,
        dense_bytes=site.bytes(_MIXTURE_DENSE * _BF16 / site.gpus),
    )


def _cp(site: Site) -> JobSpec:
    layers = site.repeats(_LAYERS_8B, 2)
    return JobSpec(
        site.machines,
        Workload.CP,
        site.steps,
        collective_bytes=site.bytes(_SMALL * _FP32 / site.gpus),
        compute_ns=site.compute_ns(_SMALL, factor=_LONG_CONTEXT_FACTOR),
        layers=layers,
        activation_bytes=site.bytes(_KEY_VALUE_BYTES * _LAYERS_8B / layers),
    )


_DP_REAL = "70B bf16, 1 M tokens: 17.5 GB of gradients per GPU, 17 s of compute"
_TWO_BUCKETS = 68.4e6

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                "dp",
                "TP in the machine, DP over machines: AllReduce buckets of unequal size, back to back",
                _DP_REAL,
                _dp,
                _gradients,
                _TWO_BUCKETS,
            ),
            Preset(
                "dp_overlap",
                "the same, buckets overlapped with backward compute",
                _DP_REAL,
                _dp_overlap,
                _gradients,
                _TWO_BUCKETS,
                smallest_bytes=4 * SMALLEST_BUCKET_BYTES,
            ),
            Preset(
                "fsdp",
                "sharded over all GPUs: AllGather per layer ahead, ReduceScatter behind backward",
                "8B bf16, 1 M tokens: 32 layers of 62 MB per NIC, 2 s of compute",
                _fsdp,
                lambda gpus: _SMALL * _BF16 / gpus / _FEWEST_LAYERS,
            ),
            Preset(
                "pp",
                "TP in the machine, 4 pipeline stages (1F1B), DP within each stage",
                "70B bf16: 64 micro-batches of 16.8 MB per GPU, 4.4 GB of gradients, 17 s of compute",
                _pp,
                lambda gpus: _gradients(gpus) / _STAGES,
                17.1e6,
            ),
            Preset(
                "moe",
                "experts over all GPUs: uneven all-to-all (PXN) twice per layer, AllReduce of dense parts",
                "37B active of 671B, 4,096 tokens per GPU, top-8: 58 layers of 1.4 GB, 4 GB dense, 2.3 s",
                _moe,
                lambda gpus: _MIXTURE_DENSE * _BF16 / gpus,
            ),
            Preset(
                "cp",
                "context parallelism: keys and values round a ring in every layer, then an AllReduce",
                "8B, 128 k tokens per sequence: 7 hops of 67 MB in 32 layers, 4 GB of fp32 gradients, 6 s",
                _cp,
                lambda gpus: _SMALL * _FP32 / gpus,
            ),
            Preset("tree", "dp with double binary trees", _DP_REAL, _tree, _gradients, _TWO_BUCKETS),
            Preset(
                "nvls",
                "dp reduced in the machine's switch first, one tree between machines",
                _DP_REAL,
                _nvls,
                _gradients,
                _TWO_BUCKETS,
            ),
            Preset(
                "two_jobs",
                "two dp jobs, each on half of the machines",
                _DP_REAL,
                _dp,
                _gradients,
                _TWO_BUCKETS,
                several_jobs=True,
            ),
            Preset(
                "storage",
                "dp beside storage traffic of every machine",
                _DP_REAL,
                _dp,
                _gradients,
                _TWO_BUCKETS,
                storage=True,
            ),
            Preset(
                "evaluation",
                "dp that stops for an evaluation every 7 iterations",
                _DP_REAL,
                _evaluation,
                _gradients,
                _TWO_BUCKETS,
            ),
            Preset(
                "warm_up",
                "dp whose first 3 iterations take longer",
                _DP_REAL,
                _warm_up,
                _gradients,
                _TWO_BUCKETS,
            ),
        )
    }
)
