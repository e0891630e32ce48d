package gpu

import (
	"cmp"
	"slices"

	"heeler.dev/agent-go/internal/nvml"
)

// mostProcesses is how many processes of one GPU a sample lists. The others are counted.
const mostProcesses = 256

// processList gathers the processes of one GPU or MIG device.
type processList struct {
	known    bool
	all      []nvml.Process
	rejected uint64 // what can be no process, or no memory of one
	dropped  uint64 // beyond what a sample lists
}

// add takes a list. A process that shares its context through MPS stands in two of them.
func (l *processList) add(procs []nvml.Process, s nvml.Status) {
	if s != nvml.OK {
		return
	}
	l.known = true
	l.all = append(l.all, procs...)
}

// clean leaves one entry for each process that can be one: a driver whose idea of an entry's size is not ours gives
// absurd ids and sizes.
func (l *processList) clean(pidMax, memory uint64) {
	slices.SortStableFunc(l.all, func(a, b nvml.Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(used(b), used(a)))
	})
	kept := l.all[:0]
	for _, p := range l.all {
		switch {
		case p.PID == 0 || p.PID > pidMax:
			l.rejected++
			continue
		case len(kept) > 0 && kept[len(kept)-1].PID == p.PID:
			continue
		case memory > 0 && used(p) > memory:
			l.rejected++
			p.MemoryBytes = nil
		}
		kept = append(kept, p)
	}
	l.all = kept
	if len(l.all) > mostProcesses { // those that hold most
		slices.SortStableFunc(l.all, func(a, b nvml.Process) int { return cmp.Compare(used(b), used(a)) })
		l.dropped = uint64(len(l.all) - mostProcesses)
		l.all = l.all[:mostProcesses]
		slices.SortFunc(l.all, func(a, b nvml.Process) int { return cmp.Compare(a.PID, b.PID) })
	}
}

func used(p nvml.Process) uint64 {
	if p.MemoryBytes == nil {
		return 0
	}
	return *p.MemoryBytes
}

// readProcesses lists who runs on the GPU. What runs in its MIG devices belongs to them, wherever it was listed.
func (m *meter) readProcesses(r *reading) {
	m.enter("processes")
	r.procs.add(m.dev.Processes())
	if m.mps.over() {
		procs, s := m.dev.MPSProcesses()
		m.mps.heard(s.Lacking())
		r.procs.add(procs, s)
	}
	for i := range r.parts {
		p := &r.parts[i]
		r.procs.give(&p.procs, p.device.GI, p.device.CI)
	}
	r.procs.clean(m.pidMax, total(&r.values))
	for i := range r.parts {
		p := &r.parts[i]
		p.procs.clean(m.pidMax, total(&p.values))
	}
}

// total is the memory there is, or 0.
func total(v *values) uint64 {
	bytes, _ := v[fbTotalBytes].value.Uint()
	return bytes
}

// give moves the processes of a MIG instance to its own list.
func (l *processList) give(to *processList, gi, ci *uint64) {
	if gi == nil {
		return
	}
	kept := l.all[:0]
	for _, p := range l.all {
		if p.GI == nil || *p.GI != *gi || ci != nil && p.CI != nil && *p.CI != *ci {
			kept = append(kept, p)
			continue
		}
		to.known = true
		to.all = append(to.all, p)
	}
	l.all = kept
}
