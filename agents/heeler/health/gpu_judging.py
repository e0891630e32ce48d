"""What judges of GPUs have in common: which GPUs a run is about, and one verdict out of what each GPU gave."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heeler.health.gpu_map import job_gpus
from heeler.health.gpu_read import UNSUPPORTED, is_divided, uuids_by_minor
from heeler.health.model import Case, Evidence, Outcome, Value, Verdict, bad, ok, unknown, warn

MOST_TOLD = 4  # GPUs in one sentence


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as it was read. `get` raises Missing for a value that is not there."""

    index: int
    values: Mapping[str, Any]
    errors: Mapping[str, str]

    @property
    def uuid(self) -> str | None:
        """Its UUID, where it still tells."""
        uuid = self.values.get("uuid")
        return uuid if isinstance(uuid, str) else None

    def get(self, name: str) -> Any:
        """Return a value. Raises Missing."""
        if name not in self.values:
            raise Missing(name, self.errors.get(name, "not read"))
        return self.values[name]

    def seen(self, what: str, value: Value, limit: Value = None, unit: str | None = None) -> Evidence:
        """Return evidence about this GPU."""
        pci = self.values.get("pci")
        return Evidence(what, value, limit, unit, self.uuid, self.index, pci if isinstance(pci, str) else None)


class Missing(Exception):  # noqa: N818 - not an error: a value that is not there, with the reason
    """A value that a GPU does not tell."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something that is not right with a GPU."""

    words: str
    evidence: Evidence
    outcome: Outcome = Outcome.BAD


Look = Callable[[Gpu], Flaw | None]


def all_gpus(facts: Mapping[str, Any]) -> list[Gpu]:
    """Return the GPUs that were looked for."""
    return [Gpu(gpu["index"], gpu["values"], gpu["errors"]) for gpu in facts["gpus"]]


def chosen_gpus(facts: Mapping[str, Any], case: Case) -> list[Gpu]:
    """Return the GPUs that a run is about: the job's where they can be told, else all."""
    gpus = all_gpus(facts)
    if case.job is None:
        return gpus
    uuids = job_gpus(case.job, uuids_by_minor(facts), divided=is_divided(facts))
    if uuids is None:
        return gpus
    minors = set(case.job.gpu_minors or ())
    return [gpu for gpu in gpus if gpu.uuid in uuids or _holds(gpu, uuids) or gpu.values.get("minor") in minors]


def _holds(gpu: Gpu, uuids: Sequence[str]) -> bool:
    """Say whether one of the UUIDs is a MIG device of this GPU."""
    return not set((gpu.values.get("mig") or {}).get("uuids", ())).isdisjoint(uuids)


def each_gpu(
    facts: Mapping[str, Any], case: Case, look: Look, fine: str, *, optional: bool = False, perf: str | None = None
) -> Verdict:
    """Look at each GPU that the run is about and return one verdict: the worst, naming the GPUs.

    `fine`: what to say of N GPUs that are well, such as "{} GPUs are cool". `optional`: a GPU that does not have the
    thing at all is well. `perf`: the value whose largest goes into the numbers.
    """
    gpus = chosen_gpus(facts, case)
    if not gpus:
        return ok("this job has no GPUs here") if case.job is not None else unknown("there is no GPU to look at")
    flaws: list[tuple[Gpu, Flaw]] = []
    unread: list[tuple[Gpu, Missing]] = []
    for gpu in gpus:
        try:
            flaw = look(gpu)
        except Missing as err:
            if not (optional and err.why == UNSUPPORTED):
                unread.append((gpu, err))
            continue
        if flaw is not None:
            flaws.append((gpu, flaw))
    numbers = {f"{perf}_max": float(top)} if perf and (top := _largest(gpus, perf)) is not None else {}
    for outcome, say in ((Outcome.BAD, bad), (Outcome.UNKNOWN, unknown), (Outcome.WARN, warn)):
        found = [(gpu, flaw) for gpu, flaw in flaws if flaw.outcome is outcome]
        if found:
            words = _told([f"GPU {gpu.index}: {flaw.words}" for gpu, flaw in found])
            return say(words, *(flaw.evidence for _, flaw in found), **numbers)
        if outcome is Outcome.UNKNOWN and unread:
            words = _told([f"GPU {gpu.index}: {err}" for gpu, err in unread])
            return unknown(words, *(gpu.seen(err.name, None) for gpu, err in unread), **numbers)
    return ok(fine.format(len(gpus)), **numbers)


def _largest(gpus: Sequence[Gpu], name: str) -> float | None:
    return max((gpu.values[name] for gpu in gpus if isinstance(gpu.values.get(name), int | float)), default=None)


def _told(words: Sequence[str]) -> str:
    more = f" and {len(words) - MOST_TOLD} more" if len(words) > MOST_TOLD else ""
    return "; ".join(words[:MOST_TOLD]) + more


def indices(gpus: Iterator[Gpu] | Sequence[Gpu]) -> str:
    """Return the indices of GPUs in words."""
    return ", ".join(str(gpu.index) for gpu in gpus)
