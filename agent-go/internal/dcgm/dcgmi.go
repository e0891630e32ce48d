package dcgm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"heeler.dev/agent-go/internal/collector"
)

// Tool says how dcgmi is run.
type Tool struct {
	// Command is the program and what comes before its own arguments.
	Command []string
	// Host is where the host engine listens; dcgmi's own default where empty.
	Host string
	// Silence is for how long a child may say nothing before it is ended; ten seconds where zero.
	Silence time.Duration

	mu    sync.Mutex
	stuck []*child // that could not be ended
}

const (
	shortestSilence = 10 * time.Second
	silentTurns     = 3 // or so many intervals, if that is more
	queryTime       = 15 * time.Second
	longestAnswer   = 1 << 20
)

// argv is a command line. The program is looked up anew, as DCGM may be installed while the agent runs.
func (t *Tool) argv(args ...string) ([]string, error) {
	path, err := exec.LookPath(t.Command[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", collector.ErrAbsent, err)
	}
	argv := append([]string{path}, t.Command[1:]...)
	argv = append(argv, args...)
	if t.Host != "" {
		argv = append(argv, "--host", t.Host)
	}
	return argv, nil
}

// start starts dcgmi, unless an earlier one can't be ended: they must not pile up.
func (t *Tool) start(args ...string) (*child, error) {
	argv, err := t.argv(args...)
	if err != nil {
		return nil, err
	}
	if pid := t.held(); pid != 0 {
		return nil, fmt.Errorf("%w: an earlier dcgmi (process %d) cannot be ended", collector.ErrHung, pid)
	}
	return begin(argv)
}

// held is the process id of a child that is still stuck, or 0.
func (t *Tool) held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.stuck[:0]
	for _, c := range t.stuck {
		select {
		case <-c.gone:
		default:
			left = append(left, c)
		}
	}
	t.stuck = left
	if len(left) == 0 {
		return 0
	}
	return left[0].cmd.Process.Pid
}

// end ends a child, or notes that it does not.
func (t *Tool) end(c *child) {
	if c.end() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stuck = append(t.stuck, c)
}

// query runs dcgmi to its end and gives what it wrote.
func (t *Tool) query(ctx context.Context, args ...string) (string, error) {
	c, err := t.start(args...)
	if err != nil {
		return "", err
	}
	defer t.end(c)
	var text strings.Builder
	timer := time.NewTimer(queryTime)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-timer.C:
			return "", fmt.Errorf("%w: dcgmi %s does not end", collector.ErrHung, args[0])
		case line, more := <-c.lines:
			if more {
				if text.Len() < longestAnswer {
					text.WriteString(line + "\n")
				}
				if isError(line) {
					_, _ = c.said.Write([]byte(line + "\n"))
				}
				continue
			}
		}
		break
	}
	select {
	case <-c.gone:
	case <-timer.C:
		return "", fmt.Errorf("%w: dcgmi %s does not end", collector.ErrHung, args[0])
	}
	if c.err != nil {
		return "", c.why()
	}
	return text.String(), nil
}

// discover asks what DCGM has numbered.
func (t *Tool) discover(ctx context.Context) (node, error) {
	text, err := t.query(ctx, "discovery", "-l")
	if err != nil {
		return node{}, err
	}
	return parseDiscovery(text)
}

// watch is one dcgmi dmon that runs, and what to do with what it says.
type watch struct {
	fields   []field
	entities []string
	every    time.Duration
	row      func(Row, time.Time) error
	// tick is called about once a second; nil for nothing.
	tick func(now time.Time) error
	// beat is called while rows come.
	beat func()
}

// follow runs a watch until ctx ends or something is wrong with it.
func (t *Tool) follow(ctx context.Context, w watch, counts *counters) error {
	c, err := t.start("dmon", "-i", strings.Join(w.entities, ","), "-e", list(w.fields), "-d",
		strconv.FormatInt(w.every.Milliseconds(), 10))
	if err != nil {
		return err
	}
	counts.add("started", 1)
	defer t.end(c)
	silence := max(silentTurns*w.every, t.Silence)
	if t.Silence == 0 {
		silence = max(silentTurns*w.every, shortestSilence)
	}
	parser, last := Parser{Fields: len(w.fields)}, time.Now()
	heard := false
	ticker := time.NewTicker(min(w.every, time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line, more := <-c.lines:
			if !more {
				return t.farewell(c)
			}
			row, ok := take(&parser, line, c, counts)
			if !ok {
				continue
			}
			last, heard = time.Now(), true
			if err := w.row(row, last); err != nil {
				return err
			}
		case now := <-ticker.C:
			if quiet := now.Sub(last); quiet > silence {
				return fmt.Errorf("%w: dcgmi has shown no values for %s: %s", collector.ErrHung,
					quiet.Round(time.Second), c.said)
			} else if heard && quiet <= 2*w.every && w.beat != nil {
				w.beat()
			}
			if w.tick != nil {
				if err := w.tick(now); err != nil {
					return err
				}
			}
		}
	}
}

// take reads a line, and counts what is no use.
func take(p *Parser, line string, c *child, counts *counters) (Row, bool) {
	verdict, row, err := p.Line(line)
	var bad *RowError
	switch {
	case errors.As(err, &bad):
		counts.add("malformed", 1)
		_, _ = c.said.Write([]byte(bad.Error() + "\n"))
	case verdict == IsMessage:
		_, _ = c.said.Write([]byte(line + "\n"))
	case verdict == IsRow:
		counts.add("rows", 1)
		return row, true
	}
	return Row{}, false
}

// farewell waits shortly for the exit status of a child whose output has ended.
func (t *Tool) farewell(c *child) error {
	select {
	case <-c.gone:
		return c.why()
	case <-time.After(2 * time.Second):
		return errors.New("dcgmi has closed its output: " + c.said.String())
	}
}

func isError(line string) bool {
	return strings.Contains(line, "Error") || strings.Contains(line, "Unable") || strings.Contains(line, "No data")
}

// refusals are how DCGM says that it will not watch these fields: they are not there, another has the profiler, the
// module is missing, or the host engine lacks the right.
var refusals = []string{
	"setting watches", "profiling", "invalid field id", "unknown field", "not supported", "in use", "requires root",
	"not permitted", "no permission", "error getting values information", "creating a field group",
}

// refused tells whether dcgmi ended because of the fields, and not because something is broken.
func refused(err error) bool {
	var e *Ended
	if !errors.As(err, &e) {
		return false
	}
	said := strings.ToLower(e.Said)
	if strings.Contains(said, "connection") || strings.Contains(said, "connect to") {
		return false
	}
	for _, text := range refusals {
		if strings.Contains(said, text) {
			return true
		}
	}
	return false
}
