package kmsg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	buffer []byte
	last   position
}

const deviceBuffer = 16 << 10 // the kernel refuses to read a record into less than it needs

func openDevice(path string) (reader, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return &deviceReader{f: f, buffer: make([]byte, deviceBuffer)}, nil
}

func (r *deviceReader) next(wait time.Duration) (item, error) {
	if err := r.f.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return item{}, err
	}
	n, err := r.f.Read(r.buffer)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return item{}, errIdle
	case errors.Is(err, syscall.EPIPE):
		return item{}, errOverrun
	case err != nil:
		return item{}, err
	}
	it := item{data: string(r.buffer[:n]), before: r.last}
	if rec, err := ParseRecord(it.data); err == nil {
		r.last = position{Ordinal: rec.Seq}
	}
	it.after = r.last
	return it, nil
}

func (r *deviceReader) close() { _ = r.f.Close() }

// fileReader follows a file of records, one a line, over rotation and truncation. A last line without its end waits.
type fileReader struct {
	path string
	f    *os.File
	at   position // behind the last whole line
	// buffer holds what was read behind at.
	buffer []byte
	chunk  []byte
	// files are those still to be read after this one.
	files []string
	skip  bool // inside a line that is too long
}

const (
	filePoll    = 20 * time.Millisecond
	fileChunk   = 16 << 10
	longestLine = 16 << 10
)

func openFile(path string, from position) (reader, error) {
	r := &fileReader{path: path, at: from, chunk: make([]byte, fileChunk)}
	if from.Inode != 0 && inodeOf(path) != from.Inode {
		// The file was rotated while nobody read it: its old name may still be there.
		r.files = rotated(path, from.Inode)
	}
	r.files = append(r.files, path)
	return r, r.nextFile()
}

func inodeOf(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return inode(info)
}

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// rotated finds the file that has the inode, among those that rotation names after path.
func rotated(path string, wanted uint64) []string {
	siblings, err := filepath.Glob(path + ".*")
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(siblings, func(s string) bool { return inodeOf(s) == wanted })
	if i < 0 {
		return nil
	}
	return siblings[i : i+1]
}

func (r *fileReader) nextFile() error {
	name := r.files[0]
	r.files = r.files[1:]
	return r.take(name, inodeOf(name) == r.at.Inode)
}

// take opens a file, at the position if it is the same file.
func (r *fileReader) take(path string, same bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	r.close()
	r.f, r.buffer, r.skip = f, nil, false
	if !same || info.Size() < r.at.Offset {
		r.at.Offset = 0
	}
	r.at.Inode = inode(info)
	_, err = f.Seek(r.at.Offset, io.SeekStart)
	return err
}

func (r *fileReader) next(wait time.Duration) (item, error) {
	deadline := time.Now().Add(wait)
	for {
		if it, ok := r.line(); ok {
			return it, nil
		}
		grown, err := r.fill()
		if err != nil {
			return item{}, err
		}
		if grown {
			continue
		}
		if moved, err := r.follow(); err != nil || moved {
			if err != nil {
				return item{}, err
			}
			continue
		}
		if time.Now().After(deadline) {
			return item{}, errIdle
		}
		time.Sleep(min(filePoll, wait))
	}
}

// line takes the next whole line from the buffer. Lines that begin with a space go with the record before.
func (r *fileReader) line() (item, bool) {
	for {
		end := bytes.IndexByte(r.buffer, '\n')
		if end < 0 {
			if len(r.buffer) > longestLine {
				r.skip = true
				r.at.Offset += int64(len(r.buffer))
				r.buffer = nil
			}
			return item{}, false
		}
		it := item{data: string(r.buffer[:end]), before: r.at}
		r.buffer = r.buffer[end+1:]
		r.at.Offset += int64(end + 1)
		whole := !r.skip
		r.skip = false
		if !whole || it.data == "" || strings.HasPrefix(it.data, " ") {
			continue
		}
		r.at.Ordinal++
		it.after = r.at
		return it, true
	}
}

func (r *fileReader) fill() (bool, error) {
	n, err := r.f.Read(r.chunk)
	if n > 0 {
		r.buffer = append(r.buffer, r.chunk[:n]...)
		return true, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return false, nil
}

// follow notices that the file was cut short or that another stands in its place. It is called at the end of the file.
func (r *fileReader) follow() (bool, error) {
	info, err := r.f.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() < r.at.Offset {
		r.buffer, r.at.Offset = nil, 0
		_, err := r.f.Seek(0, io.SeekStart)
		return true, err
	}
	if len(r.files) > 0 {
		if r.finish() {
			return true, nil
		}
		return true, r.nextFile()
	}
	now := inodeOf(r.path)
	if now == 0 || now == r.at.Inode {
		return false, nil
	}
	// What was written between the last read and the renaming comes first.
	if grown, err := r.fill(); err != nil || grown {
		return grown, err
	}
	if r.finish() {
		return true, nil
	}
	return true, r.take(r.path, false)
}

// finish ends a last line that will never get its end, since the file was put away.
func (r *fileReader) finish() bool {
	if len(r.buffer) == 0 || r.buffer[len(r.buffer)-1] == '\n' {
		return false
	}
	r.buffer = append(r.buffer, '\n')
	return true
}

func (r *fileReader) close() {
	if r.f != nil {
		_ = r.f.Close()
	}
}
