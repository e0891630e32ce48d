// Package agent puts the collectors, the spool and the bus together.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/sdnotify"
	"heeler.dev/agent-go/internal/spool"
)

// ErrClosed says that the connection to the bus was given up, which should never happen.
var ErrClosed = errors.New("the bus connection was closed for good")

const (
	drainTime    = 3 * time.Second
	collectTime  = time.Second     // for collectors to end
	letGoTime    = 2 * time.Second // for the GPU driver to be let go at the end
	bufferBytes  = 4 << 20
	jitterOfSome = 10 // a status comes up to a tenth of its interval early
)

// Agent is one agent process.
type Agent struct {
	Config  config.Config
	Library nvml.Library
	Version string
	Log     *slog.Logger
	// Level follows log.level; nil where nothing can.
	Level *slog.LevelVar
	// Load reads the configuration anew, Hangup asks for that; both may be nil.
	Load   func() (config.Config, error)
	Hangup <-chan os.Signal
	// Notify is where the service manager listens; nil for none.
	Notify *sdnotify.Notifier
}

// process is what lives as long as the agent does: what a reload of the configuration must not interrupt.
type process struct {
	*Agent
	started time.Time
	spool   *spool.Spool
	ring    *bus.Ring
	stamp   *stamper
	parts   *parts
	fail    context.CancelCauseFunc
	unkept  atomic.Uint64 // events that neither disk nor memory had room for, and that nobody can read again

	// change is held while the configuration, or what runs, changes.
	change  change
	config  config.Config
	link    *link
	round   *round
	holds   holds
	checked time.Time // when it was last looked whether the jobs of holds are gone
	health  health
	paused  atomic.Pointer[string] // why profiling is
}

// Run runs the agent until ctx ends. Then it sends what is left, as far as that goes quickly.
func (a *Agent) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	c := &a.Config
	stamp := newStamper(c.Cluster, c.Node, c.BootID)
	options := spoolOptions(c)
	options.Tell, options.Log = (&losses{stamper: stamp}).tell, a.Log
	sp := spool.Open(filepath.Join(c.StateDir, "spool"), options)
	defer func() { _ = sp.Close() }()
	p := &process{
		Agent: a, started: time.Now(), spool: sp, ring: bus.NewRing(c.NATS.BufferSamples, bufferBytes),
		stamp: stamp, parts: newParts(c, a.Library, a.Log), fail: fail, config: *c,
	}
	p.holds.load(stateFile(c, holdsFile), c.BootID, a.Log)
	if err := p.begin(ctx); err != nil {
		return err
	}
	p.loop(ctx)
	p.end(context.WithoutCancel(ctx))
	if cause := context.Cause(ctx); errors.Is(cause, ErrClosed) {
		return cause
	}
	return nil
}

func spoolOptions(c *config.Config) spool.Options {
	return spool.Options{MaxBytes: c.Spool.MaxBytes, Grace: c.Spool.Grace.Duration}
}

// begin starts everything. The bus may be away: the connection comes about in the background.
func (p *process) begin(ctx context.Context) error {
	p.change.lock()
	defer p.change.unlock()
	l, err := p.connect(&p.config, p.config.NATS.ConnectJitter.Duration)
	if err != nil {
		return err
	}
	l.start(ctx)
	p.link = l
	p.listen(ctx)
	if len(p.holds.profiling) > 0 {
		_ = p.parts.gpu.PauseProfiling(closeTime) // nothing is open yet
	}
	p.round = p.startRound(ctx)
	p.notify(sdnotify.Ready)
	c := &p.config
	p.Log.Info("agent started", "cluster", c.Cluster, "node", c.Node, "boot", c.BootID, "version", p.Version)
	return nil
}

// beat is how often the agent looks after itself.
const beat = time.Second

func (p *process) loop(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Hangup:
			if err := p.reload(ctx); err != nil {
				p.Log.Error("configuration is not taken over; the old one stays in force", "error", err)
			}
		case now := <-ticker.C:
			p.lookAfter(ctx, now)
		}
	}
}

// end stops everything in order: reading, holding the driver, sending.
func (p *process) end(ctx context.Context) {
	p.notify(sdnotify.Stopping)
	p.change.lock()
	defer p.change.unlock()
	p.round.end()
	if err := p.parts.gpu.Release(letGoTime); err != nil {
		p.Log.Warn("the GPU driver is not let go", "error", err)
	}
	drain, stopDraining := context.WithTimeout(ctx, drainTime)
	defer stopDraining()
	p.link.pub.Drain(drain)
	p.link.end()
	p.Log.Info("agent stopped", "events_left", p.spool.Stats().Waiting)
}

func (p *process) notify(lines ...string) {
	if err := p.Notify.Send(lines...); err != nil {
		p.Log.Warn("the service manager is not told", "error", err)
	}
}

// round is one time of reading with one configuration.
type round struct {
	runner *collector.Runner
	report *reporter
	stop   context.CancelFunc
	group  sync.WaitGroup
}

// startRound starts the collectors, all but those that are to stand still.
func (p *process) startRound(ctx context.Context) *round {
	c := &p.config
	p.parts.kmsg.Durable = p.spool.Durable
	p.parts.outbox.Bus = p.link.pub
	out := &outlet{stamper: p.stamp, pub: p.link.pub, unkept: &p.unkept, spread: spreadOf(c.Node, c.Window.Duration)}
	ctx, stop := context.WithCancel(ctx)
	r := &round{runner: collector.NewRunner(p.parts.table(c), c.Node, out.emit, p.Log), stop: stop}
	r.report = &reporter{
		version: p.Version, started: p.started, interval: c.StatusInterval.Duration, runner: r.runner, pub: p.link.pub,
		unkept: &p.unkept, inv: p.parts.inv, profiling: p.profiling,
	}
	p.standStill(r)
	start(&r.group, func() { r.runner.Run(ctx) })
	start(&r.group, func() { reportOn(ctx, r.report, out, p.Log) })
	return r
}

func (r *round) end() {
	r.stop()
	waitFor(&r.group, collectTime)
}

func start(wg *sync.WaitGroup, f func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		f()
	}()
}

// waitFor waits for a group, but not longer than so long: a reading that hangs must not keep the process.
func waitFor(wg *sync.WaitGroup, long time.Duration) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(long):
	}
}

// firstReport is when the first status goes out: soon, but after the collectors had their first turn.
const firstReport = 2 * time.Second

// reportOn publishes the status until ctx ends.
func reportOn(ctx context.Context, r *reporter, out *outlet, log *slog.Logger) {
	pause := min(firstReport, r.interval)
	for {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if err := out.emit(r.message()); err != nil {
			log.Error("status cannot be sent", "error", err)
		}
		pause = r.interval - rand.N(r.interval/jitterOfSome)
	}
}
