"""Checks of GPUs by what NVML says: there, reachable, the right ones, without errors, at their place on the bus."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heeler.health.gpu_judging import Flaw, Gpu, Missing, all_gpus, each_gpu, indices
from heeler.health.gpu_read import GPUS, HUNG, LOST, RESET, UNSUPPORTED, is_divided
from heeler.health.model import Case, Check, Evidence, NoSettings, Outcome, Phase, Verdict, bad, ok, unknown, warn

Facts = Mapping[str, Any]
AROUND_JOBS = (Phase.PROLOG, Phase.EPILOG, Phase.TASK_PROLOG)
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CountSettings:
    """How many GPUs the node should have."""

    expected: int


def judge_count(facts: Facts, settings: CountSettings, case: Case) -> Verdict:
    """Compare how many GPUs the driver lists with how many there should be.

    Around a job a GPU that is missing is only warned of: that the job's own are there is `gpu_reachable`'s to say.
    """
    seen = Evidence("gpus", facts["count"], settings.expected)
    if facts["count"] == settings.expected:
        return ok(f"{facts['count']} GPUs", seen, gpus=facts["count"])
    say = warn if case.phase in AROUND_JOBS else bad
    return say(f"{facts['count']} GPUs, {settings.expected} expected", seen, gpus=facts["count"])


def judge_reachable(facts: Facts, _settings: NoSettings, case: Case) -> Verdict:
    """Say whether each GPU answers, and around a job whether all of the job's are there."""
    job = case.job
    absent = None
    if job is not None and job.gpu_uuids is not None:
        absent = _absent_uuids(facts, job.gpu_uuids)
    elif job is not None and job.gpu_minors is not None:
        absent = _absent_minors(facts, job.gpu_minors)
    if absent is not None:
        return absent

    def look(gpu: Gpu) -> Flaw | None:
        state = gpu.errors.get("uuid") or next((why for why in gpu.errors.values() if why in (LOST, HUNG, RESET)), None)
        if state is None:
            return None
        words = {
            LOST: "lost: it fell off the bus",
            HUNG: "hung: the driver does not answer for it",
            RESET: "needs a reset",
        }
        return Flaw(words.get(state, state), gpu.seen("state", state))

    return each_gpu(facts, case, look, "{} GPUs answer")


def _absent_uuids(facts: Facts, uuids: tuple[str, ...]) -> Verdict | None:
    """Say what is wrong where not all of the job's GPUs answer by name. One that is lost does not even say that."""
    gpus = all_gpus(facts)
    known = {gpu.uuid for gpu in gpus} | {
        uuid for gpu in gpus for uuid in (gpu.values.get("mig") or {}).get("uuids", ())
    }
    absent = [uuid for uuid in uuids if uuid not in known]
    if not absent:
        return None
    silent = [gpu for gpu in gpus if gpu.uuid is None]
    states = sorted({gpu.errors.get("uuid", "not read") for gpu in silent})
    seen = [Evidence("uuid", ", ".join(states) or None, uuid, gpu_uuid=uuid) for uuid in absent]
    # A MIG device has had names of two forms, so that one is not found proves nothing.
    if not set(states) <= {LOST, HUNG, RESET} or any(uuid.startswith("MIG-") for uuid in absent):
        return unknown(f"{', '.join(absent)} of this job can't be told from GPUs that do not say their name", *seen)
    words = f"GPU {indices(silent)} is {' or '.join(states)}" if silent else f"{facts['count']} others answer"
    return bad(f"{', '.join(absent)} of this job does not answer: {words}", *seen)


