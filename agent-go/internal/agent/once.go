package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/tinylib/msgp/msgp"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// onceProfile is the time between the two samples of the performance monitor.
const onceProfile = 200 * time.Millisecond

// Once takes one reading of everything but the kernel log and writes it as JSON, without a bus.
func Once(ctx context.Context, c *config.Config, lib nvml.Library, version string, w io.Writer, log *slog.Logger) error {
	c.StateDir = "" // nothing is remembered
	c.Window, c.Interval = config.Duration{Duration: time.Second}, config.Duration{Duration: time.Second}
	parts := newParts(c, lib, log)
	defer func() { _ = parts.gpu.Release(letGoTime) }()
	stamp := newStamper(c.Cluster, c.Node, c.BootID)
	got := map[string]json.RawMessage{}
	emit := func(m heelerv1.Message) error {
		if err := stamp.stamp(m); err != nil {
			return err
		}
		text, err := ToJSON(m)
		got[m.Type()] = text
		return err
	}
	entries := parts.table(c)
	status := map[string]heelerv1.CollectorStatus{}
	for i := range entries {
		if e := &entries[i]; e.Collector != nil {
			status[e.Name] = collectOnce(ctx, e, emit)
		}
	}
	report := &heelerv1.AgentStatus{Version: version, Collectors: status, Inventory: parts.inv.currentDigest()}
	if err := emit(report); err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(got)
}

// collectOnce reads the GPUs twice, since rates and averages need two readings; the second is the one that is shown.
func collectOnce(ctx context.Context, e *collector.Entry, emit collector.Emit) heelerv1.CollectorStatus {
	if e.Off {
		return heelerv1.CollectorStatus{State: heelerv1.CollectorOff}
	}
	// Whole seconds are the ends of one-second windows.
	end := time.Now().Truncate(time.Second)
	start := time.Now()
	err := e.Collector.Collect(ctx, end, emit)
	if e.Align && err == nil {
		time.Sleep(onceProfile)
		start = time.Now()
		err = e.Collector.Collect(ctx, end.Add(time.Second), emit)
	}
	state, why := collector.Judge(err)
	return heelerv1.CollectorStatus{
		State: state, Why: why, DurationNS: heelerv1.Some(uint64(time.Since(start))),
	}
}

// ToJSON writes a message as JSON.
func ToJSON(m heelerv1.Message) ([]byte, error) {
	data, err := heelerv1.Encode(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := msgp.UnmarshalAsJSON(&b, data); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
