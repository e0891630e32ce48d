// Package statefile keeps small states over restarts.
package statefile

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Save writes a value as JSON, wholly or not at all; where path is empty, nothing is kept.
func Save(path string, value any) error {
	if path == "" {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
