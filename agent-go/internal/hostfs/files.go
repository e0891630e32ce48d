package hostfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// OpenFiles are the files that this process has open and whose names begin with prefix, each once.
func OpenFiles(prefix string) ([]string, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err == nil && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
