package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/statefile"
)

// holdsFile keeps them, so that an agent that is started again does not open a GPU that is being reset.
const holdsFile = "holds.json"

// hold is a time for which the agent keeps off something.
type hold struct {
	Until time.Time `json:"until,omitzero"` // zero: until the job is gone
	By    string    `json:"by"`
	Job   string    `json:"job,omitempty"`
	Since time.Time `json:"since"`
	Seen  bool      `json:"seen,omitempty"` // a process of the job ran here
	pid   uint64    // one of the job's processes
}

// text says what is held off, until when and by whom; nothing without a hold.
func (h *hold) text(what string) string {
	if h == nil {
		return ""
	}
	var until []string
	if h.Job != "" {
		until = append(until, "job "+h.Job+" ends")
	}
	if !h.Until.IsZero() {
		until = append(until, h.Until.UTC().Format("15:04:05")+" UTC")
	}
	return fmt.Sprintf("%s until %s by %s", what, strings.Join(until, " or "), h.By)
}

// holds are all that are in force. The release of the GPUs is one, and the pauses of profiling are one for each job and
// one for a time without a job.
type holds struct {
	path, boot string
	log        *slog.Logger
	release    *hold
	profiling  map[string]*hold
}

type savedHolds struct {
	Boot      string           `json:"boot"`
	Release   *hold            `json:"release,omitempty"`
	Profiling map[string]*hold `json:"profiling,omitempty"`
}

// load takes up what an agent of the same boot has left.
func (h *holds) load(path, boot string, log *slog.Logger) {
	h.path, h.boot, h.log, h.profiling = path, boot, log, map[string]*hold{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var s savedHolds
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		log.Warn("releases of the run before are unreadable", "error", err)
		return
	}
	if s.Boot != boot {
		return
	}
	h.release = s.Release
	for key, p := range s.Profiling {
		if p != nil {
			h.profiling[key] = p
		}
	}
}

func (h *holds) save() {
	if err := statefile.Save(h.path, savedHolds{h.boot, h.release, h.profiling}); err != nil {
		h.log.Warn("a release would not outlive a restart", "error", err)
	}
}

// why is why an entry of the table stands still; empty when it does not.
func (h *holds) why(e *collector.Entry) string {
	switch {
	case e.HoldsGPUs && h.release != nil:
		return h.release.text("released")
	case e.Profiles && len(h.profiling) > 0:
		return h.profilingText()
	default:
		return ""
	}
}

func (h *holds) profilingText() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(h.profiling)) {
		all = append(all, h.profiling[key].text("paused"))
	}
	return strings.Join(all, "; ")
}

// jobAppears is how long a job may take to show its first process: the prolog, which may ask for the pause, comes
// before it.
const jobAppears = 10 * time.Minute

// over tells whether a hold has ended. runs finds a process of a job.
func (h *hold) over(now time.Time, runs func(job string, hint uint64) (uint64, bool)) bool {
	if !h.Until.IsZero() && !now.Before(h.Until) {
		return true
	}
	if h.Job == "" || runs == nil {
		return false
	}
	pid, ok := runs(h.Job, h.pid)
	switch {
	case ok:
		h.Seen, h.pid = true, pid
		return false
	case h.Seen:
		return true
	default: // not yet, or never
		return h.Until.IsZero() && now.Sub(h.Since) > jobAppears
	}
}
