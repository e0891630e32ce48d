# The Python side of Heeler: processors, commands, Slurm feed, simulator.
#
#   docker build -f deploy/docker/heeler.Dockerfile -t heeler/heeler:dev .
#
# BASE_IMAGE has python3 (3.11 or newer) with venv. Build and result use the same one: the virtual environment points
# at its interpreter.
ARG BASE_IMAGE=python:3.13-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG EXTRAS="slurm processors console"
ARG PIP_INDEX_URL=https://pypi.org/simple
ENV PIP_INDEX_URL=${PIP_INDEX_URL} PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY pyproject.toml deploy/dev/constraints.txt ./
# Packages first: they change seldom, and this layer is then taken from the cache.
RUN python3 -m venv /opt/heeler \
 && python3 -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
print(*p["dependencies"], *(r for x in sys.argv[1:] for r in p["optional-dependencies"][x]), sep="\n")' \
    ${EXTRAS} > requirements.txt \
 && /opt/heeler/bin/pip install -q -r requirements.txt -c constraints.txt
COPY README.md LICENSE ./
COPY agents agents
COPY processors processors
COPY schemas/python schemas/python
RUN PIP_CONSTRAINT=/src/constraints.txt /opt/heeler/bin/pip install -q --no-deps . \
 && rm -rf /opt/heeler/bin/pip* /opt/heeler/lib/python3*/site-packages/pip /opt/heeler/lib/python3*/site-packages/pip-* \
    /opt/heeler/lib/python3*/site-packages/setuptools* /opt/heeler/lib/python3*/site-packages/pkg_resources

FROM ${BASE_IMAGE}
# /nodes is where the simulator shows nodes to real agents; a volume mounted there takes over its owner.
RUN groupadd --gid 10001 heeler \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin heeler \
 && install -d -o 10001 -g 10001 /nodes
COPY --from=build /opt/heeler /opt/heeler
COPY deploy/docker/bin/healthy deploy/docker/bin/fleet deploy/docker/bin/inject /usr/local/bin/
ENV PATH=/opt/heeler/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
USER 10001:10001
# Processors are started with --listen 0.0.0.0:9464.
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["healthy", "9464"]
ENTRYPOINT ["heeler"]
CMD ["--help"]
