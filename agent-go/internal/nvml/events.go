package nvml

import "time"

// EventKind is a kind of event, by NVML's own bits.
type EventKind uint64

// The kinds that the agent asks for.
const (
	EventSingleBitECC          EventKind = 0x1
	EventDoubleBitECC          EventKind = 0x2
	EventXid                   EventKind = 0x8
	EventMIGConfig             EventKind = 0x100
	EventSingleBitECCStorm     EventKind = 0x200
	EventDRAMRetirement        EventKind = 0x400
	EventDRAMRetirementFailure EventKind = 0x800
	EventPoison                EventKind = 0x1000
	EventFatalPoison           EventKind = 0x2000
	EventUnavailable           EventKind = 0x4000
	EventRecoveryAction        EventKind = 0x8000
)

// EventKinds are all of them.
const EventKinds = EventSingleBitECC | EventDoubleBitECC | EventXid | EventMIGConfig | EventSingleBitECCStorm |
	EventDRAMRetirement | EventDRAMRetirementFailure | EventPoison | EventFatalPoison | EventUnavailable | EventRecoveryAction

// oldEventKinds are those that the first drivers with events know.
const oldEventKinds = EventSingleBitECC | EventDoubleBitECC | EventXid

// noInstance stands for no MIG instance.
const noInstance = 0xFFFFFFFF

// Event is one event of a GPU. GI and CI are nil outside of MIG.
type Event struct {
	Tag    string // of the GPU, as it was registered
	Kind   EventKind
	Value  uint64 // the XID, or what else there is to say
	GI, CI *uint64
}

// EventSet hears of events. Any call may hang for ever.
type EventSet interface {
	// Register asks for the events of a GPU, as far as it has them. What is heard of it bears the tag. It returns what
	// was asked for.
	Register(d Device, kinds EventKind, tag string) (EventKind, Status)
	// Wait returns the next event, or Timeout.
	Wait(long time.Duration) (Event, Status)
	Close()
}

// EventLibrary is a library that has events.
type EventLibrary interface {
	EventSet() (EventSet, Status)
}
