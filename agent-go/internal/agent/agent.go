// Package agent puts the collectors, the spool and the bus together.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/spool"
)

// ErrClosed says that the connection to the bus was given up, which should never happen.
var ErrClosed = errors.New("the bus connection was closed for good")

const (
	drainTime    = 3 * time.Second
	collectTime  = time.Second // for collectors to end
	bufferBytes  = 4 << 20
	jitterOfSome = 10 // a status comes up to a tenth of its interval early
)

// Run runs the agent until ctx ends. Then it sends what is left, as far as that goes quickly.
func Run(ctx context.Context, c *config.Config, lib nvml.Library, version string, log *slog.Logger) error {
	sp, err := spool.Open(filepath.Join(c.StateDir, "spool"), spool.Options{
		MaxBytes: c.Spool.MaxBytes, Grace: c.Spool.Grace.Duration,
	})
	if err != nil {
		return err
	}
	defer func() { _ = sp.Close() }()
	out := &outlet{
		stamper: newStamper(c.Cluster, c.Node, c.BootID), spread: spreadOf(c.Node, c.Window.Duration),
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	pub, closeBus, err := connect(ctx, c, sp, fail, log)
	if err != nil {
		return err
	}
	defer closeBus()
	out.pub = pub
	collecting, stopCollecting := context.WithCancel(ctx)
	defer stopCollecting()
	parts := newParts(c, lib, log)
	runner := collector.NewRunner(parts.table(c), c.Node, out.emit, log)
	report := &reporter{
		version: version, started: time.Now(), interval: c.StatusInterval.Duration, runner: runner, pub: pub,
		inv: parts.inv,
	}
	sending, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSending()
	var collectors, sender sync.WaitGroup
	start(&collectors, func() { runner.Run(collecting) })
	start(&collectors, func() { reportOn(collecting, report, out, log) })
	start(&sender, func() { pub.Run(sending) })
	log.Info("agent started", "cluster", c.Cluster, "node", c.Node, "boot", c.BootID, "version", version)
	<-ctx.Done()
	stopCollecting()
	waitFor(&collectors, collectTime)
	drain, stopDraining := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer stopDraining()
	pub.Drain(drain)
	stopSending()
	waitFor(&sender, collectTime)
	log.Info("agent stopped", "events_left", sp.Stats().Waiting)
	if cause := context.Cause(ctx); errors.Is(cause, ErrClosed) {
		return cause
	}
	return nil
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

// connect makes the connection and the publisher. The connection comes about in the background.
func connect(
	ctx context.Context, c *config.Config, sp *spool.Spool, fail context.CancelCauseFunc, log *slog.Logger,
) (*bus.Publisher, func(), error) {
	if jitter := c.NATS.ConnectJitter.Duration; jitter > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(jitter)):
		}
	}
	closing := make(chan struct{})
	closed := func() {
		select {
		case <-closing:
		default:
			fail(ErrClosed)
		}
	}
	nc, err := bus.Connect(bus.Config{
		Servers: c.NATS.Servers, Name: "heeler-agent " + c.Node, InboxPrefix: c.NATS.InboxPrefix,
		Creds: c.NATS.Creds, NKey: c.NATS.NKey, User: c.NATS.User, Password: c.NATS.Password, Token: c.NATS.Token,
		CA: c.NATS.TLS.CA, Cert: c.NATS.TLS.Cert, Key: c.NATS.TLS.Key,
	}, closed, log)
	if err != nil {
		return nil, nil, fmt.Errorf("bus: %w", err)
	}
	pub, err := bus.NewPublisher(nc, bus.NewRing(c.NATS.BufferSamples, bufferBytes), sp, log)
	if err != nil {
		return nil, nil, fmt.Errorf("bus: %w", err)
	}
	return pub, func() {
		close(closing)
		nc.Close()
	}, nil
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
