package kmsg

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"heeler.dev/agent-go/internal/collector"
)

// position is where reading goes on: for the kernel's ring the sequence number, for a file also the place in it.
type position struct {
	// Ordinal is the number of the last record read: the kernel's own, or for a file the count of its lines.
	Ordinal uint64
	Inode   uint64
	Offset  int64
	// Head and HeadLength tell the file from another of the same inode.
	Head       uint32 `json:",omitempty"`
	HeadLength int64  `json:",omitempty"`
}

// item is one record as read.
type item struct {
	data   string
	before position
	after  position
}

var (
	// errIdle says that nothing came in the time given.
	errIdle = errors.New("no record yet")
	// errOverrun says that records were overwritten before they were read.
	errOverrun = errors.New("records were overwritten")
)

// reader gives records, one at a time.
type reader interface {
	next(wait time.Duration) (item, error)
	// caughtUp tells whether all that was there when the reader was opened has been given.
	caughtUp() bool
	close()
}

// open opens the kernel's own device, or a file in the same form that grows.
func open(path string, from position) (reader, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", collector.ErrAbsent, path)
	}
	if err != nil {
		return nil, err
	}
	if info.Mode()&os.ModeCharDevice != 0 {
		return openDevice(path)
	}
	return openFile(path, from)
}

// deviceReader reads /dev/kmsg, where each read gives one record.
type deviceReader struct {
	fd     int
	buffer []byte
	last   position
	pace   pace
	caught bool
}

const deviceBuffer = 16 << 10 // the kernel refuses to read a record into less than it needs

func openDevice(path string) (reader, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &deviceReader{fd: fd, buffer: make([]byte, deviceBuffer)}, nil
}

func (r *deviceReader) next(wait time.Duration) (item, error) {
	for deadline := time.Now().Add(wait); ; {
		n, err := unix.Read(r.fd, r.buffer)
		switch {
		case err == nil && n > 0:
			r.pace.record()
			return r.item(string(r.buffer[:n])), nil
		case errors.Is(err, unix.EAGAIN):
			r.caught = true
			left := time.Until(deadline)
			if left <= 0 {
				return item{}, errIdle
			}
			if err := r.pace.wait(r.fd, left); err != nil {
				return item{}, err
			}
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EPIPE):
			return item{}, errOverrun
		case err != nil:
			return item{}, err
		default:
			return item{}, io.ErrUnexpectedEOF
		}
	}
}

func (r *deviceReader) item(data string) item {
	it := item{data: data, before: r.last}
	if seq, ok := sequence(data); ok {
		r.last = position{Ordinal: seq}
	}
	it.after = r.last
	return it
}

// sequence is the number of a record, its second field.
func sequence(data string) (uint64, bool) {
	_, rest, _ := strings.Cut(data, ",")
	field, _, ok := strings.Cut(rest, ",")
	n, err := strconv.ParseUint(field, 10, 64)
	return n, ok && err == nil
}

func (r *deviceReader) caughtUp() bool { return r.caught }

func (r *deviceReader) close() { _ = unix.Close(r.fd) }

// pace waits for the next record. A log that rests is waited for in the kernel, so that its first record comes at once.
// One that does not rest is looked at every so often: to be woken for each of a thousand lines a second costs more than
// to read them.
type pace struct{ newest time.Time }

// gather is how long the records of a busy log are let pile up.
const gather = 2 * time.Millisecond

func (p *pace) record() { p.newest = time.Now() }

// wait returns when there may be something to read, or after so long.
func (p *pace) wait(fd int, long time.Duration) error {
	if time.Since(p.newest) < gather {
		pause := unix.NsecToTimespec(min(gather, long).Nanoseconds())
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &pause, nil) // ends early at a signal, which is no harm
		return nil
	}
	left := unix.NsecToTimespec(long.Nanoseconds())
	_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &left, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	return nil
}
