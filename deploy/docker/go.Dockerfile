# The parts that are built with Go, as targets of one file:
#
#   nats        nats-server from the module that agent-go/go.mod pins
#   agent       heeler-agent, for GPU nodes
#   agent-fake  the same with a fake NVML library, for demos and tests
#
#   docker build -f deploy/docker/go.Dockerfile --target agent -t heeler/agent:dev .
#
# GO_IMAGE has Go 1.24 or newer, a C compiler and make. BASE_IMAGE has bash, and a C library at least as new as
# GO_IMAGE's.
ARG GO_IMAGE=golang:1.24-bookworm
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${GO_IMAGE} AS modules
ARG GOPROXY=https://proxy.golang.org,direct
ENV GOPROXY=${GOPROXY} GOTOOLCHAIN=local GOFLAGS=-buildvcs=false
WORKDIR /src/agent-go
COPY schemas/go/go.mod schemas/go/go.sum /src/schemas/go/
COPY agent-go/go.mod agent-go/go.sum ./
RUN go mod download

FROM modules AS build-nats
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /out/nats-server github.com/nats-io/nats-server/v2

FROM modules AS build-agent
COPY schemas/go /src/schemas/go
COPY agent-go ./
ARG VERSION=dev
ARG COMMIT=
RUN go build -trimpath -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" \
    -o /out/heeler-agent ./cmd/heeler-agent

FROM ${GO_IMAGE} AS build-fake
COPY tests/fakes/nvml /src/nvml
RUN make -s -C /src/nvml OUT=/out

FROM ${BASE_IMAGE} AS runtime
RUN groupadd --gid 10001 heeler \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin heeler
USER 10001:10001

FROM runtime AS nats
USER root
# A volume mounted at /data takes over its owner.
RUN install -d -o 10001 -g 10001 /data
COPY --from=build-nats /out/nats-server /usr/local/bin/
COPY deploy/docker/bin/healthy /usr/local/bin/
COPY deploy/docker/config/nats.conf /etc/nats/nats.conf
USER 10001:10001
EXPOSE 4222
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 CMD ["healthy", "8222"]
ENTRYPOINT ["nats-server"]
CMD ["-c", "/etc/nats/nats.conf"]

# On a real node it is given /dev/kmsg with CAP_SYSLOG, the NVIDIA runtime, and the host's /proc and /sys: README.md
# has the whole line.
FROM runtime AS agent
USER root
# A tmpfs that is mounted over /run/heeler-agent takes over its mode, but belongs to root.
RUN install -d -o 10001 -g 10001 -m 0750 /var/lib/heeler-agent \
 && install -d -m 1777 /run/heeler-agent
COPY --from=build-agent /out/heeler-agent /usr/local/bin/
COPY deploy/docker/bin/connected /usr/local/bin/
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["connected", "4222"]
ENTRYPOINT ["heeler-agent"]
CMD ["run", "-config", "/etc/heeler/agent.toml"]

FROM agent AS agent-fake
USER root
RUN install -d -o 10001 -g 10001 /nodes
COPY --from=build-fake /out/libnvidia-ml.so.1 /usr/local/lib/heeler-fake/
USER 10001:10001