def _absent_minors(facts: Facts, minors: tuple[int, ...]) -> Verdict | None:
    gpus = all_gpus(facts)
    if is_divided(facts):
        return unknown("which GPUs are this job's can't be told: Slurm numbers MIG devices too")
    known = {gpu.values.get("minor") for gpu in gpus}
    absent = [minor for minor in minors if minor not in known]
    if not absent:
        return None
    silent = [gpu for gpu in gpus if "minor" not in gpu.values]
    seen = [Evidence("minor", None, minor, device=f"/dev/nvidia{minor}") for minor in absent]
    names = ", ".join(f"/dev/nvidia{minor}" for minor in absent)
    if silent and all(gpu.errors.get("minor") not in (LOST, HUNG, RESET) for gpu in silent):
        return unknown(f"{names} of this job can't be told from GPUs that don't say their minor", *seen)
    return bad(f"{names} of this job is not among the {facts['count']} GPUs that answer", *seen)


@dataclass(frozen=True, slots=True)
class UuidSettings:
    """The UUIDs that the node should have."""

    expected: tuple[str, ...]


def judge_uuids(facts: Facts, settings: UuidSettings, _case: Case) -> Verdict:
    """Compare the UUIDs with those that the policy names: a board that was swapped, or is gone."""
    gpus = all_gpus(facts)
    found = {gpu.uuid for gpu in gpus if gpu.uuid}
    strangers = sorted(found - set(settings.expected))
    absent = sorted(set(settings.expected) - found)
    if strangers:
        seen = [Evidence("uuid", uuid, None, gpu_uuid=uuid) for uuid in strangers]
        return bad(f"{len(strangers)} GPUs are not those of this node: {', '.join(strangers)}", *seen)
    if absent and len(found) < len(gpus):
        return unknown(f"{len(gpus) - len(found)} GPUs don't tell their UUID")
    if absent:
        return bad(f"not there: {', '.join(absent)}", *(Evidence("uuid", None, uuid) for uuid in absent))
    return ok(f"all {len(found)} GPUs are those of this node")


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """The least application clocks; boards without application clocks are held to their largest clocks."""

    least_graphics_mhz: int = 1155
    least_mem_mhz: int = 1593


def judge_clocks(facts: Facts, settings: ClockSettings, case: Case) -> Verdict:
    """Hold the clocks that were set for programs against the least. What an idle GPU runs at says nothing."""

    def look(gpu: Gpu) -> Flaw | None:
        for kind, least in (("graphics", settings.least_graphics_mhz), ("mem", settings.least_mem_mhz)):
            what, clock = _clock(gpu, kind)
            if clock < least:
                return Flaw(f"{what} of {clock} MHz, below {least}", gpu.seen(f"{what}_mhz", clock, least, "MHz"))
        return None

    return each_gpu(facts, case, look, "the clocks of {} GPUs are high enough")


def _clock(gpu: Gpu, kind: str) -> tuple[str, int]:
    try:
        return f"app_{kind}_clock", int(gpu.get(f"app_{kind}_clock_mhz"))
    except Missing as err:
        if err.why != UNSUPPORTED:
            raise
        return f"{kind}_clock_max", int(gpu.get(f"{kind}_clock_max_mhz"))


@dataclass(frozen=True, slots=True)
class TemperatureSettings:
    """Above this a GPU is too hot."""

    most_c: float = 85.0


def judge_temperature(facts: Facts, settings: TemperatureSettings, case: Case) -> Verdict:
    """Hold each GPU's temperature against the limit."""

    def look(gpu: Gpu) -> Flaw | None:
        temp_c = gpu.get("temp_c")
        if temp_c <= settings.most_c:
            return None
        return Flaw(f"{temp_c} °C, above {settings.most_c:g}", gpu.seen("temp_c", temp_c, settings.most_c, "Cel"))

    return each_gpu(facts, case, look, "{} GPUs are cool", perf="temp_c")


@dataclass(frozen=True, slots=True)
class MemoryUsedSettings:
    """What may be in use on a GPU that nobody has, beside what the driver reserves."""

    most_bytes: int = 64 * MIB


