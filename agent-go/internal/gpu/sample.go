package gpu

import (
	"time"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// row is one GPU at the end of a window, ready to be put into columns.
type row struct {
	identity heelerv1.Gpu
	state    heelerv1.GpuState
	window   *window
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
		addIdentity(&s.GPU, &rows[i].identity)
		s.State = append(s.State, heelerv1.Some(rows[i].state))
		addProcesses(s, i, rows[i].window.procs, job)
	}
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

func addIdentity(columns *heelerv1.GpuColumns, g *heelerv1.Gpu) {
	columns.UUID = append(columns.UUID, g.UUID)
	columns.Index = append(columns.Index, signed(g.Index))
	columns.Minor = append(columns.Minor, signed(g.Minor))
	columns.PCI = append(columns.PCI, text(g.PCI))
	columns.Model = append(columns.Model, text(g.Model))
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

// addColumn adds a column if any GPU has a value in it. Otherwise, and for GPUs that answer but lack it, the reason
// goes to absent. That a GPU is lost or hangs stands in its state and not in each column.
func addColumn(
	to map[string]heelerv1.Column, absent map[string]string, rows []row, c column, value func(*window, column) heelerv1.Value,
) {
	values := make(heelerv1.Column, len(rows))
	known, reason := false, ""
	for i := range rows {
		values[i] = value(rows[i].window, c)
		switch {
		case values[i].Known():
			known = true
		case rows[i].state == heelerv1.GpuOK || rows[i].state == heelerv1.GpuUnknown:
			reason = rows[i].window.why(c).String()
		case reason == "":
			reason = string(rows[i].state)
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
