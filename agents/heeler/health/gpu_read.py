"""What NVML says of every GPU, each value with its own error, each GPU by a thread of its own.

A GPU that hangs, or fell off the bus, must not hide the others: its thread is left behind, and the child in which this
runs is ended with it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from heeler.health.model import Context, Probe, ProbeError

NVML = "pynvml"
SPARE_S = 0.5  # of the probe's time, for packing what was read
HUNG, LOST, UNSUPPORTED, DENIED, RESET = "hung", "lost", "not_supported", "no_permission", "reset_required"

Reading = tuple[str, Callable[[Any, Any], Any]]  # name, (pynvml, handle) -> value


def read_gpus(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """Return {"driver", "count", "gpus": [{"index", "values", "errors"}]}. `count` is the driver's own.

    `errors` maps a value's name to why it is not there: lost, hung, not_supported, no_permission, reset_required,
    or NVML's words.
    """
    import pynvml as nvml  # noqa: PLC0415 - most commands need none

    until = time.monotonic() + max(context.timeout_s - SPARE_S, 0.2)
    top: dict[str, Any] = {}
    _in_time(lambda: top.update(_top(nvml)), until)
    if "error" in top:
        raise top["error"]
    if "count" not in top:
        raise ProbeError("timeout", "NVML does not answer when asked how many GPUs there are")
    gpus: list[dict[str, Any]] = [
        {"index": index, "values": {"index": index}, "errors": {}} for index in range(top["count"])
    ]
    threads = [_start(partial(_read, nvml, gpu)) for gpu in gpus]
    for thread, gpu in zip(threads, gpus, strict=True):
        thread.join(max(until - time.monotonic(), 0.0))
        if thread.is_alive():
            for name, _ in READINGS:
                if name not in gpu["values"]:
                    gpu["errors"].setdefault(name, HUNG)
    return {**top, "gpus": [{**gpu, "values": dict(gpu["values"]), "errors": dict(gpu["errors"])} for gpu in gpus]}


def _top(nvml: Any) -> dict[str, Any]:
    try:
        nvml.nvmlInit()
        return {"count": nvml.nvmlDeviceGetCount(), "driver": _text(nvml.nvmlSystemGetDriverVersion())}
    except nvml.NVMLError as err:
        return {"error": no_nvml(nvml, err)}


def no_nvml(nvml: Any, err: Exception) -> ProbeError:
    """Return what it means that NVML can't be used at all: there is none here, or it has failed."""
    missing = isinstance(err, nvml.NVMLError_LibraryNotFound | nvml.NVMLError_DriverNotLoaded)
    return ProbeError("missing" if missing else "failed", f"NVML: {err}")


def _start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _in_time(work: Callable[[], None], until: float) -> None:
    _start(work).join(max(until - time.monotonic(), 0.0))


def _read(nvml: Any, gpu: dict[str, Any]) -> None:
    values, errors = gpu["values"], gpu["errors"]
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(gpu["index"])
    except nvml.NVMLError as err:
        for name, _ in READINGS:
            errors[name] = _word(nvml, err)
        return
    for name, read in READINGS:
        try:
            found = read(nvml, handle)
        except nvml.NVMLError as err:
            errors[name] = _word(nvml, err)
        else:
            values[name] = found


def _word(nvml: Any, err: Exception) -> str:
    kinds = {
        nvml.NVML_ERROR_GPU_IS_LOST: LOST,
        nvml.NVML_ERROR_NOT_SUPPORTED: UNSUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: UNSUPPORTED,
        nvml.NVML_ERROR_NO_PERMISSION: DENIED,
        nvml.NVML_ERROR_RESET_REQUIRED: RESET,
    }
    return kinds.get(getattr(err, "value", None), str(err))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _pci(nvml: Any, handle: Any) -> str:
    """Return the address as the kernel has it: 0000:3b:00.0."""
    domain, _, rest = _text(nvml.nvmlDeviceGetPciInfo(handle).busId).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _memory(nvml: Any, handle: Any) -> dict[str, int]:
    # The second version tells apart what the driver reserves for itself; the first counts it as used.
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
        return {"total": int(found.total), "used": int(found.used), "reserved": int(found.reserved)}
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_ArgumentVersionMismatch, AttributeError):
        found = nvml.nvmlDeviceGetMemoryInfo(handle)
        return {"total": int(found.total), "used": int(found.used)}


def _ecc(error: str, counter: str) -> Callable[[Any, Any], int]:
    def read(nvml: Any, handle: Any) -> int:
        kind = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{error}")
        where = getattr(nvml, f"NVML_{counter}_ECC")
        return int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, where))

    return read


def _retired(cause: str) -> Callable[[Any, Any], int]:
    def read(nvml: Any, handle: Any) -> int:
        name = "MULTIPLE_SINGLE_BIT_ECC_ERRORS" if cause == "sbe" else "DOUBLE_BIT_ECC_ERROR"
        return len(nvml.nvmlDeviceGetRetiredPages(handle, getattr(nvml, f"NVML_PAGE_RETIREMENT_CAUSE_{name}")))

    return read


def _remapped(nvml: Any, handle: Any) -> dict[str, int]:
    names = ("correctable", "uncorrectable", "pending", "failed")
    return dict(zip(names, map(int, nvml.nvmlDeviceGetRemappedRows(handle)), strict=True))


