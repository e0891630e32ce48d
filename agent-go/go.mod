module heeler.dev/agent-go

// Heeler builds with Go 1.24: the versions below are the newest that do. Newer nats.go (1.50) and nats-server
// (2.12.7) ask for Go 1.25.
go 1.24.0

replace heeler.dev/schemas/go => ../schemas/go

require (
	github.com/BurntSushi/toml v1.6.0
	github.com/NVIDIA/go-nvml v0.13.4-1
	github.com/nats-io/jwt/v2 v2.8.0
	github.com/nats-io/nats-server/v2 v2.12.4
	github.com/nats-io/nats.go v1.49.0
	github.com/nats-io/nkeys v0.4.12
	github.com/tinylib/msgp v1.6.5
	golang.org/x/sys v0.40.0
	heeler.dev/schemas/go v0.0.0
)

require (
	github.com/antithesishq/antithesis-sdk-go v0.5.0-default-no-op // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/klauspost/compress v1.18.3 // indirect
	github.com/minio/highwayhash v1.0.4-0.20251030100505-070ab1a87a76 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	go.uber.org/automaxprocs v1.6.0 // indirect
	golang.org/x/crypto v0.47.0 // indirect
	golang.org/x/time v0.14.0 // indirect
)

tool github.com/nats-io/nats-server/v2
