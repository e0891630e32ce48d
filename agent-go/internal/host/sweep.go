package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// sweep counts the threads in uninterruptible sleep, the state of one that waits for a driver or a file system that does
// not answer. procs_blocked would be cheaper, but counts only those that the kernel knows to wait for a disk, not for a
// lock in a GPU's driver; and the load average lags by minutes. So all threads are looked at, some at each reading: one
// that hangs does so for long. What is reported is the last whole sweep.
type sweep struct {
	proc string
	jobs *hostfs.Jobs

	reader hostfs.Reader
	all    list // processes
	own    list // threads of the process
	pid    string
	open   bool
	user   []heelerv1.UninterruptibleProc
	kernel []heelerv1.UninterruptibleProc
	count  uint64
	last   *swept
}

// swept is the outcome of a whole sweep.
type swept struct {
	threads uint64
	procs   []heelerv1.UninterruptibleProc
}

const mostNamed = 16

// run looks at so many threads, or until the sweep is whole.
func (s *sweep) run(reads int) error {
	if !s.open {
		if err := s.all.open(s.proc); err != nil {
			return err
		}
		s.open, s.count, s.user, s.kernel = true, 0, nil, nil
	}
	for ; reads > 0; reads-- {
		more, err := s.step()
		if err != nil {
			s.all.close()
			s.own.close()
			s.open = false
			return err
		}
		if !more {
			s.open = false
			procs := append(s.user, s.kernel...)
			s.last = &swept{s.count, procs[:min(len(procs), mostNamed)]}
			return nil
		}
	}
	return nil
}

// step looks at one thread. It says no when there are no more.
func (s *sweep) step() (bool, error) {
	for {
		if !s.own.isOpen() {
			pid, err := s.all.next()
			if err != nil || pid == "" {
				return false, err
			}
			s.pid = pid
			if t, ok := s.thread(pid); ok && t.threads > 1 {
				_ = s.own.open(filepath.Join(s.proc, pid, "task")) // it may have ended
			}
			return true, nil
		}
		tid, err := s.own.next()
		switch {
		case err != nil || tid == "": // an error means that the process has ended
			s.own.close()
		case tid != s.pid:
			s.thread(tid)
			return true, nil
		}
	}
}

// thread looks at one thread. Its own file is read, not that of the process, for which the kernel adds up all threads.
func (s *sweep) thread(tid string) (thread, bool) {
	text, err := s.reader.Read(s.proc + "/" + s.pid + "/task/" + tid + "/stat")
	if err != nil {
		return thread{}, false
	}
	t, err := parseThread(text)
	if err != nil {
		return thread{}, false
	}
	if t.state == 'D' {
		s.count++
		s.name(t)
	}
	return t, true
}

// name notes the process of a thread, those of users before those of the kernel.
func (s *sweep) name(t thread) {
	pid, err := strconv.ParseUint(s.pid, 10, 64)
	if err != nil {
		return
	}
	to := &s.user
	if t.ofKernel {
		to = &s.kernel
	}
	if n := len(*to); n == mostNamed || n > 0 && (*to)[n-1].PID == pid {
		return
	}
	p := heelerv1.UninterruptibleProc{PID: pid, Comm: t.comm}
	if !t.ofKernel && s.jobs != nil {
		if job, ok := s.jobs.Of(pid); ok {
			p.JobID = job
		}
	}
	*to = append(*to, p)
}

// list gives the numeric names of a folder, some at a time: a hundred thousand need no memory then.
type list struct {
	dir   *os.File
	names []string
}

const atATime = 256

func (l *list) open(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	l.dir, l.names = dir, nil
	return nil
}

func (l *list) isOpen() bool { return l.dir != nil }

func (l *list) close() {
	if l.dir != nil {
		_ = l.dir.Close()
		l.dir, l.names = nil, nil
	}
}

// next is empty at the end, where the list is closed.
func (l *list) next() (string, error) {
	for {
		for len(l.names) > 0 {
			name := l.names[0]
			l.names = l.names[1:]
			if name[0] >= '1' && name[0] <= '9' {
				return name, nil
			}
		}
		var err error
		if l.names, err = l.dir.Readdirnames(atATime); err != nil {
			l.close()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return "", err
		}
	}
}

// thread is what is used of the stat file of a thread.
type thread struct {
	comm     string
	state    byte
	ofKernel bool
	threads  uint64 // of its process
}

const (
	ofKernelFlag = 0x00200000 // PF_KTHREAD
	flagsField   = 6          // after the name: state, ppid, pgrp, session, tty, tpgid, flags
	threadsField = 17
)

// parseThread reads "12 (name) S 1 12 ...". The name may hold brackets and spaces, so the last bracket ends it. The name
// is made into text only for a thread in state D, the only ones that are named.
func parseThread(text []byte) (thread, error) {
	start, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if start < 0 || end < start || end+3 > len(text) || text[end+1] != ' ' {
		return thread{}, fmt.Errorf("%w: thread %.40q", hostfs.ErrFormat, text)
	}
	t := thread{state: text[end+2]}
	i := 0
	for field := range bytes.FieldsSeq(text[end+2:]) {
		var err error
		switch i {
		case 0:
			if len(field) != 1 {
				err = hostfs.ErrFormat
			}
		case flagsField:
			var flags uint64
			flags, err = strconv.ParseUint(string(field), 10, 64)
			t.ofKernel = flags&ofKernelFlag != 0
		case threadsField:
			t.threads, err = strconv.ParseUint(string(field), 10, 64)
		}
		if err != nil {
			return thread{}, fmt.Errorf("%w: thread %.40q", hostfs.ErrFormat, text)
		}
		if i++; i > threadsField {
			break
		}
	}
	if i <= threadsField {
		return thread{}, fmt.Errorf("%w: thread %.40q", hostfs.ErrFormat, text)
	}
	if t.state == 'D' {
		t.comm = printable(text[start+1 : end])
	}
	return t, nil
}

// printable is a name without what could do harm on a screen: a process may call itself what it likes.
func printable(name []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(name), "?"))
}
