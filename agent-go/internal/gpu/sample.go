package gpu

import (
	"slices"
	"time"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// row is one GPU or MIG device at the end of a window, ready to be put into columns.
type row struct {
	identity  heelerv1.Gpu
	state     heelerv1.GpuState
	window    *window
	powerKind string
	parent    string             // for a MIG device
	device    heelerv1.MIGDevice // the same
}

// rowsOf are a GPU and its MIG devices, which are lost or hang as it does.
func rowsOf(g *gpu, state heelerv1.GpuState) []row {
	rows := []row{{identity: g.identity, state: state, window: g.window, powerKind: g.powerKind}}
	for _, p := range g.parts {
		rows = append(rows, row{
			identity: heelerv1.Gpu{UUID: p.identity.UUID, Model: g.identity.Model}, state: state, window: p.window,
			parent: g.identity.UUID, device: p.identity,
		})
	}
	return rows
}

// jobOf says which job a process belongs to.
type jobOf func(pid uint64) (string, bool)

// build makes the sample of one window.
func build(rows []row, end time.Time, length time.Duration, reads uint64, job jobOf) *heelerv1.GpuSample {
	s := &heelerv1.GpuSample{
		WindowNS: uint64(length), Reads: reads, Absent: map[string]string{},
		Mean: map[string]heelerv1.Column{}, Min: map[string]heelerv1.Column{},
		Max: map[string]heelerv1.Column{}, Last: map[string]heelerv1.Column{},
	}
	s.TS = end.UnixNano()
	for i := range rows {
		addIdentity(&s.GPU, &rows[i])
		s.State = append(s.State, heelerv1.Some(rows[i].state))
		addProcesses(s, i, rows[i].window.procs, job)
		addLinks(s, i, rows[i].window.links)
	}
	dropEmpty(&s.GPU)
	for c := range allColumns {
		if c < meanColumns {
			addColumn(s.Mean, s.Absent, rows, c, (*window).mean)
		} else {
			addColumn(s.Last, s.Absent, rows, c, (*window).final)
		}
	}
	for _, c := range spread {
		addColumn(s.Min, nil, rows, c, (*window).lowest)
		addColumn(s.Max, nil, rows, c, (*window).highest)
	}
	return s
}

func addIdentity(columns *heelerv1.GpuColumns, r *row) {
	g := &r.identity
	columns.UUID = append(columns.UUID, g.UUID)
	columns.Index = append(columns.Index, signed(g.Index))
	columns.Minor = append(columns.Minor, signed(g.Minor))
	columns.PCI = append(columns.PCI, text(g.PCI))
	columns.Model = append(columns.Model, text(g.Model))
	columns.Parent = append(columns.Parent, text(r.parent))
	columns.GI = append(columns.GI, signed(r.device.GI))
	columns.CI = append(columns.CI, signed(r.device.CI))
	columns.Profile = append(columns.Profile, text(r.device.Profile))
	columns.PowerKind = append(columns.PowerKind, text(r.powerKind))
}

// dropEmpty leaves out what no row has: most nodes have no MIG devices.
func dropEmpty(columns *heelerv1.GpuColumns) {
	empty := func(texts []*string) bool {
		return !slices.ContainsFunc(texts, func(s *string) bool { return s != nil })
	}
	if empty(columns.Parent) {
		columns.Parent, columns.GI, columns.CI, columns.Profile = nil, nil, nil, nil
	}
	if empty(columns.PowerKind) {
		columns.PowerKind = nil
	}
}

func addLinks(s *heelerv1.GpuSample, position int, links []linkState) {
	for _, l := range links {
		s.NVLinks = append(s.NVLinks, heelerv1.NVLinkRow{
			GPU: position, Link: uint64(l.link), Up: l.up, Counters: l.counters,
		})
	}
}

func signed(v *uint64) *int64 {
	if v == nil {
		return nil
	}
	return heelerv1.Some(int64(*v))
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func addProcesses(s *heelerv1.GpuSample, position int, procs []nvml.Process, job jobOf) {
	for _, p := range procs {
		entry := heelerv1.Proc{GPU: position, PID: p.PID, MemoryBytes: p.MemoryBytes}
		if id, ok := job(p.PID); ok {
			entry.JobID = &id
		}
		s.Procs = append(s.Procs, entry)
	}
}

// addColumn adds a column if any row has a value in it. Otherwise, and for GPUs that answer but lack it, the reason
// goes to absent. That a GPU is lost or hangs stands in its state and not in each column, and that a MIG device has
// less to tell than a GPU is no reason at all.
func addColumn(
	to map[string]heelerv1.Column, absent map[string]string, rows []row, c column, value func(*window, column) heelerv1.Value,
) {
	values := make(heelerv1.Column, len(rows))
	known, reason := false, ""
	for i := range rows {
		r := &rows[i]
		values[i] = value(r.window, c)
		why := r.window.why(c)
		switch {
		case values[i].Known():
			known = true
		case r.parent != "" && (why == nvml.Unread || why.Lacking()):
		case r.state == heelerv1.GpuOK || r.state == heelerv1.GpuUnknown:
			reason = why.String()
		case reason == "":
			reason = string(r.state)
		}
	}
	if known {
		to[names[c]] = values
	}
	ofState := reason == string(heelerv1.GpuLost) || reason == string(heelerv1.GpuHung)
	if absent != nil && reason != "" && (!known || !ofState) {
		absent[names[c]] = reason
	}
}
