// Package control is the agent's door for the people and the hooks of its own node: a Unix socket on which one line of
// JSON asks and one line answers. Who may knock is decided by the kernel's word on who they are.
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Request asks the agent for something.
type Request struct {
	Command string `json:"command"`
	// For is how long, as "10m".
	For string `json:"for,omitempty"`
	// Job is the Slurm job that it is about.
	Job string `json:"job,omitempty"`
}

// Answer says what happened, or why not.
type Answer struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
	// Status is an AgentStatus, where it was asked for.
	Status json.RawMessage `json:"status,omitempty"`
}

// Refuse is the answer to what cannot be done.
func Refuse(format string, args ...any) Answer { return Answer{Text: fmt.Sprintf(format, args...)} }

// Done is the answer to what was done.
func Done(format string, args ...any) Answer {
	return Answer{OK: true, Text: fmt.Sprintf(format, args...)}
}

// ErrNoAgent says that nobody answers at the socket.
var ErrNoAgent = errors.New("no agent answers")

// longestLine bounds a request, and longestAnswer what is taken for one.
const (
	longestLine   = 4 << 10
	longestAnswer = 1 << 20
)

// Ask sends a request to the agent and waits for its answer.
func Ask(ctx context.Context, path string, r Request) (Answer, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return Answer{}, fmt.Errorf("%w at %s: %w", ErrNoAgent, path, err)
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return Answer{}, err
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return Answer{}, fmt.Errorf("asking the agent: %w", err)
	}
	text, err := bufio.NewReader(io.LimitReader(conn, longestAnswer)).ReadBytes('\n')
	if err != nil {
		return Answer{}, fmt.Errorf("waiting for the agent's answer: %w", err)
	}
	var a Answer
	if err := json.Unmarshal(text, &a); err != nil {
		return Answer{}, fmt.Errorf("the agent's answer is unreadable: %w", err)
	}
	return a, nil
}

// requestTime is how long a client may take to say what it wants, answerTime to take the answer.
const (
	requestTime = 5 * time.Second
	answerTime  = 5 * time.Second
)

func readRequest(conn net.Conn) (Request, error) {
	var r Request
	if err := conn.SetReadDeadline(time.Now().Add(requestTime)); err != nil {
		return r, err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, longestLine)).ReadBytes('\n')
	if err != nil {
		return r, fmt.Errorf("no line of at most %d bytes came: %w", longestLine, err)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("not a request: %w", err)
	}
	return r, nil
}

func writeAnswer(conn net.Conn, a Answer) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	_, err = conn.Write(append(line, '\n'))
	return err
}