def judge_memory_used(facts: Facts, settings: MemoryUsedSettings, case: Case) -> Verdict:
    """Say whether memory is in use on GPUs that should be empty: before a job, or on an idle node."""

    def look(gpu: Gpu) -> Flaw | None:
        used = gpu.get("memory")["used"]
        if "reserved" not in gpu.get("memory") or used <= settings.most_bytes:
            if used <= settings.most_bytes:
                return None
            # An old driver counts its own share as used: nothing can be said of what is beyond the limit.
            return Flaw(
                f"{used // MIB} MiB in use, the driver's share not told apart",
                gpu.seen("fb_used", used, settings.most_bytes, "bytes"),
                Outcome.UNKNOWN,
            )
        words = f"{used // MIB} MiB in use, above {settings.most_bytes // MIB}"
        return Flaw(words, gpu.seen("fb_used", used, settings.most_bytes, "bytes"))

    return each_gpu(facts, case, look, "the memory of {} GPUs is free")


@dataclass(frozen=True, slots=True)
class EccUncorrectedSettings:
    """Uncorrected errors since the driver was loaded."""

    most: int = 0


@dataclass(frozen=True, slots=True)
class EccCorrectedSettings:
    """Corrected errors since the driver was loaded: a healthy board has some."""

    most: int = 50_000_000


def judge_ecc_uncorrected(facts: Facts, settings: EccUncorrectedSettings, case: Case) -> Verdict:
    """Hold the volatile uncorrected ECC errors against the limit."""
    return _at_most(facts, case, "ecc_uncorrected_volatile", settings.most, "uncorrected ECC errors")


def judge_ecc_corrected(facts: Facts, settings: EccCorrectedSettings, case: Case) -> Verdict:
    """Hold the volatile corrected ECC errors against the limit."""
    return _at_most(facts, case, "ecc_corrected_volatile", settings.most, "corrected ECC errors")


def _at_most(facts: Facts, case: Case, name: str, most: int, words: str) -> Verdict:
    def look(gpu: Gpu) -> Flaw | None:
        if gpu.values.get("ecc_mode") == 0:
            return Flaw("ECC is switched off", gpu.seen("ecc_mode", 0, 1), Outcome.WARN)
        count = gpu.get(name)
        return Flaw(f"{count} {words}, {most} may be", gpu.seen(name, count, most)) if count > most else None

    return each_gpu(facts, case, look, f"{{}} GPUs have at most {most} {words}", optional=True, perf=name)


@dataclass(frozen=True, slots=True)
class RetiredSettings:
    """Pages taken out of use, on boards before row remapping."""

    most: int = 10


def judge_retired_pages(facts: Facts, settings: RetiredSettings, case: Case) -> Verdict:
    """Say whether too many pages are retired, or some wait for a reboot."""

    def look(gpu: Gpu) -> Flaw | None:
        pages = gpu.get("retired_pages_sbe") + gpu.get("retired_pages_dbe")
        if pages > settings.most:
            return Flaw(
                f"{pages} pages retired, above {settings.most}", gpu.seen("retired_pages", pages, settings.most)
            )
        if gpu.get("retired_pages_pending"):
            return Flaw("pages wait to be retired: needs a reset", gpu.seen("retired_pages_pending", True, False))
        return None

    return each_gpu(facts, case, look, "{} GPUs have no page retirement to worry about", optional=True)


def judge_row_remap_failed(facts: Facts, _settings: NoSettings, case: Case) -> Verdict:
    """Say whether a row could not be remapped: the board is to be replaced."""
    return _remap(facts, case, "failed", "a row could not be remapped: replace the board")


def judge_row_remap_pending(facts: Facts, _settings: NoSettings, case: Case) -> Verdict:
    """Say whether a remapping waits for a reset of the GPU."""
    return _remap(facts, case, "pending", "a row remapping waits for a reset")


def _remap(facts: Facts, case: Case, what: str, words: str) -> Verdict:
    def look(gpu: Gpu) -> Flaw | None:
        return Flaw(words, gpu.seen(f"remap_{what}", True, False)) if gpu.get("remapped_rows")[what] else None

    return each_gpu(facts, case, look, f"no row remapping of {{}} GPUs is {what}", optional=True)


@dataclass(frozen=True, slots=True)
class RowRemapSettings:
    """Rows remapped over the board's life."""

    most_uncorrectable: int = 8


