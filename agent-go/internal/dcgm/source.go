// Package dcgm reads what only NVIDIA's DCGM can: the profiling of GPUs older than Hopper, whose driver has no
// performance monitor for NVML, and NVSwitches. It is an option, off by default, and nothing else needs it.
//
// It runs dcgmi, DCGM's own command, as a child and reads its table: a crash of DCGM's library, which is closed in
// parts, ends a child and not the agent. It needs dcgmi and a running host engine (nv-hostengine), which must run as
// root to profile. The child runs with the agent's rights, in a process group of its own, and dies with the agent.
// Reading costs the agent a few lines of text a second; a dcgmi takes about 30 MB and the host engine its share.
// Where dcgmi is missing, the collectors say absent.
package dcgm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"heeler.dev/agent-go/internal/collector"
)

// GPUs tells whose profiling is wanted, and keeps NVML's performance monitor off them meanwhile.
type GPUs interface {
	Unprofiled() []string
	LendProfiling(uuids []string) []string
	ReturnProfiling(uuids []string)
}

// Profiler reads the profiling fields of GPUs. It implements [collector.Source], and what internal/gpu asks for values.
type Profiler struct {
	tool   *Tool
	gpus   GPUs
	fields []int
	every  time.Duration
	retry  time.Duration
	store  *store
	counters

	// Only Run touches these.
	step   int // on the ladder
	later  time.Time
	reason error
}

// retryAfter is how long nothing is tried after a refusal: each try may disturb the one who has the profiler.
const retryAfter = 10 * time.Minute

// tryMoreAfter is how often the whole list is tried again where a shorter one works.
const tryMoreAfter = 6

// NewProfiler returns a source that reads these fields, or all it knows where there are none.
func NewProfiler(tool *Tool, gpus GPUs, fields []int, every time.Duration) *Profiler {
	if len(fields) == 0 {
		fields = nil
	}
	return &Profiler{tool: tool, gpus: gpus, fields: fields, every: every, retry: retryAfter, store: newStore(every)}
}

// errAgain says that something has changed and dcgmi must be started anew.
var errAgain = errors.New("again")

// Run implements [collector.Source].
func (p *Profiler) Run(ctx context.Context, beat func(), _ collector.Emit) error {
	for {
		err := p.once(ctx, beat)
		p.store.forget()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errAgain):
		case refused(err):
			p.add("refused", 1)
			if p.fewer() {
				continue
			}
			p.step, p.later = 0, time.Now().Add(p.retry)
			p.reason = fmt.Errorf("profiling is refused: %w", err)
			return p.reason
		default:
			return err
		}
	}
}

// fewer goes on to a shorter list, if there is one.
func (p *Profiler) fewer() bool {
	now := len(p.list())
	for p.step++; p.step < len(ladder); p.step++ {
		if n := len(p.list()); n > 0 && n < now {
			return true
		}
	}
	return false
}

func (p *Profiler) list() []field { return chosen(chosen(profiling, p.fields), ladder[p.step]) }

func (p *Profiler) once(ctx context.Context, beat func()) error {
	wanted := p.gpus.Unprofiled()
	if len(wanted) == 0 {
		return fmt.Errorf("%w: no GPU here lacks a performance monitor", collector.ErrAbsent)
	}
	if time.Now().Before(p.later) {
		return fmt.Errorf("%w; tried again at %s", p.reason, p.later.UTC().Format("15:04:05 UTC"))
	}
	node, err := p.tool.discover(ctx)
	if err != nil {
		return err
	}
	known := slices.DeleteFunc(slices.Clone(wanted), func(uuid string) bool { return !node.has(uuid) })
	got := p.gpus.LendProfiling(known)
	defer p.gpus.ReturnProfiling(got)
	if len(got) == 0 {
		return fmt.Errorf("dcgmi: none of the GPUs %v is in its list or free", wanted)
	}
	node.instances = map[uint64]instance{}
	if text, err := p.tool.query(ctx, "discovery", "-c"); err == nil {
		node.instances = parseInstances(text)
	}
	who := node.among(got)
	started := time.Now()
	fields := p.list()
	return p.tool.follow(ctx, watch{
		fields: fields, entities: names(who), every: p.every, beat: beat,
		row: func(r Row, now time.Time) error { return p.take(r, now, who, fields) },
		tick: func(now time.Time) error {
			if !slices.Equal(wanted, p.gpus.Unprofiled()) {
				return errAgain
			}
			if p.step > 0 && now.Sub(started) > tryMoreAfter*p.retry {
				p.step = 0
				return errAgain
			}
			return nil
		},
	}, &p.counters)
}

// take keeps a row.
func (p *Profiler) take(r Row, now time.Time, who map[string]instance, fields []field) error {
	of, ok := who[name(r.Entity.Group, r.Entity.ID)]
	if r.Entity.HasLink || r.Entity.Group == "GPU-CI" {
		return nil
	}
	if !ok {
		return fmt.Errorf("dcgmi: %s %d was not there when it was asked for its GPUs", r.Entity.Group, r.Entity.ID)
	}
	values, rejected := plausible(fields, r.Cells)
	p.add("rejected", rejected)
	p.store.add(of, values, now)
	return nil
}

// Window implements what internal/gpu asks.
func (p *Profiler) Window(uuid string, gi *int64) map[string]float64 {
	of := instance{uuid, whole}
	if gi != nil {
		of.gi = *gi
	}
	return p.store.take(of, time.Now())
}

func (n *node) has(uuid string) bool {
	for _, u := range n.gpus {
		if u == uuid {
			return true
		}
	}
	return false
}

// among are the entities of some GPUs: themselves and their MIG instances, by the name that dcgmi gives them.
func (n *node) among(uuids []string) map[string]instance {
	who := map[string]instance{}
	for id, uuid := range n.gpus {
		if slices.Contains(uuids, uuid) {
			who[name("GPU", id)] = instance{uuid, whole}
		}
	}
	for id, i := range n.instances {
		if slices.Contains(uuids, i.uuid) {
			who[name("GPU-I", id)] = i
		}
	}
	return who
}

func name(group string, id uint64) string { return group + " " + strconv.FormatUint(id, 10) }

// names writes entities as dcgmi takes them.
func names(who map[string]instance) []string {
	var all []string
	for key := range who {
		var group, id string
		if _, err := fmt.Sscan(key, &group, &id); err == nil && group == "GPU-I" {
			id = "i:" + id
		}
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}
