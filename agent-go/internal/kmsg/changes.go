package kmsg

import (
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// changes tells when a file was written to, so that nobody has to look all the time. All its methods work on nil.
type changes struct {
	path   string
	fd     int
	pace   pace
	buffer [4096]byte
}

const (
	ofFile   = unix.IN_MODIFY | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF
	ofFolder = unix.IN_CREATE | unix.IN_MOVED_TO
)

// watchFile returns nil where the system does not tell of changes.
func watchFile(path string) *changes {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	c := &changes{path: path, fd: fd}
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), ofFolder); err != nil || !c.again() {
		c.close()
		return nil
	}
	return c
}

// again watches the file that bears the name now.
func (c *changes) again() bool {
	if c == nil {
		return false
	}
	_, err := unix.InotifyAddWatch(c.fd, c.path, ofFile)
	return err == nil
}

// record says that the file gave a record.
func (c *changes) record() {
	if c != nil {
		c.pace.record()
	}
}

// wait waits for a change, and tells whether another file may stand here now.
func (c *changes) wait(long time.Duration) bool {
	if c == nil {
		time.Sleep(min(filePoll, long))
		return false
	}
	if c.pace.wait(c.fd, long) != nil {
		time.Sleep(min(filePoll, long))
	}
	n, err := unix.Read(c.fd, c.buffer[:])
	if err != nil {
		return false
	}
	moved := false
	for at := 0; at+unix.SizeofInotifyEvent <= n; {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&c.buffer[at]))
		moved = moved || event.Mask&^uint32(unix.IN_MODIFY) != 0
		at += unix.SizeofInotifyEvent + int(event.Len)
	}
	return moved
}

func (c *changes) close() {
	if c != nil {
		_ = unix.Close(c.fd)
	}
}
