package kmsg

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// fileReader follows a file of records, one a line, over rotation and truncation. A last line without its end waits.
type fileReader struct {
	path string
	f    *os.File
	at   position // behind the last whole line
	// buffer holds what was read behind at; room is where it stands.
	buffer, room []byte
	// files are those still to be read after this one.
	files []string
	skip  bool // inside a line that is too long
	// changes tells of writes; nil where that does not work, and the file is looked at every so often.
	changes *changes
	looked  time.Time // when it was last seen whether another file stands here
	caught  bool
	ended   bool // the last read found nothing
	head    [longestHead]byte
}

const (
	filePoll    = 20 * time.Millisecond
	fileChunk   = 16 << 10
	longestLine = 16 << 10
	// longestHead is how much of the beginning of a file tells it from another.
	longestHead = 256
)

func openFile(path string, from position) (reader, error) {
	r := &fileReader{path: path, at: from, room: make([]byte, 0, 2*fileChunk), changes: watchFile(path)}
	if from.Inode != 0 && inodeOf(path) != from.Inode {
		// The file was rotated while nobody read it: its old name may still be there.
		r.files = rotated(path, from.Inode)
	}
	r.files = append(r.files, path)
	if err := r.nextFile(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
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
	if r.f != nil {
		_ = r.f.Close()
	}
	r.f, r.buffer, r.skip, r.ended = f, nil, false, false
	if !same || r.at.Offset < 0 || info.Size() < r.at.Offset || r.headChanged() {
		r.at.Offset, r.at.Head, r.at.HeadLength = 0, 0, 0
	}
	r.at.Inode = inode(info)
	_, err = f.Seek(r.at.Offset, io.SeekStart)
	return err
}

// headChanged tells whether the file begins otherwise than when it was read: it is another one, with the inode of a file
// that was deleted, or it was cut to nothing and has grown again since.
func (r *fileReader) headChanged() bool {
	if r.at.HeadLength <= 0 || r.at.HeadLength > longestHead {
		return false
	}
	head := r.head[:r.at.HeadLength]
	if _, err := r.f.ReadAt(head, 0); err != nil {
		return true
	}
	return crc32.ChecksumIEEE(head) != r.at.Head
}

// learnHead remembers how the file begins, as far as it was read.
func (r *fileReader) learnHead() {
	length := min(r.at.Offset+int64(len(r.buffer)), longestHead)
	if length <= r.at.HeadLength {
		return
	}
	head := r.head[:length]
	if _, err := r.f.ReadAt(head, 0); err == nil {
		r.at.Head, r.at.HeadLength = crc32.ChecksumIEEE(head), int64(len(head))
	}
}

func (r *fileReader) caughtUp() bool { return r.caught }

func (r *fileReader) next(wait time.Duration) (item, error) {
	deadline := time.Now().Add(wait)
	for {
		if it, ok := r.line(); ok {
			r.changes.record()
			return it, nil
		}
		grown, err := r.fill()
		if err != nil {
			return item{}, err
		}
		if grown {
			continue
		}
		now := time.Now()
		if now.Sub(r.looked) >= filePoll {
			r.looked = now
			if moved, err := r.follow(); err != nil || moved {
				if err != nil {
					return item{}, err
				}
				continue
			}
		}
		r.caught = r.caught || len(r.files) == 0
		if !now.Before(deadline) {
			return item{}, errIdle
		}
		r.pause(deadline.Sub(now))
	}
}

// pause waits for the file to change.
func (r *fileReader) pause(wait time.Duration) {
	if len(r.files) > 0 {
		wait = min(filePoll, wait)
	}
	if moved := r.changes.wait(wait); moved {
		r.looked = time.Time{}
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
	// What is left of a line moves to the front: nothing is allocated however long the log is.
	r.buffer = append(r.room[:0], r.buffer...)
	n, err := r.f.Read(r.room[len(r.buffer):cap(r.room)])
	if n > 0 {
		if r.ended && r.headChanged() {
			return true, r.restart()
		}
		r.ended = false
		r.buffer = r.room[:len(r.buffer)+n]
		r.learnHead()
		return true, nil
	}
	r.ended = true
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
	if info.Size() < r.at.Offset+int64(len(r.buffer)) || r.headChanged() {
		return true, r.restart()
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
	r.changes.again()
	return true, r.take(r.path, false)
}

// restart reads the file from its beginning: it holds other lines than before.
func (r *fileReader) restart() error {
	r.buffer, r.skip, r.ended = nil, false, false
	r.at.Offset, r.at.Head, r.at.HeadLength = 0, 0, 0
	_, err := r.f.Seek(0, io.SeekStart)
	return err
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
	r.changes.close()
}