def judge_row_remap(facts: Facts, settings: RowRemapSettings, case: Case) -> Verdict:
    """Hold the rows that were remapped for uncorrectable errors against the limit."""

    def look(gpu: Gpu) -> Flaw | None:
        rows, most = gpu.get("remapped_rows")["uncorrectable"], settings.most_uncorrectable
        if rows <= most:
            return None
        words = f"{rows} rows remapped for uncorrectable errors, above {most}"
        return Flaw(words, gpu.seen("remapped_rows_uncorrectable", rows, most), Outcome.WARN)

    return each_gpu(facts, case, look, "few rows of {} GPUs are remapped", optional=True)


@dataclass(frozen=True, slots=True)
class VbiosSettings:
    """The VBIOS versions that GPUs may have; without any, GPUs of one model must have the same."""

    versions: tuple[str, ...] = ()


def judge_vbios(facts: Facts, settings: VbiosSettings, _case: Case) -> Verdict:
    """Compare VBIOS versions with those of the policy, or among GPUs of a model."""
    models: dict[str, dict[str, list[Gpu]]] = {}
    for gpu in all_gpus(facts):
        try:
            models.setdefault(gpu.get("model"), {}).setdefault(gpu.get("vbios"), []).append(gpu)
        except Missing as err:
            return unknown(f"GPU {gpu.index}: {err}")
    if not models:
        return unknown("there is no GPU to look at")
    flaws: list[tuple[Gpu, str, str]] = []
    for versions in models.values():
        usual = max(versions, key=lambda version: len(versions[version]))
        allowed = settings.versions or (usual,)
        for version, gpus in versions.items():
            if version not in allowed:
                flaws += [(gpu, version, ", ".join(allowed)) for gpu in gpus]
    if flaws:
        words = "; ".join(f"GPU {gpu.index} has VBIOS {version}, not {wanted}" for gpu, version, wanted in flaws[:4])
        return bad(words, *(gpu.seen("vbios", version, wanted) for gpu, version, wanted in flaws))
    return ok("VBIOS " + ", ".join(version for versions in models.values() for version in versions))


@dataclass(frozen=True, slots=True)
class PcieSettings:
    """The width and generation that the slots should have; the board's own largest where not said."""

    width: int | None = None
    generation: int | None = None
    busy_percent: int = 50  # a GPU saves power at rest: its generation counts above this utilisation only


def judge_pcie(facts: Facts, settings: PcieSettings, case: Case) -> Verdict:
    """Compare the width of each GPU's slot always, and its generation under load, with what they should be."""

    def look(gpu: Gpu) -> Flaw | None:
        width, wanted = gpu.get("pcie_width"), settings.width or gpu.get("pcie_width_max")
        if width < wanted:
            return Flaw(f"PCIe width {width}, not {wanted}", gpu.seen("pcie_width", width, wanted))
        if gpu.values.get("util_percent", 0) < settings.busy_percent:
            return None
        generation, best = gpu.get("pcie_gen"), settings.generation or gpu.get("pcie_gen_max")
        if generation < best:
            return Flaw(f"PCIe generation {generation} under load, not {best}", gpu.seen("pcie_gen", generation, best))
        return None

    return each_gpu(facts, case, look, "{} GPUs have their full PCIe width")


@dataclass(frozen=True, slots=True)
class NvlinkSettings:
    """How many links a GPU should have up (all it has, where not said), and the errors that each may have counted."""

    links_up: int | None = None
    most_crc_data: int = 0
    most_crc_flit: int = 0
    most_replay: int = 0
    most_recovery: int = 0


def judge_nvlink(facts: Facts, _settings: NvlinkSettings, case: Case) -> Verdict:
    """Say whether links are down."""

    def look(gpu: Gpu) -> Flaw | None:
        links = gpu.get("nvlinks")
        down = [link["link"] for link in links if not link["up"]]
        up, wanted = len(links) - len(down), _settings.links_up
        if wanted is not None and up >= wanted:
            return None
        if wanted is None and not down:
            return None
        of = len(links) if wanted is None else wanted
        names = f": {', '.join(map(str, down))} down" if down else ""
        return Flaw(f"{up} of {of} NVLinks are up{names}", gpu.seen("nvlink_links_up", up, of))

    return each_gpu(facts, case, look, "the NVLinks of {} GPUs are up", optional=True)


