package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/sdnotify"
)

// longestReloadJitter bounds how long a reload waits before it connects anew: somebody waits for its end.
const longestReloadJitter = 5 * time.Second

// reload reads the configuration anew and takes all of it over, or nothing. The spool, the samples that wait and the
// GPUs' handles live on; the collectors start again behind what they have read, and the connection is made anew only
// where the way to the bus changed.
func (p *process) reload(ctx context.Context) error {
	if p.Load == nil {
		return errors.New("this agent cannot reload")
	}
	p.change.lock()
	defer p.change.unlock()
	p.notify(sdnotify.Reloading()...)
	defer p.notify(sdnotify.Ready)
	next, err := p.Load()
	if err != nil {
		return err
	}
	if err := unchangeable(&p.config, &next); err != nil {
		return err
	}
	if err := wayTo(&next).Check(); err != nil {
		return err
	}
	if err := p.standAllStill(ctx); err != nil {
		return err
	}
	fresh := p.link
	if fingerprint(&next) != p.link.print {
		waitWithin(ctx, min(next.NATS.ConnectJitter.Duration, longestReloadJitter))
		if fresh, err = p.connect(&next, 0); err != nil {
			p.standStill(p.round)
			return err
		}
	}
	p.round.end()
	if fresh != p.link {
		p.link.end()
		fresh.start(ctx)
		p.link = fresh
	}
	p.config = next
	p.apply()
	p.round = p.startRound(ctx)
	p.Log.Info("configuration taken over")
	return nil
}

// waitWithin waits any time up to so long: a fleet may be told to reload at once.
func waitWithin(ctx context.Context, jitter time.Duration) {
	if jitter <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(jitter)):
	}
}

// standAllStill ends all readings: some collectors live on, and must not read in two rounds at a time.
func (p *process) standAllStill(ctx context.Context) error {
	p.round.runner.SetPauses(func(*collector.Entry) string { return "the configuration is read anew" })
	err := p.settle(ctx)
	if err != nil {
		p.standStill(p.round)
	}
	return err
}

// apply hands the settings to what lives on, and makes the rest anew.
func (p *process) apply() {
	c := &p.config
	p.ring.Limit(c.NATS.BufferSamples)
	p.spool.Limit(spoolOptions(c))
	if p.Level != nil {
		SetLevel(p.Level, c)
	}
	p.parts.gpu.Reconfigure(gpuSettings(c))
	if !c.Collectors.NVML {
		if err := p.parts.gpu.Release(letGoTime); err != nil {
			p.Log.Warn("the GPU driver is not let go", "error", err)
		}
	}
	p.parts.renew(c, p.Log)
}

// SetLevel makes a logger follow log.level.
func SetLevel(v *slog.LevelVar, c *config.Config) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Log.Level)) // checked by the configuration
	v.Set(level)
}

// unchangeable says which keys only a restart can change.
func unchangeable(old, next *config.Config) error {
	var errs []error
	for _, k := range []struct{ name, old, next string }{
		{"cluster", old.Cluster, next.Cluster}, {"node", old.Node, next.Node}, {"boot_id", old.BootID, next.BootID},
		{"state_dir", old.StateDir, next.StateDir}, {"proc", old.Proc, next.Proc}, {"sys", old.Sys, next.Sys},
		{"control_socket", old.ControlSocket, next.ControlSocket},
		{"nvml.library", old.NVML.Library, next.NVML.Library}, {"log.format", old.Log.Format, next.Log.Format},
	} {
		if k.old != k.next {
			errs = append(errs, fmt.Errorf("%s: a change from %q to %q takes a restart", k.name, k.old, k.next))
		}
	}
	return errors.Join(errs...)
}
