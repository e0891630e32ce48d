package bus

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestANewSeedIsReadAfterRefusals(t *testing.T) {
	t.Parallel()
	pair := func() (string, string) {
		kp, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		seed, _ := kp.Seed()
		public, _ := kp.PublicKey()
		return string(seed), public
	}
	seed, public := pair()
	h := newHub(t, func(o *server.Options) {
		o.JetStream = false
		o.Nkeys = []*server.NkeyUser{{Nkey: public}}
	})
	h.start()
	path := filepath.Join(t.TempDir(), "seed")
	wrong, _ := pair()
	if err := os.WriteFile(path, []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSender(t, h, newSpool(t, t.TempDir()), func(c *Config) { c.NKey = path })
	time.Sleep(time.Second) // some refusals
	if s.nc.IsConnected() || s.nc.IsClosed() {
		t.Fatal("connected or closed with the wrong seed")
	}
	if err := os.WriteFile(path, []byte(seed), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "it connects with the new seed", s.nc.IsConnected)
}

// refused waits until the server has turned the sender away, and checks that it still tries.
func refused(t *testing.T, s *sender) {
	t.Helper()
	time.Sleep(700 * time.Millisecond)
	if s.nc.IsConnected() || s.nc.IsClosed() {
		t.Fatal("connected, or given up")
	}
}

func TestAPasswordThatIsReplacedIsReadAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	h := newHub(t, func(o *server.Options) { o.JetStream, o.Username, o.Password = false, "agent", "new" })
	h.start()
	s := newSender(t, h, newSpool(t, t.TempDir()), func(c *Config) { c.User, c.PasswordFile = "agent", path })
	refused(t, s) // the file is not even there
	write(t, path, "old\n")
	refused(t, s)
	write(t, path, "new\n")
	until(t, "it connects", s.nc.IsConnected)
}

func TestATokenThatIsReplacedIsReadAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "first")
	h := newHub(t, func(o *server.Options) { o.JetStream, o.Authorization = false, "first" })
	h.start()
	s := newSender(t, h, newSpool(t, t.TempDir()), func(c *Config) { c.TokenFile = path })
	until(t, "it connects", s.nc.IsConnected)
	h.stop()
	h.options.Authorization = "second"
	h.start()
	refused(t, s)
	write(t, path, "second")
	until(t, "it connects with the new one", s.nc.IsConnected)
}

// operator is an operator with one account, for servers that take creds.
type operator struct {
	t       *testing.T
	keys    nkeys.KeyPair
	account nkeys.KeyPair
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	keys, err := nkeys.CreateOperator()
	if err != nil {
		t.Fatal(err)
	}
	account, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	return &operator{t, keys, account}
}

func public(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (o *operator) configure(s *server.Options) {
	o.t.Helper()
	key := public(o.t, o.keys)
	claims := jwt.NewOperatorClaims(key)
	account := jwt.NewAccountClaims(public(o.t, o.account))
	token, err := account.Encode(o.keys)
	if err != nil {
		o.t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(public(o.t, o.account), token); err != nil {
		o.t.Fatal(err)
	}
	s.JetStream, s.TrustedOperators, s.AccountResolver = false, []*jwt.OperatorClaims{claims}, resolver
}

// creds writes a user's file that is good for so long.
func (o *operator) creds(path string, long time.Duration) {
	o.t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		o.t.Fatal(err)
	}
	claims := jwt.NewUserClaims(public(o.t, user))
	claims.Expires = time.Now().Add(long).Unix()
	token, err := claims.Encode(o.account)
	if err != nil {
		o.t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		o.t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		o.t.Fatal(err)
	}
	write(o.t, path, string(text))
}

func TestCredsThatExpireAreReadAnew(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	h := newHub(t, o.configure)
	h.start()
	path := filepath.Join(t.TempDir(), "agent.creds")
	o.creds(path, 2*time.Second)
	s := newSender(t, h, newSpool(t, t.TempDir()), func(c *Config) { c.Creds = path })
	until(t, "it connects", s.nc.IsConnected)
	until(t, "the server ends what has expired", func() bool { return !s.nc.IsConnected() })
	refused(t, s)
	o.creds(path, time.Hour)
	until(t, "it connects with the new ones", s.nc.IsConnected)
}

func TestMissingFilesAreWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := newOperator(t)
	h := newHub(t, o.configure)
	h.start()
	path := filepath.Join(dir, "agent.creds")
	s := newSender(t, h, newSpool(t, t.TempDir()), func(c *Config) { c.Creds = path })
	refused(t, s)
	o.creds(path, time.Hour)
	until(t, "it connects", s.nc.IsConnected)
}