def _links(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    """Return the NVLinks that the board has: up or not, and counters above 0."""
    found: list[dict[str, Any]] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            up = bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except (nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotSupported):
            if link == 0:
                raise
            break
        found.append({"link": link, "up": up, "errors": dict(_link_errors(nvml, handle, link))})
    return found


def _link_errors(nvml: Any, handle: Any, link: int) -> Iterator[tuple[str, int]]:
    counters = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}
    for name, number in counters.items():
        with suppress(nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument, nvml.NVMLError_FunctionNotFound):
            count = int(nvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, number))
            if count:
                yield name, count


def _fabric(nvml: Any, handle: Any) -> dict[str, int]:
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    try:
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, nvml.byref(info))
    except nvml.NVMLError_FunctionNotFound:
        old = nvml.c_nvmlGpuFabricInfo_t()
        nvml.nvmlDeviceGetGpuFabricInfo(handle, nvml.byref(old))
        return {"state": int(old.state), "status": int(old.status)}
    return {"state": int(info.state), "status": int(info.status), "health": int(info.healthMask)}


def _recovery(nvml: Any, handle: Any) -> int:
    (found,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if found.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(found.nvmlReturn)
    return int(found.value.uiVal)


def _mig(nvml: Any, handle: Any) -> dict[str, Any]:
    current, pending = nvml.nvmlDeviceGetMigMode(handle)
    uuids = []
    if current:
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(nvml.NVMLError_NotFound):
                uuids.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))))
    return {"enabled": bool(current), "pending": bool(pending), "uuids": uuids}


def _clock(kind: str, call: str) -> Callable[[Any, Any], int]:
    return lambda nvml, handle: int(getattr(nvml, call)(handle, getattr(nvml, f"NVML_CLOCK_{kind}")))


def _number(call: str) -> Callable[[Any, Any], int]:
    return lambda nvml, handle: int(getattr(nvml, call)(handle))


READINGS: tuple[Reading, ...] = (
    ("uuid", lambda nvml, handle: _text(nvml.nvmlDeviceGetUUID(handle))),
    ("pci", _pci),
    ("minor", _number("nvmlDeviceGetMinorNumber")),
    ("model", lambda nvml, handle: _text(nvml.nvmlDeviceGetName(handle))),
    ("serial", lambda nvml, handle: _text(nvml.nvmlDeviceGetSerial(handle))),
    ("vbios", lambda nvml, handle: _text(nvml.nvmlDeviceGetVbiosVersion(handle))),
    ("mig", _mig),
    ("temp_c", lambda nvml, handle: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
    ("util_percent", lambda nvml, handle: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
    ("memory", _memory),
    ("persistence", _number("nvmlDeviceGetPersistenceMode")),
    ("graphics_clock_mhz", _clock("GRAPHICS", "nvmlDeviceGetClockInfo")),
    ("mem_clock_mhz", _clock("MEM", "nvmlDeviceGetClockInfo")),
    ("app_graphics_clock_mhz", _clock("GRAPHICS", "nvmlDeviceGetApplicationsClock")),
    ("app_mem_clock_mhz", _clock("MEM", "nvmlDeviceGetApplicationsClock")),
    ("graphics_clock_max_mhz", _clock("GRAPHICS", "nvmlDeviceGetMaxClockInfo")),
    ("mem_clock_max_mhz", _clock("MEM", "nvmlDeviceGetMaxClockInfo")),
    ("clock_event_reasons", _number("nvmlDeviceGetCurrentClocksEventReasons")),
    ("ecc_mode", lambda nvml, handle: int(nvml.nvmlDeviceGetEccMode(handle)[0])),
    ("ecc_corrected_volatile", _ecc("CORRECTED", "VOLATILE")),
    ("ecc_uncorrected_volatile", _ecc("UNCORRECTED", "VOLATILE")),
    ("ecc_corrected_aggregate", _ecc("CORRECTED", "AGGREGATE")),
    ("ecc_uncorrected_aggregate", _ecc("UNCORRECTED", "AGGREGATE")),
    ("retired_pages_sbe", _retired("sbe")),
    ("retired_pages_dbe", _retired("dbe")),
    ("retired_pages_pending", _number("nvmlDeviceGetRetiredPagesPendingStatus")),
    ("remapped_rows", _remapped),
    ("pcie_gen", _number("nvmlDeviceGetCurrPcieLinkGeneration")),
    ("pcie_gen_max", _number("nvmlDeviceGetMaxPcieLinkGeneration")),
    ("pcie_width", _number("nvmlDeviceGetCurrPcieLinkWidth")),
    ("pcie_width_max", _number("nvmlDeviceGetMaxPcieLinkWidth")),
    ("nvlinks", _links),
    ("fabric", _fabric),
    ("recovery_action", _recovery),
)

GPUS = Probe("gpus", read_gpus, timeout_s=8.0, library=NVML)


def is_divided(facts: Mapping[str, Any]) -> bool:
    """Say whether MIG is on for one of the GPUs: Slurm numbers MIG devices too, so a number may then mean either."""
    return any((gpu["values"].get("mig") or {}).get("enabled") for gpu in facts["gpus"])


def uuids_by_minor(facts: Mapping[str, Any]) -> dict[int, str]:
    """Return minor -> UUID of the GPUs that tell both."""
    values = [gpu["values"] for gpu in facts["gpus"]]
    return {one["minor"]: one["uuid"] for one in values if "minor" in one and "uuid" in one}
