package kmsg

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"heeler.dev/agent-go/internal/statefile"
)

// store keeps where reading stopped, so that a restart neither repeats nor misses a line. It holds for one boot and one
// path: another boot has another log.
type store struct {
	path string
	boot string
	log  string
}

// saved is what is kept.
type saved struct {
	Boot     string            `json:"boot"`
	Log      string            `json:"log"`
	Position position          `json:"position"`
	UUIDs    map[string]string `json:"uuids"`
}

func (s store) load() (saved, error) {
	fresh := saved{Boot: s.boot, Log: s.log, UUIDs: map[string]string{}}
	if s.path == "" {
		return fresh, nil
	}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return fresh, err
	}
	var got saved
	if err := json.Unmarshal(data, &got); err != nil {
		return fresh, err
	}
	if got.Boot != s.boot || got.Log != s.log {
		return fresh, nil
	}
	if got.UUIDs == nil {
		got.UUIDs = map[string]string{}
	}
	return got, nil
}

func (s store) save(state saved) error { return statefile.Save(s.path, state) }
