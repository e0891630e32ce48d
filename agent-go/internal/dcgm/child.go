package dcgm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	longestLine = 16 << 10
	tailLines   = 4
	tailBytes   = 400
)

// child is a running dcgmi in a process group of its own. It dies with the agent.
type child struct {
	cmd   *exec.Cmd
	read  *os.File
	lines chan string   // closed at the end of the output
	gone  chan struct{} // closed when the process is
	err   error         // how it ended; read it only after gone
	said  *tail
	// signal sends to the group; tests put a process that can't be killed in its place.
	signal func(pid int, s syscall.Signal) error
}

// begin starts a command. Secrets of the agent's environment are not passed on.
func begin(argv []string) (*child, error) {
	read, write, err := output()
	if err != nil {
		return nil, err
	}
	c := &child{
		cmd: exec.Command(argv[0], argv[1:]...), read: read, lines: make(chan string, 16), gone: make(chan struct{}),
		said: &tail{}, signal: syscall.Kill,
	}
	c.cmd.Stdout, c.cmd.Stderr = write, c.said
	c.cmd.Env = environment(os.Environ())
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.cmd.WaitDelay = time.Second // a grandchild may hold its standard error
	started := make(chan error, 1)
	go c.hold(started)
	err = <-started
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		return nil, err
	}
	go c.pump()
	return c, nil
}

// hold starts the process and waits for its end on one thread: the kernel kills the child when the thread that started
// it ends, and Go ends threads as it likes.
func (c *child) hold(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	err = c.cmd.Wait()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		c.err = err
	}
	close(c.gone)
}

// environment is that of the agent without what is none of the child's business.
func environment(all []string) []string {
	kept := make([]string, 0, len(all))
	for _, v := range all {
		if !strings.HasPrefix(v, "HEELER_NATS_") && !strings.HasPrefix(v, "NOTIFY_SOCKET=") {
			kept = append(kept, v)
		}
	}
	return kept
}

// pump reads whole lines. What has no end of line is no line: the child died while it wrote.
func (c *child) pump() {
	defer close(c.lines)
	defer func() { _ = c.read.Close() }()
	r := bufio.NewReaderSize(c.read, longestLine)
	tooLong := false
	for {
		text, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			tooLong = true
			continue
		case err != nil:
			if !ended(err) && !errors.Is(err, io.EOF) {
				_, _ = fmt.Fprintf(c.said, "reading its output: %v\n", err)
			}
			return
		case tooLong:
			tooLong = false
			continue
		}
		c.lines <- strings.TrimRight(string(text), "\r\n")
	}
}

const (
	politely = 400 * time.Millisecond // after SIGTERM
	firmly   = 400 * time.Millisecond // after SIGKILL
)

// end makes the child end, and tells whether it did. One that sits in the kernel and can't be killed is not waited for.
func (c *child) end() bool {
	dead := c.await(syscall.SIGTERM, politely) || c.await(syscall.SIGKILL, firmly)
	// A grandchild may hold the other end open, so the end of the output is not waited for.
	_ = c.read.SetReadDeadline(time.Now().Add(-time.Second))
	drained := time.After(firmly)
	for {
		select {
		case _, more := <-c.lines:
			if !more {
				return dead
			}
		case <-drained:
			return false
		}
	}
}

func (c *child) await(s syscall.Signal, wait time.Duration) bool {
	select {
	case <-c.gone:
		return true
	default:
	}
	if err := c.signal(-c.cmd.Process.Pid, s); err != nil && !errors.Is(err, unix.ESRCH) {
		_, _ = fmt.Fprintf(c.said, "%s: %v\n", s, err)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.gone:
		return true
	case <-timer.C:
		return false
	}
}

// why says how a child ended that has ended, with its last words.
func (c *child) why() error {
	how := "it ended by itself"
	var exit *exec.ExitError
	switch {
	case errors.As(c.err, &exit):
		how = exit.String()
	case c.err != nil:
		how = c.err.Error()
	}
	return &Ended{How: how, Said: c.said.String()}
}

// Ended says how dcgmi ended, and what it said at last.
type Ended struct{ How, Said string }

// Error implements error.
func (e *Ended) Error() string {
	if e.Said == "" {
		return "dcgmi: " + e.How
	}
	return "dcgmi: " + e.How + ": " + e.Said
}

// tail keeps the last lines that were written to it, and not much of them.
type tail struct {
	mu    sync.Mutex
	lines []string
	rest  string
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := strings.Split(t.rest+string(p), "\n")
	t.rest = cut(parts[len(parts)-1])
	for _, line := range parts[:len(parts)-1] {
		if line = strings.TrimSpace(line); line != "" {
			t.lines = append(t.lines, cut(line))
		}
	}
	if extra := len(t.lines) - tailLines; extra > 0 {
		t.lines = append(t.lines[:0], t.lines[extra:]...)
	}
	return len(p), nil
}

func cut(s string) string {
	if len(s) > tailBytes {
		s = s[:tailBytes]
	}
	return strings.ToValidUTF8(s, "?")
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.lines
	if rest := strings.TrimSpace(t.rest); rest != "" {
		all = append(all[:len(all):len(all)], rest)
	}
	return strings.Join(all, "; ")
}
