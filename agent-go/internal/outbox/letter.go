package outbox

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/schemas/go/heelerv1"
)

// Identity is whom letters may speak for.
type Identity struct{ Cluster, Node string }

const longestID = 512

// open reads a letter: a map with subject, type, id and data. It is taken only if it is one of the few types that a
// node's other programs say, speaks for this node, and goes where such a message goes. So nothing that somebody puts
// into the folder makes the agent publish elsewhere, or under an id of another message.
func open(raw []byte, self Identity) (bus.Envelope, error) {
	e, err := unpack(raw)
	if err != nil {
		return e, err
	}
	m, err := heelerv1.DecodeAs(e.Type, e.Data)
	if err != nil {
		return e, err
	}
	of, ok := speaker(m)
	switch {
	case !ok:
		return e, fmt.Errorf("%s does not go this way", m.Type())
	case of != self:
		return e, fmt.Errorf("it speaks for %q in %q, not for %q in %q", of.Node, of.Cluster, self.Node, self.Cluster)
	}
	subject, err := m.Subject()
	if err != nil {
		return e, err
	}
	if subject != e.Subject {
		return e, fmt.Errorf("subject %q, and not %q", e.Subject, subject)
	}
	return e, checkID(e.ID, m.Type(), self)
}

// speaker is whom a message speaks for. It says no for all types that other programs may not send through the agent.
func speaker(m heelerv1.Message) (Identity, bool) {
	switch m := m.(type) {
	case *heelerv1.HealthResult:
		return Identity{m.Cluster, m.Node}, true
	case *heelerv1.HealthRun:
		return Identity{m.Cluster, m.Node}, true
	case *heelerv1.PrologEvent:
		return Identity{m.Cluster, m.Node}, true
	default:
		return Identity{}, false
	}
}

// checkID refuses an id that might be another message's: streams take each id once.
func checkID(id, kind string, self Identity) error {
	if len(id) > longestID || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("id %q is too long, or not of plain letters", id)
	}
	rest, ok := strings.CutPrefix(id, kind+".")
	for _, name := range []string{self.Cluster, self.Node} {
		token, err := heelerv1.Token(name)
		if err != nil {
			return err
		}
		after, plain := strings.CutPrefix(rest, name+".")
		if !plain {
			after, plain = strings.CutPrefix(rest, token+".")
		}
		rest, ok = after, ok && plain
	}
	if !ok || rest == "" {
		return fmt.Errorf("id %q does not begin with the type, cluster and node", id)
	}
	return nil
}

var (
	errNoMap  = errors.New("not a map")
	errBeyond = errors.New("bytes after the end")
)

func unpack(raw []byte) (bus.Envelope, error) {
	var e bus.Envelope
	if msgp.NextType(raw) != msgp.MapType {
		return e, errNoMap
	}
	n, b, err := msgp.ReadMapHeaderBytes(raw)
	if err != nil {
		return e, err
	}
	seen := map[string]bool{}
	for range n {
		var key string
		if key, b, err = msgp.ReadStringBytes(b); err != nil {
			return e, err
		}
		if seen[key] {
			return e, fmt.Errorf("%q twice", key)
		}
		seen[key] = true
		switch key {
		case "subject":
			e.Subject, b, err = msgp.ReadStringBytes(b)
		case "type":
			e.Type, b, err = msgp.ReadStringBytes(b)
		case "id":
			e.ID, b, err = msgp.ReadStringBytes(b)
		case "data":
			e.Data, b, err = msgp.ReadBytesBytes(b, nil)
		default: // of a newer writer
			b, err = msgp.Skip(b)
		}
		if err != nil {
			return e, fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(b) > 0 {
		return e, errBeyond
	}
	for _, key := range []string{"subject", "type", "id", "data"} {
		if !seen[key] {
			return e, fmt.Errorf("no %s", key)
		}
	}
	return e, nil
}
