"""A CUDA kernel that keeps all SMs busy, through libcuda alone: no toolkit needed, the driver compiles it."""

import ctypes
import time

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry burn(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %p<2>;
    .reg .f32 %f<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    mov.f32 %f1, 0f3F7FF972;
    mov.f32 %f2, 0f3F800000;
again:
    fma.rn.f32 %f2, %f2, %f1, %f1;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra again;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.f32 [%rd4], %f2;
    ret;
}
"""
BLOCKS, THREADS, ROUNDS = 2048, 256, 200_000


class CudaError(Exception):
    """A call of the CUDA driver failed."""


class Burn:
    """The kernel on the first GPU."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.kernel, self.out = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"burn")
        self.call("cuMemAlloc_v2", ctypes.byref(self.out), ctypes.c_size_t(4 * BLOCKS * THREADS))

    def call(self, name: str, *arguments: object) -> None:
        """Call the driver. Raises CudaError."""
        status = getattr(self.cuda, name)(*arguments)
        if status != 0:
            raise CudaError(f"{name} returned {status}")

    def launch(self) -> None:
        """Run the kernel once and wait for it."""
        rounds = ctypes.c_uint32(ROUNDS)
        parameters = (ctypes.c_void_p * 2)(
            ctypes.cast(ctypes.byref(self.out), ctypes.c_void_p), ctypes.cast(ctypes.byref(rounds), ctypes.c_void_p)
        )
        self.call("cuLaunchKernel", self.kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, parameters, None)
        self.call("cuCtxSynchronize")

    def rate(self, seconds: float) -> float:
        """Return launches a second over so long."""
        start, done = time.monotonic(), 0
        while time.monotonic() - start < seconds:
            self.launch()
            done += 1
        return done / (time.monotonic() - start)
