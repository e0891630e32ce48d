package kmsg

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

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
	f      *os.File
	raw    syscall.RawConn
	buffer []byte
	last   position
	caught bool
}

const deviceBuffer = 16 << 10 // the kernel refuses to read a record into less than it needs

func openDevice(path string) (reader, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &deviceReader{f: f, raw: raw, buffer: make([]byte, deviceBuffer)}, nil
}

// read reads one record, and sees when there is none yet.
func (r *deviceReader) read() (n int, err error) {
	waited := r.raw.Read(func(fd uintptr) bool {
		for {
			n, err = syscall.Read(int(fd), r.buffer)
			if !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if errors.Is(err, syscall.EAGAIN) {
			r.caught = true
			return false
		}
		return true
	})
	if waited != nil {
		return 0, waited
	}
	return n, err
}

func (r *deviceReader) next(wait time.Duration) (item, error) {
	if err := r.f.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return item{}, err
	}
	n, err := r.read()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return item{}, errIdle
	case errors.Is(err, syscall.EPIPE):
		return item{}, errOverrun
	case err != nil:
		return item{}, err
	case n <= 0:
		return item{}, io.ErrUnexpectedEOF
	}
	it := item{data: string(r.buffer[:n]), before: r.last}
	if seq, ok := sequence(it.data); ok {
		r.last = position{Ordinal: seq}
	}
	it.after = r.last
	return it, nil
}

// sequence is the number of a record, its second field.
func sequence(data string) (uint64, bool) {
	_, rest, _ := strings.Cut(data, ",")
	field, _, ok := strings.Cut(rest, ",")
	n, err := strconv.ParseUint(field, 10, 64)
	return n, ok && err == nil
}

func (r *deviceReader) caughtUp() bool { return r.caught }

func (r *deviceReader) close() { _ = r.f.Close() }
