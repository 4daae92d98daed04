"""Names and numbers that profilers write: callback ids, HIP's names for CUDA's calls, device properties."""

from __future__ import annotations

from typing import Any

__all__ = ["CALL_IDS", "DEVICE_PROPERTIES", "HIP_NAMES", "RCCL_KERNEL"]

CALL_IDS = {
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaEventRecord": 135,
    "cudaEventSynchronize": 137,
    "cudaStreamWaitEvent": 147,
    "cudaDeviceSynchronize": 165,
    "cudaLaunchKernel": 211,
    "cudaGraphLaunch": 311,
    "cudaStreamIsCapturing": 317,
    "cudaLaunchKernelExC": 430,
}

HIP_NAMES = {
    "cudaMemcpyAsync": "hipMemcpyAsync",
    "cudaMemsetAsync": "hipMemsetAsync",
    "cudaStreamSynchronize": "hipStreamSynchronize",
    "cudaEventRecord": "hipEventRecord",
    "cudaEventSynchronize": "hipEventSynchronize",
    "cudaStreamWaitEvent": "hipStreamWaitEvent",
    "cudaDeviceSynchronize": "hipDeviceSynchronize",
    "cudaLaunchKernel": "hipLaunchKernel",
    "cudaGraphLaunch": "hipGraphLaunch",
    "cudaStreamIsCapturing": "hipStreamIsCapturing",
    "cudaLaunchKernelExC": "hipExtLaunchKernel",
}

RCCL_KERNEL = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"

DEVICE_PROPERTIES: dict[str, dict[str, Any]] = {
    "nvidia": {
        "id": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "totalGlobalMem": 85018279936,
        "computeMajor": 9,
        "computeMinor": 0,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "warpSize": 32,
        "sharedMemPerBlock": 49152,
        "numSms": 132,
    },
    "amd": {
        "id": 0,
        "name": "AMD Instinct MI300X",
        "totalGlobalMem": 206141652992,
        "computeMajor": 9,
        "computeMinor": 4,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "warpSize": 64,
        "sharedMemPerBlock": 65536,
        "numSms": 304,
    },
}
