package outbox

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watch says when a file came into the folder. Where the kernel can't tell, the folder is only looked at now and then.
type watch struct {
	file *os.File
	came chan struct{}
	done sync.WaitGroup
}

func newWatch(path string) *watch {
	w := &watch{came: make(chan struct{}, 1)}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w
	}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MOVED_TO|unix.IN_ONLYDIR|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF); err != nil {
		_ = unix.Close(fd)
		return w
	}
	w.file = os.NewFile(uintptr(fd), "inotify") // not blocking: a read waits in the runtime's poller
	w.done.Add(1)
	go w.listen()
	return w
}

// listen ends when the file is closed.
func (w *watch) listen() {
	defer w.done.Done()
	buffer := make([]byte, 16<<10)
	for {
		if _, err := w.file.Read(buffer); err != nil {
			return
		}
		select {
		case w.came <- struct{}{}:
		default:
		}
	}
}

func (w *watch) close() {
	if w.file != nil {
		_ = w.file.Close()
		w.done.Wait()
	}
}
