# syntax=docker/dockerfile:1
# blis-tui in a container, built from this checkout; docs/install.md says how to use it.
FROM python:3.13-slim AS build
ARG EXTRAS=""
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY blis_tui blis_tui
COPY specs specs
COPY schemas schemas
RUN pip wheel --no-cache-dir --wheel-dir /wheels ".${EXTRAS:+[$EXTRAS]}"

FROM python:3.13-slim
ARG EXTRAS=""
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "blis-tui${EXTRAS:+[$EXTRAS]}"
RUN useradd --create-home --uid 1000 blis
USER blis
WORKDIR /work
ENTRYPOINT ["blis-tui"]
CMD ["--help"]