def judge_nvlink_errors(facts: Facts, settings: NvlinkSettings, case: Case) -> Verdict:
    """Say whether a link has counted more errors than it may."""
    most = {name: getattr(settings, f"most_{name}") for name in ("crc_data", "crc_flit", "replay", "recovery")}

    def look(gpu: Gpu) -> Flaw | None:
        for link in gpu.get("nvlinks"):
            for name, count in link["errors"].items():
                if count > most[name]:
                    words = f"NVLink {link['link']} has counted {count} {name} errors, {most[name]} may be"
                    return Flaw(words, gpu.seen(f"nvlink_{name}", count, most[name]))
        return None

    return each_gpu(facts, case, look, "the NVLinks of {} GPUs are without errors", optional=True)


FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}


def judge_fabric(facts: Facts, _settings: NoSettings, case: Case) -> Verdict:
    """Say whether the fabric manager has registered each GPU, without which NVLink through switches does not work."""

    def look(gpu: Gpu) -> Flaw | None:
        fabric = gpu.get("fabric")
        state = FABRIC_STATES.get(fabric["state"], str(fabric["state"]))
        if fabric["state"] == 0:
            raise Missing("fabric", UNSUPPORTED)
        if fabric["state"] != 3:
            return Flaw(f"fabric registration {state}", gpu.seen("fabric_state", state, "completed"))
        if fabric["status"] != 0:
            words = f"fabric registration ended with status {fabric['status']}"
            return Flaw(words, gpu.seen("fabric_status", fabric["status"], 0))
        if fabric.get("health", 0) & 3 == 1:
            return Flaw("the fabric has degraded bandwidth", gpu.seen("fabric_health", "degraded bandwidth"))
        return None

    return each_gpu(facts, case, look, "{} GPUs are registered with the fabric, or need none", optional=True)


def judge_persistence(facts: Facts, _settings: NoSettings, case: Case) -> Verdict:
    """Say whether persistence mode is on: without it each job waits for the driver, and counters are lost."""

    def look(gpu: Gpu) -> Flaw | None:
        return None if gpu.get("persistence") else Flaw("off", gpu.seen("persistence", False, True), Outcome.WARN)

    return each_gpu(facts, case, look, "persistence mode of {} GPUs is on")


RECOVERY = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain the peers",
    4: "drain, then reset the GPU",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}


def judge_recovery_action(facts: Facts, _settings: NoSettings, case: Case) -> Verdict:
    """Say whether the driver itself asks for a recovery."""

    def look(gpu: Gpu) -> Flaw | None:
        action = gpu.get("recovery_action")
        if action == 0:
            return None
        words = RECOVERY.get(action, f"recovery action {action}")
        return Flaw(f"the driver asks: {words}", gpu.seen("recovery_action", action, 0))

    return each_gpu(facts, case, look, "the driver asks nothing of {} GPUs", optional=True)


CLOCK_EVENTS = {0x08: "hardware slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake"}


def judge_clock_events(facts: Facts, _settings: NoSettings, case: Case) -> Verdict:
    """Say whether the hardware itself slows a GPU down now: heat, or a power brake. A power cap is none."""

    def look(gpu: Gpu) -> Flaw | None:
        reasons = gpu.get("clock_event_reasons")
        found = [words for bit, words in CLOCK_EVENTS.items() if reasons & bit]
        if not found:
            return None
        return Flaw(", ".join(found), gpu.seen("clock_event_reasons", f"{reasons:#x}", "0x0"))

    return each_gpu(facts, case, look, "nothing slows {} GPUs down in hardware")


@dataclass(frozen=True, slots=True)
class MigSettings:
    """Whether GPUs should be divided, and into how many devices."""

    enabled: bool = False
    devices: int | None = None


