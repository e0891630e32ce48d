package nvmlevents

import (
	"errors"
	"strconv"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/flood"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/witness"
	"heeler.dev/schemas/go/heelerv1"
)

// names are those of the events that are no XIDs.
var names = map[nvml.EventKind]string{
	nvml.EventSingleBitECC: "single_bit_ecc", nvml.EventDoubleBitECC: "double_bit_ecc",
	nvml.EventMIGConfig: "mig_config", nvml.EventSingleBitECCStorm: "sbe_storm",
	nvml.EventDRAMRetirement: "dram_retirement", nvml.EventDRAMRetirementFailure: "dram_retirement_failed",
	nvml.EventPoison: "poison", nvml.EventFatalPoison: "fatal_poison", nvml.EventUnavailable: "unavailable",
	nvml.EventRecoveryAction: "recovery_action",
}

// ofNVML is where the numbers begin of events that only NVML saw; those of the kernel log never get there.
const ofNVML = 1 << 62

// message makes the event. Its number derives from when it was heard, since NVML numbers nothing.
func (s *Source) message(e *nvml.Event, got *session, now time.Time) *heelerv1.KernelEvent {
	m := &heelerv1.KernelEvent{
		PCI: e.Tag, UUID: got.uuids[e.Tag], GI: e.GI, CI: e.CI, Witness: []string{"nvml"}, Trusted: heelerv1.Some(true),
		Count: heelerv1.Some(uint64(1)), ApproximateTS: heelerv1.Some(false),
	}
	m.TS = now.UnixNano()
	since, err := hostfs.Monotonic()
	if err != nil {
		since = time.Duration(now.UnixNano())
	}
	micros := uint64(since.Microseconds())
	s.seq = max(s.seq+1, ofNVML+micros)
	m.Seq, m.TSMonoUS = s.seq, heelerv1.Some(micros)
	if e.Kind == nvml.EventXid {
		m.Kind, m.Code = heelerv1.KindXid, heelerv1.Some(e.Value)
		return m
	}
	m.Kind, m.Detail = heelerv1.KindGpuEvent, map[string]any{"value": e.Value}
	if name, ok := names[e.Kind]; ok {
		m.Detail["event"] = name
	} else {
		m.Detail["event"], m.Detail["type"] = "unknown", uint64(e.Kind)
	}
	return m
}

// take hands an XID to the book, and keeps other events to be told at once.
func (s *Source) take(e *nvml.Event, got *session, now time.Time) {
	s.counts.heard.Add(1)
	m := s.message(e, got, now)
	if m.Kind == heelerv1.KindXid && m.PCI != "" {
		s.Book.Event(witness.Fault{PCI: m.PCI, Code: *m.Code}, now, m)
		return
	}
	s.queue(m, now)
}

// queue keeps an event to be told, unless it is part of a flood.
func (s *Source) queue(m *heelerv1.KernelEvent, now time.Time) {
	thing := &flood.Thing[*heelerv1.KernelEvent, struct{}]{
		Wider: string(m.Kind), Group: string(m.Kind) + "\x00" + m.PCI, Text: textOf(m), Value: m, Count: 1,
	}
	if !s.gate.Admit(thing, now) {
		s.counts.summed.Add(1)
		return
	}
	s.keep(m)
}

func textOf(m *heelerv1.KernelEvent) string {
	if m.Code != nil {
		return strconv.FormatUint(*m.Code, 10)
	}
	name, _ := m.Detail["event"].(string)
	return name
}

func (s *Source) keep(m *heelerv1.KernelEvent) {
	if len(s.unsent) >= mostUnsent {
		s.unsent = s.unsent[1:]
		s.counts.unsent.Add(1)
	}
	s.unsent = append(s.unsent, m)
}

// due tells what has waited long enough. What cannot be kept now is told later.
func (s *Source) due(now time.Time, emit collector.Emit) error {
	for _, m := range s.Book.Due(now) {
		s.counts.alone.Add(1)
		s.queue(m, now)
	}
	for _, sum := range s.gate.Due(now) {
		s.keep(summary(sum))
	}
	return s.send(emit)
}

// flush tells what is left, but for XIDs whose line may still come: the log is read on from where it was left, and the
// book lives on over a reload and a release.
func (s *Source) flush(emit collector.Emit) error {
	err := s.due(time.Now(), emit)
	for _, sum := range s.gate.Flush() {
		s.keep(summary(sum))
	}
	return errors.Join(err, s.send(emit))
}

func summary(sum flood.Summary[*heelerv1.KernelEvent, struct{}]) *heelerv1.KernelEvent {
	m := *sum.Last
	m.Count = heelerv1.Some(sum.Count)
	if sum.Mixture != flood.Equal {
		m.Kind, m.Code, m.Detail = heelerv1.KindFlood, nil, map[string]any{"of": string(sum.Last.Kind)}
	}
	if sum.Mixture == flood.Anything {
		m.PCI, m.UUID = "", ""
	}
	return &m
}

func (s *Source) send(emit collector.Emit) error {
	for len(s.unsent) > 0 {
		if err := emit(s.unsent[0]); err != nil {
			return err
		}
		s.unsent = s.unsent[1:]
	}
	return nil
}

// Counts implements [collector.Counter].
func (s *Source) Counts() map[string]uint64 {
	together, late := s.Book.Counts()
	return map[string]uint64{
		"heard": s.counts.heard.Load(), "alone": s.counts.alone.Load(), "summed": s.counts.summed.Load(),
		"unsent": s.counts.unsent.Load(), "rebuilt": s.counts.rebuilt.Load(), "gpus": s.counts.watched.Load(),
		"together": together, "late": late,
	}
}
