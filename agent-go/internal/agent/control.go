package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/control"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// The commands that a running agent takes.
const (
	CommandRelease  = "release"
	CommandResume   = "resume"
	CommandPauseGPM = "pause-gpm"
	CommandStatus   = "status"
	CommandReload   = "reload"
)

const (
	longestRelease = 24 * time.Hour
	settleTime     = 15 * time.Second // for readings to end
	closeTime      = 15 * time.Second // for the driver to be closed
	jobCheckEvery  = 5 * time.Second
	gpuDevices     = "/dev/nvidia"
)

// listen opens the control socket. An agent without one works all the same.
func (p *process) listen(ctx context.Context) {
	path := p.config.ControlSocket
	if path == "" {
		return
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, os.ErrNotExist) {
		p.Log.Info("no control socket: its directory does not exist", "path", path)
		return
	}
	server, err := control.Listen(path, p.handle, p.Log)
	if err != nil {
		p.Log.Warn("no control socket", "error", err)
		return
	}
	go server.Run(ctx)
}

func (p *process) handle(ctx context.Context, r control.Request, from control.Peer) control.Answer {
	switch r.Command {
	case CommandStatus:
		return p.status()
	case CommandReload:
		if err := p.reload(ctx); err != nil {
			return control.Refuse("configuration is not taken over; the old one stays in force:\n%v", err)
		}
		return control.Done("configuration taken over")
	case CommandRelease:
		return p.release(ctx, r, from)
	case CommandResume:
		return p.resume(ctx, r)
	case CommandPauseGPM:
		return p.pauseProfiling(ctx, r, from)
	default:
		return control.Refuse("unknown command %q", r.Command)
	}
}

// duration reads how long something is to last.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no time such as 90s or 10m", text)
	case d < time.Second || d > longestRelease:
		return 0, fmt.Errorf("%s is not between 1s and %s", text, longestRelease)
	default:
		return d, nil
	}
}

// release lets go of the GPUs: all or nothing.
func (p *process) release(ctx context.Context, r control.Request, from control.Peer) control.Answer {
	d, err := duration(r.For)
	if err != nil {
		return control.Refuse("%v", err)
	}
	p.change.lock()
	defer p.change.unlock()
	before, now := p.holds.release, time.Now()
	p.holds.release = &hold{Until: now.Add(d), By: from.String(), Since: now}
	p.standStill(p.round)
	if err := p.letGo(ctx); err != nil {
		p.holds.release = before
		p.standStill(p.round)
		p.Log.Warn("GPUs are not released", "for", from.String(), "error", err)
		return control.Refuse("the GPUs are not released: %v", err)
	}
	p.holds.save()
	text := p.holds.release.text("GPUs released")
	p.Log.Info(text)
	if open, err := hostfs.OpenFiles(gpuDevices); err == nil && len(open) > 0 {
		p.Log.Warn("the driver library has left device files open", "files", open)
		text += "; the driver library has left open: " + strings.Join(open, " ")
	}
	return control.Done("%s", text)
}

func (p *process) letGo(ctx context.Context) error {
	if err := errors.Join(p.settle(ctx), p.parts.gpu.Release(closeTime)); err != nil {
		return err
	}
	if p.parts.nvml.Open() {
		return fmt.Errorf("%w: waiting for the driver's events does not end", collector.ErrHung)
	}
	return nil
}

// settle waits for the readings that are to stand still.
func (p *process) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return p.round.runner.Settle(ctx)
}

// resume ends a release and pauses, or the pause of one job.
func (p *process) resume(_ context.Context, r control.Request) control.Answer {
	p.change.lock()
	defer p.change.unlock()
	if r.Job != "" {
		if p.holds.profiling[r.Job] == nil {
			return control.Done("nothing is paused for job %s", r.Job)
		}
		delete(p.holds.profiling, r.Job)
		p.applyHolds()
		return control.Done("the pause of job %s is over", r.Job)
	}
	if p.holds.release == nil && len(p.holds.profiling) == 0 {
		return control.Done("nothing is released or paused")
	}
	text := "profiling goes on"
	if p.holds.release != nil {
		text = "the GPUs are read again"
	}
	p.holds.release = nil
	clear(p.holds.profiling)
	p.applyHolds()
	return control.Done("%s", text)
}

// applyHolds makes what runs follow the holds after some have ended.
func (p *process) applyHolds() {
	p.holds.save()
	if len(p.holds.profiling) == 0 {
		p.parts.gpu.ResumeProfiling()
	}
	p.standStill(p.round)
}

// pauseProfiling gives the performance monitors away for a time, or while a job runs.
func (p *process) pauseProfiling(ctx context.Context, r control.Request, from control.Peer) control.Answer {
	h := &hold{By: from.String(), Since: time.Now(), Job: r.Job}
	if r.Job == "" && r.For == "" {
		return control.Refuse("for how long, or for which job?")
	}
	if r.Job != "" {
		if n, err := strconv.ParseUint(r.Job, 10, 32); err != nil || n == 0 {
			return control.Refuse("%q is no job number", r.Job)
		}
	}
	if r.For != "" {
		d, err := duration(r.For)
		if err != nil {
			return control.Refuse("%v", err)
		}
		h.Until = h.Since.Add(d)
	}
	p.change.lock()
	defer p.change.unlock()
	p.holds.profiling[r.Job] = h
	p.holds.save()
	p.standStill(p.round)
	err := errors.Join(p.settle(ctx), p.parts.gpu.PauseProfiling(closeTime))
	text := h.text("profiling paused")
	if err != nil {
		p.Log.Warn(text+", but not wholly", "error", err)
		return control.Refuse("%s, but not wholly: %v", text, err)
	}
	p.Log.Info(text)
	return control.Done("%s", text)
}

// expire ends the holds that are over.
func (p *process) expire(now time.Time) {
	runs := p.parts.jobs.Runs
	if now.Sub(p.checked) < jobCheckEvery {
		runs = nil
	} else {
		p.checked = now
	}
	ended := false
	if h := p.holds.release; h != nil && h.over(now, nil) {
		p.holds.release, ended = nil, true
		p.Log.Info("the time of the release is over")
	}
	for key, h := range p.holds.profiling {
		if h.over(now, runs) {
			delete(p.holds.profiling, key)
			ended = true
			p.Log.Info("the pause of profiling is over", "job", h.Job)
		}
	}
	if ended {
		p.applyHolds()
	}
}

// standStill makes the entries of the table follow the holds.
func (p *process) standStill(r *round) {
	text := p.holds.profilingText()
	p.paused.Store(&text)
	r.runner.SetPauses(p.holds.why)
}

// profiling is the state of the performance monitors for the status.
func (p *process) profiling() (heelerv1.CollectorState, string) {
	state, why := p.parts.gpu.Profiling()
	if text := p.paused.Load(); text != nil && *text != "" && state == heelerv1.CollectorOff {
		why = *text
	}
	return state, why
}

// status is what AgentStatus says, and a line.
func (p *process) status() control.Answer {
	p.change.lock()
	defer p.change.unlock()
	m := p.round.report.message()
	if err := p.stamp.stamp(m); err != nil {
		return control.Refuse("%v", err)
	}
	text, err := ToJSON(m)
	if err != nil {
		return control.Refuse("%v", err)
	}
	a := control.Done("%s", p.line())
	a.Status = text
	return a
}
