package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"heeler.dev/agent-go/internal/nvml"
)

// printVersion says what was built, of what, and for what.
func printVersion(args []string, stdout io.Writer) error {
	if len(args) > 0 {
		return misused("version: unexpected argument %q", args[0])
	}
	of := revision()
	if of != "" {
		of = " (" + of + ")"
	}
	support := "with NVML"
	if !nvml.Built {
		support = "without NVML"
	}
	_, err := fmt.Fprintf(stdout, "heeler-agent %s%s %s %s/%s %s\n", version, of, runtime.Version(), runtime.GOOS,
		runtime.GOARCH, support)
	return err
}

// revision is the commit that was built, from the linker or from Go's own record.
func revision() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	return revision + changed
}
