package hostfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Reader reads small files of /proc and /sys again and again without leaving garbage: one buffer, and bare system
// calls in place of os.File, which would ask the poller about each file. It is not for several goroutines.
type Reader struct {
	buffer []byte
}

const (
	firstBuffer   = 4096    // what most files of /proc and all of /sys fit in
	largestBuffer = 1 << 20 // /proc/stat of a node with a thousand CPUs is a few hundred kilobytes
)

// ErrTooLarge says that a file is larger than any that the kernel is known to make.
var ErrTooLarge = errors.New("too large")

// Read reads a whole file. What it returns is good until the next call.
func (r *Reader) Read(path string) ([]byte, error) {
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	data, err := r.readAll(fd)
	_ = unix.Close(fd)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

// Line is [Reader.Read] without the white space around the text.
func (r *Reader) Line(path string) ([]byte, error) {
	data, err := r.Read(path)
	return bytes.TrimSpace(data), err
}

func open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return -1, fmt.Errorf("open %s: %w", path, err)
		}
		return fd, nil
	}
}

// readAll reads until the end: one read need not give all that a file of /proc holds.
func (r *Reader) readAll(fd int) ([]byte, error) {
	if r.buffer == nil {
		r.buffer = make([]byte, firstBuffer)
	}
	filled := 0
	for {
		if filled == len(r.buffer) {
			if filled >= largestBuffer {
				return nil, ErrTooLarge
			}
			r.buffer = append(r.buffer, make([]byte, len(r.buffer))...)
		}
		n, err := unix.Read(fd, r.buffer[filled:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n <= 0:
			return r.buffer[:filled], nil
		default:
			filled += n
		}
	}
}

// Reason is an error of reading a file as the bus carries it.
func Reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "not_present"
	case errors.Is(err, unix.EINVAL):
		return "invalid"
	case errors.Is(err, fs.ErrPermission):
		return "no_permission"
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ESRCH):
		return "gone"
	case errors.Is(err, unix.EIO):
		return "io_error"
	case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EOPNOTSUPP):
		return "not_supported"
	case errors.Is(err, ErrFormat):
		return "not_understood"
	case errors.Is(err, ErrTooLarge):
		return "too_large"
	default:
		return "error"
	}
}

// ErrFormat says that a file does not hold what it should.
var ErrFormat = errors.New("not understood")
