package bus

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// identity says who the agent is. What stands in files is read at each try to connect, so that it can be replaced
// while the agent runs; a file that cannot be read is told of, and tried again.
func (c Config) identity(say *outages) []nats.Option {
	switch {
	case c.Creds != "":
		return []nats.Option{nats.UserJWT(
			func() (string, error) { return userJWT(c.Creds, say), nil },
			func(nonce []byte) ([]byte, error) { return sign(c.Creds, nonce) },
		)}
	case c.NKey != "":
		key, err := publicKey(c.NKey)
		if err != nil {
			say.trouble(fmt.Errorf("nkey: %w", err))
		}
		return []nats.Option{nats.Nkey(key, func(nonce []byte) ([]byte, error) { return sign(c.NKey, nonce) })}
	case c.User != "":
		return []nats.Option{nats.UserInfoHandler(func() (string, string) {
			return c.User, secret(c.Password, c.PasswordFile, say)
		})}
	case c.Token != "" || c.TokenFile != "":
		return []nats.Option{nats.TokenHandler(func() string { return secret(c.Token, c.TokenFile, say) })}
	default:
		return nil
	}
}

// secret is what was given, or else the first line of a file.
func secret(given, path string, say *outages) string {
	if given != "" || path == "" {
		return given
	}
	data, err := os.ReadFile(path)
	if err != nil {
		say.trouble(err)
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSuffix(line, "\r")
}

// renewKey takes over a seed that was replaced. The library asks for the signature anew at each try, but keeps the
// public key; it is called under the connection's lock, by the goroutine that is about to make the next try.
func (c Config) renewKey(nc *nats.Conn) {
	if nc == nil || c.NKey == "" || c.Creds != "" {
		return
	}
	if key, err := publicKey(c.NKey); err == nil {
		nc.Opts.Nkey = key
	}
}

// userJWT reads the token of a creds file.
func userJWT(path string, say *outages) string {
	data, err := os.ReadFile(path)
	if err == nil {
		var token string
		if token, err = nkeys.ParseDecoratedJWT(data); err == nil {
			return token
		}
	}
	say.trouble(fmt.Errorf("creds: %w", err)) // the server will refuse us; an error here would end the agent
	return ""
}

// keyPair reads the user's seed of a creds file, or of one that holds nothing else.
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

// tls reads certificates at each try to connect, as above. The library's own options would end the agent where a file
// is missing as it starts.
func (c Config) tls() []nats.Option {
	if c.CA == "" && c.Cert == "" && !c.TLSFirst {
		return nil
	}
	return []nats.Option{func(o *nats.Options) error {
		o.Secure, o.TLSHandshakeFirst = true, c.TLSFirst
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if c.CA != "" {
			o.RootCAsCB = c.authorities
		}
		if c.Cert != "" {
			o.TLSCertCB = func() (tls.Certificate, error) { return tls.LoadX509KeyPair(c.Cert, c.Key) }
		}
		return nil
	}}
}

func (c Config) authorities() (*x509.CertPool, error) {
	data, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: no certificate", c.CA)
	}
	return pool, nil
}

// Check tells whether all files that the configuration names can be used now. A connection does not need that: what is
// not there yet is waited for.
func (c Config) Check() error {
	var errs []error
	also := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	if c.Creds != "" {
		data, err := os.ReadFile(c.Creds)
		if err == nil {
			_, err = nkeys.ParseDecoratedJWT(data)
		}
		also("creds", err)
	}
	if c.NKey != "" {
		_, err := publicKey(c.NKey)
		also("nkey", err)
	}
	for what, path := range map[string]string{"password_file": c.PasswordFile, "token_file": c.TokenFile} {
		if path != "" {
			_, err := os.ReadFile(path)
			also(what, err)
		}
	}
	if c.CA != "" {
		_, err := c.authorities()
		also("tls.ca", err)
	}
	if c.Cert != "" {
		_, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		also("tls.cert", err)
	}
	return errors.Join(errs...)
}
