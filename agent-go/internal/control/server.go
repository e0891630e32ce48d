package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peer is who asks, as the kernel says.
type Peer struct {
	PID int32
	UID uint32
	GID uint32
}

// String implements [fmt.Stringer].
func (p Peer) String() string { return fmt.Sprintf("pid %d uid %d", p.PID, p.UID) }

// Handler does what a request asks for.
type Handler func(ctx context.Context, r Request, from Peer) Answer

// Server answers at a socket.
type Server struct {
	listener *net.UnixListener
	handle   Handler
	log      *slog.Logger
	places   chan struct{}
}

const (
	mode      = 0o660 // root, the agent's user, and its group
	mostAtAll = 8     // clients at a time
	liveTime  = 500 * time.Millisecond
)

// Listen makes the socket, in the place of one that a dead agent has left, but not of one at which an agent answers.
func Listen(path string, handle Handler, log *slog.Logger) (*Server, error) {
	if conn, err := net.DialTimeout("unix", path, liveTime); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("another agent answers at %s", path)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s is there and is no socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return &Server{listener: listener, handle: handle, log: log, places: make(chan struct{}, mostAtAll)}, nil
}

// Run answers until ctx ends, and removes the socket.
func (s *Server) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer func() {
		stop()
		_ = s.listener.Close()
	}()
	var clients sync.WaitGroup
	defer clients.Wait()
	for ctx.Err() == nil {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() == nil { // such as no descriptors left
				s.log.Warn("control socket", "error", err)
				time.Sleep(liveTime)
			}
			continue
		}
		select {
		case s.places <- struct{}{}:
		default: // slow clients must not pile up; this one may come again
			_ = conn.Close()
			continue
		}
		clients.Add(1)
		go func() {
			defer clients.Done()
			defer func() { <-s.places }()
			s.serve(ctx, conn)
		}()
	}
}

func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	a := s.answer(ctx, conn)
	if err := writeAnswer(conn, a); err != nil {
		s.log.Debug("control client did not take its answer", "error", err)
	}
}

func (s *Server) answer(ctx context.Context, conn *net.UnixConn) (a Answer) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("control request panics", "panic", p, "stack", string(debug.Stack()))
			a = Refuse("the agent could not do that: %v", p)
		}
	}()
	peer, groups, err := peerOf(conn)
	if err != nil {
		return Refuse("who asks is not known: %v", err)
	}
	r, err := readRequest(conn) // also of those who may not: one that is cut off while it writes has no answer
	switch {
	case err != nil:
		return Refuse("%v", err)
	case !allowed(peer, groups):
		s.log.Warn("control request refused", "from", peer.String())
		return Refuse("uid %d may not control this agent: only root, its own user and its own group may", peer.UID)
	}
	return s.handle(ctx, r, peer)
}

func allowed(p Peer, groups []uint32) bool {
	own := uint32(os.Getegid())
	return p.UID == 0 || p.UID == uint32(os.Geteuid()) || p.GID == own || slices.Contains(groups, own)
}

// peerOf asks the kernel who is at the other end, and in which further groups.
func peerOf(conn *net.UnixConn) (Peer, []uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, nil, err
	}
	var cred *unix.Ucred
	var groups []uint32
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		groups = peerGroups(fd)
	})
	if err := errors.Join(err, failed); err != nil {
		return Peer{}, nil, err
	}
	return Peer{PID: cred.Pid, UID: cred.Uid, GID: cred.Gid}, groups, nil
}

// peerGroups is empty where the kernel does not say.
func peerGroups(fd uintptr) []uint32 {
	groups := make([]uint32, 1024)
	size := uint32(len(groups)) * uint32(unsafe.Sizeof(groups[0]))
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil
	}
	return groups[:size/uint32(unsafe.Sizeof(groups[0]))]
}
