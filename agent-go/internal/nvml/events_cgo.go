//go:build cgo

package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// eventSet is a set of the library.
type eventSet struct {
	lib       *library
	set       nvml.EventSet
	instances bool // the library tells of MIG instances
	devices   []nvml.Device
	tags      []string
}

// EventSet implements [EventLibrary].
func (l *library) EventSet() (EventSet, Status) {
	has := func(symbol string) bool { return l.api.Extensions().LookupSymbol(symbol) == nil }
	for _, symbol := range []string{
		"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes",
	} {
		if !has(symbol) {
			return nil, FunctionNotFound
		}
	}
	instances := has("nvmlEventSetWait_v2")
	if !instances && !has("nvmlEventSetWait") {
		return nil, FunctionNotFound
	}
	set, ret := l.api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, Status(ret)
	}
	return &eventSet{lib: l, set: set, instances: instances}, OK
}

// Register implements [EventSet]. A driver that refuses a newer kind refuses them all, so the old ones are tried alone.
func (s *eventSet) Register(d Device, kinds EventKind, tag string) (EventKind, Status) {
	dev, ok := d.(*device)
	if !ok {
		return 0, InvalidArgument
	}
	supported, ret := dev.d.GetSupportedEventTypes()
	if ret != nvml.SUCCESS {
		return 0, Status(ret)
	}
	status := NotSupported
	for _, asked := range []EventKind{kinds & EventKind(supported), kinds & EventKind(supported) & oldEventKinds} {
		if asked == 0 {
			continue
		}
		if status = Status(dev.d.RegisterEvents(uint64(asked), s.set)); status == OK {
			s.devices, s.tags = append(s.devices, dev.d), append(s.tags, tag)
			return asked, OK
		}
	}
	return 0, status
}

// Wait implements [EventSet].
func (s *eventSet) Wait(long time.Duration) (Event, Status) {
	data, ret := s.set.Wait(uint32(long.Milliseconds()))
	if ret != nvml.SUCCESS {
		return Event{}, Status(ret)
	}
	e := Event{Kind: EventKind(data.EventType), Value: data.EventData}
	for i, d := range s.devices {
		if d == data.Device {
			e.Tag = s.tags[i]
		}
	}
	if s.instances {
		e.GI, e.CI = instance(data.GpuInstanceId), instance(data.ComputeInstanceId)
	}
	return e, OK
}

func instance(id uint32) *uint64 {
	if id == noInstance {
		return nil
	}
	n := uint64(id)
	return &n
}

// Close implements [EventSet].
func (s *eventSet) Close() { _ = s.set.Free() }
