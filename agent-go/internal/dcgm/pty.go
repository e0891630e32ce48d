package dcgm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// output opens what the child's table comes through: a terminal, so that the child writes line by line as it reads. On a
// pipe the C library may hold lines back until 4 KiB are full, and then they would be stamped too late. Where there is no
// terminal to be had, a pipe must do.
func output() (read, write *os.File, err error) {
	if read, write, err = terminal(); err == nil {
		return read, write, nil
	}
	read, write, perr := os.Pipe()
	return read, write, perr
}

func terminal() (read, write *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	read = os.NewFile(uintptr(fd), "/dev/ptmx")
	defer func() {
		if err != nil {
			_ = read.Close()
		}
	}()
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	other, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	write = os.NewFile(uintptr(other), name)
	t, terr := unix.IoctlGetTermios(other, unix.TCGETS)
	if terr == nil { // lines as the child wrote them: no carriage returns, no echo
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
		terr = unix.IoctlSetTermios(other, unix.TCSETS, t)
	}
	if terr != nil {
		_ = write.Close()
		return nil, nil, terr
	}
	return read, write, nil
}

// ended tells whether an error of reading only says that the child is gone, or is to be: a terminal answers EIO then.
func ended(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded)
}