def judge_mig(facts: Facts, settings: MigSettings, case: Case) -> Verdict:
    """Compare the MIG mode of each GPU with what it should be."""

    def look(gpu: Gpu) -> Flaw | None:
        try:
            mig = gpu.get("mig")
        except Missing as err:
            if err.why == UNSUPPORTED and not settings.enabled:
                return None
            raise
        if mig["enabled"] != settings.enabled:
            words = f"MIG is {'on' if mig['enabled'] else 'off'}"
            return Flaw(words, gpu.seen("mig_mode", mig["enabled"], settings.enabled))
        if mig["pending"] != mig["enabled"]:
            return Flaw("a change of MIG mode waits for a reset", gpu.seen("mig_pending", mig["pending"]), Outcome.WARN)
        count = len(mig["uuids"])
        if settings.devices is not None and count != settings.devices:
            return Flaw(
                f"{count} MIG devices, not {settings.devices}", gpu.seen("mig_devices", count, settings.devices)
            )
        return None

    return each_gpu(facts, case, look, "MIG of {} GPUs is as it should be")


def _check(name: str, about: str, judge: Any, settings: type = NoSettings, **options: Any) -> Check:
    return Check(name, about, GPUS, judge, settings, **{"hardware": True, **options})


CHECKS = (
    _check(
        "gpu_count",
        "The driver lists as many GPUs as there should be.",
        judge_count,
        CountSettings,
        needs_settings=True,
    ),
    _check("gpu_reachable", "Each GPU answers; around a job all of the job's are there.", judge_reachable),
    _check(
        "gpu_uuids", "The GPUs are those of this node.", judge_uuids, UuidSettings, hardware=False, needs_settings=True
    ),
    _check("gpu_clocks", "Clocks for programs are not set too low.", judge_clocks, ClockSettings, hardware=False),
    _check("gpu_temperature", "No GPU is too hot.", judge_temperature, TemperatureSettings),
    _check(
        "gpu_memory_used",
        "No memory is in use where nobody should have any.",
        judge_memory_used,
        MemoryUsedSettings,
        hardware=False,
    ),
    _check(
        "gpu_ecc_uncorrected",
        "No uncorrected ECC errors since the driver was loaded.",
        judge_ecc_uncorrected,
        EccUncorrectedSettings,
    ),
    _check(
        "gpu_ecc_corrected",
        "Not too many corrected ECC errors.",
        judge_ecc_corrected,
        EccCorrectedSettings,
        hardware=False,
    ),
    _check("gpu_retired_pages", "Few pages are retired, and none waits.", judge_retired_pages, RetiredSettings),
    _check("gpu_row_remap", "Few rows were remapped for uncorrectable errors.", judge_row_remap, RowRemapSettings),
    _check("gpu_row_remap_pending", "No row remapping waits for a reset.", judge_row_remap_pending),
    _check("gpu_row_remap_failed", "No row remapping has failed.", judge_row_remap_failed),
    _check("gpu_vbios", "VBIOS versions are as they should be.", judge_vbios, VbiosSettings, hardware=False),
    _check("gpu_pcie", "Each GPU has its PCIe width, and its generation under load.", judge_pcie, PcieSettings),
    _check("gpu_nvlink", "All NVLinks are up.", judge_nvlink, NvlinkSettings),
    _check("gpu_nvlink_errors", "NVLinks have not counted errors.", judge_nvlink_errors, NvlinkSettings),
    _check("gpu_fabric", "Each GPU is registered with the NVLink fabric, where there is one.", judge_fabric),
    _check("gpu_persistence", "Persistence mode is on.", judge_persistence, hardware=False),
    _check("gpu_recovery_action", "The driver asks for no reset or reboot.", judge_recovery_action),
    _check("gpu_clock_events", "The hardware slows no GPU down.", judge_clock_events),
    _check("gpu_mig", "GPUs are divided as they should be.", judge_mig, MigSettings, hardware=False),
)
