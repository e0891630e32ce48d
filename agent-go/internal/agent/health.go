package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/sdnotify"
	"heeler.dev/schemas/go/heelerv1"
)

// change is a lock that tells for how long it has been held.
type change struct {
	mu    sync.Mutex
	since atomic.Int64
}

func (c *change) lock() {
	c.mu.Lock()
	c.since.Store(time.Now().UnixNano())
}

func (c *change) tryLock() bool {
	if !c.mu.TryLock() {
		return false
	}
	c.since.Store(time.Now().UnixNano())
	return true
}

func (c *change) unlock() {
	c.since.Store(0)
	c.mu.Unlock()
}

func (c *change) heldFor(now time.Time) time.Duration {
	since := c.since.Load()
	if since == 0 {
		return 0
	}
	return now.Sub(time.Unix(0, since))
}

// health is what the service manager was last told.
type health struct {
	fed    time.Time // when the watchdog was
	said   string
	saidAt time.Time
	sick   string
}

const (
	longestChange = time.Minute
	sayEvery      = 10 * time.Second
	feeds         = 3 // a watchdog's period holds so many words, so that one may be late
)

// lookAfter ends what is over and tells the service manager how the agent is.
func (p *process) lookAfter(ctx context.Context, now time.Time) {
	if !p.change.tryLock() {
		if held := p.change.heldFor(now); held > longestChange {
			p.unwell(fmt.Sprintf("a reload or a release has not ended for %s", held.Round(time.Second)))
			return
		}
		p.feed(now)
		return
	}
	defer p.change.unlock()
	p.expire(now)
	if name, stuck := p.round.runner.Stuck(now); stuck {
		p.unwell("the loop of " + name + " stands still")
		return
	}
	if name, stuck := p.link.pub.Stuck(now); stuck {
		p.unwell("sending " + name + " stands still")
		return
	}
	p.health.sick = ""
	p.feed(now)
	p.say(now)
}

// feed tells the watchdog that the agent is alive. A GPU that hangs is no reason not to: a restart does not mend it.
func (p *process) feed(now time.Time) {
	if every := p.every(); every > 0 && now.Sub(p.health.fed) >= every/feeds {
		p.health.fed = now
		p.notify(sdnotify.Watchdog)
	}
}

func (p *process) every() time.Duration {
	if p.Notify == nil {
		return 0
	}
	return p.Notify.WatchdogEvery
}

// unwell keeps still towards the watchdog, which then ends the agent.
func (p *process) unwell(why string) {
	if p.health.sick != why {
		p.health.sick = why
		p.Log.Error("the agent itself is not well", "why", why)
		p.notify(sdnotify.Status("not well: " + why))
	}
}

// say gives the service manager a line when it changed.
func (p *process) say(now time.Time) {
	if p.Notify == nil || now.Sub(p.health.saidAt) < sayEvery {
		return
	}
	p.health.saidAt = now
	if line := p.line(); line != p.health.said {
		p.health.said = line
		p.notify(sdnotify.Status(line))
	}
}

// line is the agent's state in one line.
func (p *process) line() string {
	by := map[heelerv1.CollectorState][]string{}
	for name, s := range p.round.report.collectors() {
		by[s.State] = append(by[s.State], name)
	}
	var parts []string
	for _, state := range []heelerv1.CollectorState{
		heelerv1.CollectorOK, heelerv1.CollectorHung, heelerv1.CollectorFailing, heelerv1.CollectorAbsent,
		heelerv1.CollectorOff, heelerv1.CollectorUnknown,
	} {
		if names := by[state]; len(names) > 0 {
			slices.Sort(names)
			parts = append(parts, string(state)+": "+strings.Join(names, " "))
		}
	}
	bus := "bus away"
	if p.link.pub.Connected() {
		bus = "bus connected"
	}
	line := bus + "; " + strings.Join(parts, "; ")
	if n := p.spool.Stats().Waiting; n > 0 {
		line += fmt.Sprintf("; %d events wait", n)
	}
	if why := p.holds.release.text("released"); why != "" {
		line += "; " + why
	}
	return line
}
