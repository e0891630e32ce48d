package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/agent-go/internal/config"
)

// link is the connection to the bus with what sends over it. The ring and the spool outlive it.
type link struct {
	pub   *bus.Publisher
	print string // of the settings and files that it was made with
	close func()
	stop  context.CancelFunc
	group sync.WaitGroup
}

// connect makes a connection that comes about in the background, at some time within jitter.
func (p *process) connect(c *config.Config, jitter time.Duration) (*link, error) {
	closing := make(chan struct{})
	closed := func() {
		select {
		case <-closing:
		default:
			p.fail(ErrClosed)
		}
	}
	way := wayTo(c)
	way.Jitter = jitter
	nc, err := bus.Connect(way, closed, p.Log)
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	pub, err := bus.NewPublisher(nc, p.ring, p.spool, p.Log)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("bus: %w", err)
	}
	return &link{pub: pub, print: fingerprint(c), close: func() {
		close(closing)
		nc.Close()
	}}, nil
}

// wayTo is how to reach the bus.
func wayTo(c *config.Config) bus.Config {
	return bus.Config{
		Servers: c.NATS.Servers, Name: "heeler-agent " + c.Node, InboxPrefix: c.NATS.InboxPrefix,
		NoDiscovery: !c.NATS.Discover,
		Creds:       c.NATS.Creds, NKey: c.NATS.NKey, User: c.NATS.User, Password: c.NATS.Password,
		PasswordFile: c.NATS.PasswordFile, Token: c.NATS.Token, TokenFile: c.NATS.TokenFile,
		CA: c.NATS.TLS.CA, Cert: c.NATS.TLS.Cert, Key: c.NATS.TLS.Key, TLSFirst: c.NATS.TLS.First,
	}
}

// start begins to send. Sending goes on when ctx ends, until the link does.
func (l *link) start(ctx context.Context) {
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	start(&l.group, func() { l.pub.Run(ctx) })
}

func (l *link) end() {
	if l.stop != nil {
		l.stop()
	}
	waitFor(&l.group, collectTime)
	l.pub.Settle()
	l.close()
}

// fingerprint changes when the way to the bus does: its settings, or what is in the files that they name.
func fingerprint(c *config.Config) string {
	h := sha256.New()
	n := c.NATS
	n.BufferSamples, n.ConnectJitter = 0, config.Duration{}
	_ = json.NewEncoder(h).Encode(n)
	for _, path := range []string{n.Creds, n.NKey, n.PasswordFile, n.TokenFile, n.TLS.CA, n.TLS.Cert, n.TLS.Key} {
		if path == "" {
			continue
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(h, "%s %v %d\n", path, err, len(data))
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil))
}
