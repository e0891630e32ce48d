package heelerv1

import "errors"

// DrainCommand is what an operator wants of the drainer. Who that is, is the subject's last token, and no key.
type DrainCommand struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	// TS: an old command is refused.
	TS int64 `msg:"ts"`
	// ID: the same id of the same operator again does nothing and gets the same answer.
	ID         string  `msg:"id"`
	Command    Command `msg:"command"`
	Why        string  `msg:"why,omitempty"`
	DeadlineTS *int64  `msg:"deadline_ts,omitempty"`
	FindingID  string  `msg:"finding_id,omitempty"`
	// Breaker: of trip_breaker and reset_breaker.
	Breaker BreakerName `msg:"breaker,omitempty"`
	// ForS: how long a pause lasts; nil until it is resumed.
	ForS *Number `msg:"for_s,omitempty"`
}

// Command is pause, resume, approve, trip_breaker, reset_breaker or unknown.
type Command string

// BreakerName is drain, prolog or unknown.
type BreakerName string

// DrainQuestion asks the drainer how things stand, or what it would do and why.
type DrainQuestion struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	TS      int64  `msg:"ts"`
	ID      string `msg:"id"`
	About   About  `msg:"about"`
	// Name: a finding's id or a node.
	Name string `msg:"name,omitempty"`
}

// About is status, explain or unknown.
type About string

// DrainAnswer is what the active drainer answers to a DrainCommand or a DrainQuestion.
type DrainAnswer struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	TS      int64  `msg:"ts"`
	ID      string `msg:"id"`
	// By is the drainer's instance.
	By       string           `msg:"by"`
	Outcome  HandOutcome      `msg:"outcome"`
	Why      string           `msg:"why"`
	Rule     string           `msg:"rule,omitempty"`
	Actor    string           `msg:"actor,omitempty"`
	Again    *bool            `msg:"again,omitempty"`
	Standing map[string]any   `msg:"standing,omitempty,allownil"`
	Cases    []map[string]any `msg:"cases,omitempty,allownil"`
	Node     map[string]any   `msg:"node,omitempty,allownil"`
}

// HandOutcome is done, refused or unknown.
type HandOutcome string

// ErrActor says that the last token of a subject is who speaks, which stands in no payload, so that nobody can claim it there.
var ErrActor = errors.New("the subject's actor stands in no payload")

// Subject implements [Message].
func (m *DrainCommand) Subject() (string, error) { return "", ErrActor }

// Subject implements [Message].
func (m *DrainQuestion) Subject() (string, error) { return "", ErrActor }

// Subject implements [Message].
func (m *DrainAnswer) Subject() (string, error) { return "", ErrActor }

// Type implements [Message].
func (*DrainCommand) Type() string { return "DrainCommand" }

// Type implements [Message].
func (*DrainQuestion) Type() string { return "DrainQuestion" }

// Type implements [Message].
func (*DrainAnswer) Type() string { return "DrainAnswer" }

func (m *DrainCommand) version() int  { return m.V }
func (m *DrainQuestion) version() int { return m.V }
func (m *DrainAnswer) version() int   { return m.V }

func (m *DrainCommand) settle() {
	oneOf(&m.Command, commands...)
	optionalOneOf(&m.Breaker, breakers...)
}

func (m *DrainQuestion) settle() { oneOf(&m.About, "status", "explain") }

func (m *DrainAnswer) settle() { oneOf(&m.Outcome, "done", "refused") }

var (
	commands = []Command{"pause", "resume", "approve", "trip_breaker", "reset_breaker"}
	breakers = []BreakerName{"drain", "prolog"}
)

func (m *DrainCommand) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("id", m.ID))
}

func (m *DrainQuestion) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("id", m.ID))
}

func (m *DrainAnswer) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("id", m.ID), name("by", m.By))
}
