# Sickbay's two images, from the root of the repository:
#
#   docker build --target agent -t <your name>/agent:TAG .
#   docker build --target controller -t <your name>/controller:TAG .
#
# Only the lock file's packages, by their hashes, and our own code. Tools (nvidia-smi, dcgmi, fi_info) are the node's own:
# the agent runs them in the node's root, so no driver or CUDA is in here. The base is pinned by the digest of its index
# (all architectures); another one is PYTHON_TAG=TAG@sha256:... Behind a proxy: --build-arg PIP_INDEX_URL=...
ARG PYTHON_TAG=3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1

# Our own code as a wheel. The lock files are parts of requirements.lock, made by tools/lock.
FROM docker.io/library/python:${PYTHON_TAG} AS build
ARG PIP_INDEX_URL
WORKDIR /src
COPY deploy/images/build.lock deploy/images/
RUN pip install --no-cache-dir --no-deps --require-hashes -r deploy/images/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .
COPY deploy/images deploy/images

FROM build AS agent-home
RUN python -m venv --without-pip /opt/sickbay \
    && pip --python /opt/sickbay/bin/python install --no-cache-dir --no-deps --require-hashes -r deploy/images/agent.lock \
    && pip --python /opt/sickbay/bin/python install --no-cache-dir --no-deps --no-index /wheels/sickbay-*.whl

FROM build AS controller-home
RUN python -m venv --without-pip /opt/sickbay \
    && pip --python /opt/sickbay/bin/python install --no-cache-dir --no-deps --require-hashes -r deploy/images/controller.lock \
    && pip --python /opt/sickbay/bin/python install --no-cache-dir --no-deps --no-index /wheels/sickbay-*.whl

# What both stand on: Python without pip, without anything to fetch or unpack with.
FROM docker.io/library/python:${PYTHON_TAG} AS base
RUN rm -rf /usr/local/lib/python3.11/site-packages/* /usr/local/lib/python3.11/ensurepip /usr/local/bin/pip* \
    && rm -f /usr/bin/apt* /usr/bin/dpkg* /usr/bin/perl*
ENV PATH=/opt/sickbay/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /

# On every GPU node, and for the Jobs on nodes. Root, since it opens the kernel log and runs tools in the node's root.
FROM base AS agent
COPY --from=agent-home /opt/sickbay /opt/sickbay
RUN sickbay agent --help > /dev/null && sickbay node --help > /dev/null
USER 0:0
ENTRYPOINT []
CMD ["sickbay", "agent", "--config", "/etc/sickbay"]

# The controller, sweeps and quarantines. Nobody, and nothing to write but its own folders.
FROM base AS controller
COPY --from=controller-home /opt/sickbay /opt/sickbay
RUN sickbay controller --help > /dev/null && mkdir -p /var/lib/sickbay && chown 65532:65532 /var/lib/sickbay
USER 65532:65532
ENV HOME=/var/lib/sickbay
ENTRYPOINT []
CMD ["sickbay", "controller", "run"]
