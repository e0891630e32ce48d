//go:build !cgo

package nvml

// Built says that this program can load the library.
const Built = false

// Open returns the library; without cgo there is none.
func Open(string) Library { return none{} }

type none struct{}

func (none) Init() error {
	return &InitError{Status: LibraryNotFound, Detail: "this agent was built without cgo"}
}
func (none) Shutdown()                   {}
func (none) Versions() Versions          { return Versions{} }
func (none) Count() (int, Status)        { return 0, Uninitialized }
func (none) Device(int) (Device, Status) { return nil, Uninitialized }
