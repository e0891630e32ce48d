// Package bus carries messages from the agent to NATS: samples through a bounded ring by plain publish, events from the
// spool with JetStream's acknowledgement, and the newest status and inventory until they are acknowledged.
package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Config says how to reach the bus.
type Config struct {
	Servers     []string
	Name        string
	InboxPrefix string
	// One of these at most: a creds file, a file with an NKEY seed, user and password, a token.
	Creds    string
	NKey     string
	User     string
	Password string
	Token    string
	// TLS files; all may be empty.
	CA, Cert, Key string
}

const (
	dialTime     = 5 * time.Second
	pingTime     = 20 * time.Second
	missedPings  = 2
	firstBackoff = 250 * time.Millisecond
	longestWait  = 30 * time.Second
)

// backoff is how long to wait before the given try at all servers: any time up to a bound that doubles, so that a
// fleet that lost its servers together does not come back together.
func backoff(try int) time.Duration {
	bound := longestWait
	if try < 8 {
		bound = min(longestWait, firstBackoff<<try)
	}
	return rand.N(bound) + 10*time.Millisecond
}

// Connect returns a connection that is made in the background and comes back for ever, also after the servers refused
// the credentials, which are read anew each time. closed hears when the library gave up in spite of that.
func Connect(c Config, closed func(), log *slog.Logger) (*nats.Conn, error) {
	say := outages{log: log}
	var made atomic.Pointer[nats.Conn]
	delay := func(try int) time.Duration {
		c.renewKey(made.Load())
		return backoff(try)
	}
	options := []nats.Option{
		nats.Name(c.Name), nats.NoEcho(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), nats.CustomReconnectDelay(delay), nats.ReconnectBufSize(-1),
		nats.Timeout(dialTime), nats.PingInterval(pingTime), nats.MaxPingsOutstanding(missedPings),
		nats.ConnectHandler(func(nc *nats.Conn) { say.well(nc.ConnectedUrlRedacted()) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { say.well(nc.ConnectedUrlRedacted()) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { say.away(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { say.away(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { say.trouble(err) }),
		nats.ClosedHandler(func(*nats.Conn) { closed() }),
	}
	if c.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	identity, err := c.identity()
	if err != nil {
		return nil, err
	}
	options = append(options, identity...)
	nc, err := nats.Connect(strings.Join(c.Servers, ","), append(options, c.tls()...)...)
	made.Store(nc)
	return nc, err
}

// renewKey takes over a seed that was replaced. The library asks for the signature anew at each try, but keeps the
// public key; between two tries only the goroutine that is about to make the next one, which calls this, uses it.
func (c Config) renewKey(nc *nats.Conn) {
	if nc == nil || c.NKey == "" || c.Creds != "" {
		return
	}
	if key, err := publicKey(c.NKey); err == nil {
		nc.Opts.Nkey = key
	}
}

func (c Config) identity() ([]nats.Option, error) {
	switch {
	case c.Creds != "":
		return []nats.Option{nats.UserCredentials(c.Creds)}, nil
	case c.NKey != "":
		key, err := publicKey(c.NKey)
		if err != nil {
			return nil, fmt.Errorf("nkey: %w", err)
		}
		return []nats.Option{nats.Nkey(key, func(nonce []byte) ([]byte, error) { return sign(c.NKey, nonce) })}, nil
	case c.User != "":
		return []nats.Option{nats.UserInfo(c.User, c.Password)}, nil
	case c.Token != "":
		return []nats.Option{nats.Token(c.Token)}, nil
	default:
		return nil, nil
	}
}

func keyPair(path string) (nkeys.KeyPair, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if seed := strings.TrimSpace(line); strings.HasPrefix(seed, "SU") {
			return nkeys.FromSeed([]byte(seed))
		}
	}
	return nil, errors.New("no user seed in " + path)
}

func publicKey(path string) (string, error) {
	pair, err := keyPair(path)
	if err != nil {
		return "", err
	}
	defer pair.Wipe()
	return pair.PublicKey()
}

func sign(path string, nonce []byte) ([]byte, error) {
	pair, err := keyPair(path)
	if err != nil {
		return nil, err
	}
	defer pair.Wipe()
	return pair.Sign(nonce)
}

func (c Config) tls() []nats.Option {
	var options []nats.Option
	if c.CA != "" {
		options = append(options, nats.RootCAs(c.CA))
	}
	if c.Cert != "" {
		options = append(options, nats.ClientCert(c.Cert, c.Key))
	}
	return options
}

// outages logs one line when the bus goes away and one when it is back.
type outages struct {
	log  *slog.Logger
	mu   sync.Mutex
	gone bool
}

func (o *outages) well(url string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = false
	o.log.Info("connected to the bus", "server", url)
}

func (o *outages) away(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.gone && err != nil { // without an error it was us who closed
		o.gone = true
		o.log.Warn("the bus is away; trying on", "error", err)
	}
}

func (o *outages) trouble(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.gone {
		o.log.Warn("the bus reports trouble", "error", err)
	}
}
