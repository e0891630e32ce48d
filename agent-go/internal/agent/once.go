package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tinylib/msgp/msgp"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

const (
	onceProfile = 200 * time.Millisecond // between the two samples of the performance monitor
	onceSources = 3 * time.Second        // for what stays open to say how it is
	oncePoll    = 10 * time.Millisecond
)

// Once takes one reading of everything and writes it as JSON, without a bus. It remembers nothing, and of the kernel
// log it says only how many lines there are.
func Once(ctx context.Context, c *config.Config, lib nvml.Library, version string, w io.Writer, log *slog.Logger) error {
	c.StateDir = ""
	c.Window, c.Interval = config.Duration{Duration: time.Second}, config.Duration{Duration: time.Second}
	parts := newParts(c, lib, log)
	defer func() { _ = parts.gpu.Release(letGoTime) }()
	o := &once{stamper: newStamper(c.Cluster, c.Node, c.BootID), got: map[string]json.RawMessage{}}
	status := o.readAll(ctx, parts.table(c))
	if status["nvml"].State == heelerv1.CollectorOK {
		state, why := parts.gpu.Profiling()
		status["gpm"] = heelerv1.CollectorStatus{State: state, Why: why}
	}
	report := &heelerv1.AgentStatus{Version: version, Collectors: status, Inventory: parts.inv.currentDigest()}
	if err := o.emit(report); err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(o.got)
}

// once keeps the newest message of each type.
type once struct {
	*stamper
	mu  sync.Mutex
	got map[string]json.RawMessage
}

func (o *once) emit(m heelerv1.Message) error {
	if _, event := m.(*heelerv1.KernelEvent); event {
		return nil
	}
	if err := o.stamp(m); err != nil {
		return err
	}
	text, err := ToJSON(m)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got[m.Type()] = text
	return err
}

// readAll opens the sources, and reads all collectors meanwhile. The GPUs come last: they are read twice, since rates
// and averages need two readings.
func (o *once) readAll(ctx context.Context, entries []collector.Entry) map[string]heelerv1.CollectorStatus {
	ctx, cancel := context.WithTimeout(ctx, onceSources)
	defer cancel()
	status, open := map[string]heelerv1.CollectorStatus{}, map[string]*listening{}
	window := time.Now().Truncate(time.Second) // whole seconds end one-second windows
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Off:
			status[e.Name] = heelerv1.CollectorStatus{State: heelerv1.CollectorOff, Why: "switched off"}
		case e.Source != nil:
			open[e.Name] = listen(ctx, e.Source, o.emit)
		default:
			status[e.Name] = o.read(e, window)
		}
	}
	for _, l := range open {
		l.wait(ctx)
	}
	time.Sleep(onceProfile)
	for i := range entries {
		if e := &entries[i]; e.Align && status[e.Name].State == heelerv1.CollectorOK {
			status[e.Name] = o.read(e, window.Add(time.Second)) // averages are of windows that follow one another
		}
	}
	cancel()
	for name, l := range open {
		status[name] = l.status()
	}
	return status
}

func (o *once) read(e *collector.Entry, tick time.Time) heelerv1.CollectorStatus {
	start := time.Now()
	state, why := collector.Judge(e.Collector.Collect(context.Background(), tick, o.emit))
	return heelerv1.CollectorStatus{
		State: state, Why: why, DurationNS: heelerv1.Some(uint64(time.Since(start))), Counts: countsOf(e.Collector),
	}
}

// listening is a source that is open for a moment.
type listening struct {
	source collector.Source
	beaten atomic.Bool
	ended  chan error
}

func listen(ctx context.Context, source collector.Source, emit collector.Emit) *listening {
	l := &listening{source: source, ended: make(chan error, 1)}
	go func() { l.ended <- source.Run(ctx, func() { l.beaten.Store(true) }, emit) }()
	return l
}

// wait waits until the source has said how it is.
func (l *listening) wait(ctx context.Context) {
	for !l.beaten.Load() && len(l.ended) == 0 && ctx.Err() == nil {
		time.Sleep(oncePoll)
	}
}

func (l *listening) status() heelerv1.CollectorStatus {
	s := heelerv1.CollectorStatus{Counts: countsOf(l.source)}
	select {
	case err := <-l.ended:
		if err != nil {
			s.State, s.Why = collector.Judge(err)
			return s
		}
	case <-time.After(letGoTime):
	}
	s.State, s.Why = heelerv1.CollectorUnknown, "it said nothing for "+onceSources.String()
	if l.beaten.Load() {
		s.State, s.Why = heelerv1.CollectorOK, ""
	}
	return s
}

func countsOf(of any) map[string]uint64 {
	if c, ok := of.(collector.Counter); ok {
		return c.Counts()
	}
	return nil
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
