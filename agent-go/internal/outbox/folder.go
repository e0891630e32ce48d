package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"heeler.dev/agent-go/internal/collector"
)

const (
	suffix = ".msg"
	badDir = "bad"
	// Of bad files so many are kept for a person to look at.
	mostBad      = 100
	mostBadBytes = 16 << 20
	longestName  = 255
)

// errForeign says that a file is not of a user whose words the agent passes on.
var errForeign = errors.New("refused")

// folder is the outbox while it is open. All names are looked up in it, so that nobody can put a link in the way.
type folder struct {
	*os.File
	owners []uint32
}

// openFolder opens the outbox. One that everybody may write to is refused: root's files could be exchanged in it.
func openFolder(path string, owners []uint32) (*folder, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%s: %w", path, collector.ErrAbsent)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := &folder{File: os.NewFile(uintptr(fd), path), owners: owners}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = f.Close()
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if !slices.Contains(owners, st.Uid) || st.Mode&0o002 != 0 {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w: owner %d, mode %#o", path, errForeign, st.Uid, st.Mode&0o7777)
	}
	return f, nil
}

func (f *folder) fd() int { return int(f.Fd()) }

// urgent says that a letter goes first and is dropped last: its file's name says so. Attribution waits for those.
func urgent(name string) bool { return strings.Contains(name, "PrologEvent") }

// list names the letters in the folder, the urgent ones first, else by name, which begins with the time.
func (f *folder) list() ([]string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	all, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(all, func(name string) bool {
		return strings.HasPrefix(name, ".") || !strings.HasSuffix(name, suffix) || len(name) > longestName
	})
	slices.SortFunc(names, func(a, b string) int {
		if ua, ub := urgent(a), urgent(b); ua != ub {
			if ua {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	return names, nil
}

// size is how large a file is, and no error says that it is gone.
func (f *folder) size(name string) int64 {
	var st unix.Stat_t
	if unix.Fstatat(f.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Size
}

// read reads a letter whole. It follows no link, waits for no pipe, and believes only files of certain owners.
func (f *folder) read(name string, most int64) ([]byte, error) {
	fd, err := unix.Openat(f.fd(), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: a link", errForeign)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1:
		return nil, fmt.Errorf("%w: not a file with one name", errForeign)
	case !slices.Contains(f.owners, st.Uid):
		return nil, fmt.Errorf("%w: owner %d", errForeign, st.Uid)
	case st.Mode&0o002 != 0:
		return nil, fmt.Errorf("%w: everybody may write to it", errForeign)
	case st.Size > most:
		return nil, fmt.Errorf("%d bytes, %d may be", st.Size, most)
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) != st.Size {
		err = errors.New("it changes while it is read")
	}
	return data, err
}

// remove removes a file; that it is gone already is as good.
func (f *folder) remove(name string) error {
	err := unix.Unlinkat(f.fd(), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(f.fd(), name, unix.AT_REMOVEDIR)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: filepath.Join(f.Name(), name), Err: err}
	}
	return nil
}

// setAside moves a bad file where a person can look at it, and removes the oldest of those.
func (f *folder) setAside(name string) error {
	if err := unix.Mkdirat(f.fd(), badDir, 0o750); err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: filepath.Join(f.Name(), badDir), Err: err}
	}
	fd, err := unix.Openat(f.fd(), badDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Join(f.Name(), badDir), Err: err}
	}
	bad := &folder{File: os.NewFile(uintptr(fd), filepath.Join(f.Name(), badDir)), owners: f.owners}
	defer func() { _ = bad.Close() }()
	if err := unix.Renameat(f.fd(), name, fd, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &os.PathError{Op: "move", Path: filepath.Join(f.Name(), name), Err: err}
	}
	return bad.keep(mostBad, mostBadBytes)
}

// keep removes the oldest files until no more are left than may be.
func (f *folder) keep(most int, mostBytes int64) error {
	names, err := f.list()
	if err != nil {
		return err
	}
	slices.Sort(names)
	var bytes int64
	for i, name := range slices.Backward(names) {
		bytes += f.size(name)
		if len(names)-i > most || bytes > mostBytes {
			if err := f.remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}
